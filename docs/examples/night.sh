#!/bin/sh
# One night of a clinic: process what is new, predict it, and write down who did what, when, and how it ended.
#   night.sh BIDS OUT [MODEL ...]   with options of the participant level in NIGHT_OPTIONS, of predict in PREDICT_OPTIONS
# It may be cut short and started again at any time: what is done stays done.
set -u
bids=$1 out=$2
shift 2
mkdir -p "$out/logs"
audit="$out/logs/audit.log"

audited() { # run a command; one line of the audit: when, who, how it ended, digest of what it left, the command
    what=$1
    shift
    "$@" >>"$out/logs/night.log" 2>&1
    code=$?
    digest=$(cat "$what" 2>/dev/null | sha256sum | cut -c 1-16)
    printf '%s %s exit=%s sha256=%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(id -un 2>/dev/null || id -u)" "$code" "$digest" "$*" >>"$audit"
    [ "$code" -eq 0 ] || worst=$code
}

worst=0
# shellcheck disable=SC2086
audited "$out/logs/status.tsv" fcpower_bids "$bids" "$out" participant ${NIGHT_OPTIONS:-}
for model in "$@"; do
    name=$(basename "$model" _model)
    # shellcheck disable=SC2086
    audited "$out/group/predicted/$name.tsv" fcpower_bids predict "$model" "$out" ${PREDICT_OPTIONS:-}
done
exit "$worst"
