# shellcheck shell=bash
# Run what needs the network, and tell a network that fails from everything else that can fail.

UNREACHABLE='Retrying \(Retry|Max retries exceeded|Read timed out|ReadTimeoutError|ConnectTimeoutError|NewConnectionError|ProtocolError'
UNREACHABLE+='|NameResolutionError|Temporary failure (in name resolution|resolving)|Could not resolve|Name or service not known'
UNREACHABLE+='|Connection (refused|reset|timed out|broken|failed)|Could not connect|Unable to connect|Network is unreachable|No route to host'
UNREACHABLE+='|IncompleteRead|Failed to fetch|Some index files failed to download|File has unexpected size|Hash Sum mismatch'
UNREACHABLE+='|HTTP [eE]rror (429|5[0-9][0-9])|(429|5[0-9][0-9]) (Client|Server) Error|50[0234] +(Internal|Bad|Service|Gateway)'

last_step() { # of the log of a build
  awk '/STEP [0-9]+\/[0-9]+/ {step = ""} {step = step $0 "\n"} END {printf "%s", step}' "$1"
}

network_failed() { # network_failed LOG CODE: did the build end because packages could not be had, or not in time?
  if (( $2 == 124 )); then last_step "$1" | tail -1 | grep -cE '^(Get:|Collecting|  *Downloading|Downloading|Looking in|.*[kM]B/s)' >/dev/null
  else last_step "$1" | grep -cE "$UNREACHABLE" >/dev/null; fi
}

# attempt LOG SECONDS COMMAND...: run it, three times where the network fails, within the time for all of them.
# 0 done, 75 the network failed each time, else the exit code.
attempt() {
  local log=$1 end=$((SECONDS + $2)) code pause; shift 2
  for pause in ${PAUSES:-10 30 0}; do
    code=0; timeout -k 20 "$((end > SECONDS ? end - SECONDS : 1))" "$@" > "$log" 2>&1 || code=$?
    if (( code == 0 )); then return 0; fi
    network_failed "$log" "$code" || return "$code"
    echo "The network failed: $(last_step "$log" | grep -E "$UNREACHABLE" | tail -1 | cut -c1-200)"
    if (( code == 124 || SECONDS + pause >= end )); then break; fi
    sleep "$pause"
  done
  return 75
}
