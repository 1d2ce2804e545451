#!/usr/bin/env bash
# Run the image as strictly as anybody would, and compare what it writes with a run on this machine.
#
#   scripts/test_image.sh     (the same as: make image-test)
#
# Settings (environment)
#   ENGINE, IMAGE   see scripts/engine.sh; docker or podman
#   PYTHON          an interpreter of this machine that has fcpower_bids [.venv/bin/python]
#   SCRATCH         folder to work in, kept [a new one, removed]
#   ATLAS           an atlas that is in the image, tried without network
#   SIF             a .sif made of the image, tried as well with apptainer
#   LIMIT_MB        largest size of the image [1400]
#   STEPS           what to check, in this order [all: start content ...; most need the step `host` before them]
# shellcheck disable=SC2016  # what stands in single quotes is expanded in the container
set -euo pipefail
cd "$(dirname "$0")"
. ./engine.sh
engine=$(find_engine docker podman)
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
LIMIT_MB=${LIMIT_MB:-1400}
[[ -x $PYTHON ]] || die "$PYTHON is not there: run 'make install', or set PYTHON"
export OMP_NUM_THREADS=1 PYTHONPATH=$ROOT

if [[ -n ${SCRATCH:-} ]]; then mkdir -p "$SCRATCH"; else
  SCRATCH=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
  trap 'remove_scratch' EXIT
fi
chmod 755 "$SCRATCH"
remove_scratch() { # some of it belongs to the users of the containers
  rm -rf "$SCRATCH" 2>/dev/null ||
    { "$engine" run --rm --user 0:0 --entrypoint rm -v "$SCRATCH:/scratch" "$IMAGE" -rf /scratch/open 2>/dev/null; rm -rf "$SCRATCH"; }
}

# Everything that can be withheld: privileges, a writable root, the network, a known user.
hard=(--rm --network none --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs '/tmp:rw,mode=1777')
if [[ $engine == podman ]]; then hard+=(--pull never --read-only-tmpfs=false); else hard+=(--pull never); fi
# The BLAS kernel of this machine, so that outputs are equal byte by byte; OpenBLAS otherwise chooses by the processor.
for name in OPENBLAS_CORETYPE OPENBLAS_L2_SIZE; do
  if [[ -v $name ]]; then hard+=(--env "$name"); export "APPTAINERENV_$name=${!name}"; fi
done
OWN=1000 UNKNOWN=54321
bounded=(timeout --kill-after 10 300) # no step takes a minute where nothing hangs
as() { local user=$1; shift; "${bounded[@]}" "$engine" run "${hard[@]}" --user "$user:$user" "$@"; }
inside() { as "$OWN" --entrypoint sh "$IMAGE" -c "$1"; }
# Folders for the outputs of other users.
open_folder() { mkdir -p "$SCRATCH/open/$1"; chmod 777 "$SCRATCH/open" "$SCRATCH/open/$1" 2>/dev/null || true; echo "$SCRATCH/open/$1"; }
now() { date +%s.%N; }
since() { "$PYTHON" -c "import sys; print(f'{float(sys.argv[2]) - float(sys.argv[1]):.1f}')" "$1" "$(now)"; }
result() { printf '%s\t%s\n' "$1" "$2" >> "$SCRATCH/results.tsv"; }

OPTIONS=(--atlas builtin --strategy 24P --nprocs 2)
GROUP=(--targets age --repeats 1 --folds 3)

check_start() {
  say "--version"
  local start
  as "$OWN" "$IMAGE" --version
  start=$(now); as "$OWN" "$IMAGE" --version >/dev/null; result "--version, container included" "$(since "$start") s"
  as "$UNKNOWN" -e HOME=/nonexistent "$IMAGE" --help >/dev/null
}

check_content() {
  say "what is in the image, and what is not"
  inside 'for tool in gcc cc g++ make git pip pip3 curl wget; do if command -v $tool; then echo "$tool is in the image"; exit 1; fi; done'
  # As root of the image, so that nothing is hidden from the search.
  "$engine" run "${hard[@]}" --cap-add DAC_READ_SEARCH --user 0:0 --entrypoint sh "$IMAGE" -ec '
    for path in /mnt/* ~root/.config ~root/.cache ~root/.netrc ~root/.ssh ~root/.docker /etc/pip.conf /etc/apt/auth.conf \
                /etc/apt/auth.conf.d/* /etc/apt/apt.conf.d/99* /var/lib/apt/lists/* /var/cache/apt/*.bin /src /tmp/* /tmp/.[!.]*; do
      if [ -e "$path" ]; then echo "left over: $path"; exit 1; fi
    done
    found=$(find / -xdev \( -name direct_url.json -o -name pip.conf -o -name .netrc -o -name "*.pem" -path "*/home/*" \)); [ -z "$found" ] || { echo "left over: $found"; exit 1; }
    found=$(find / -xdev -type f -perm /6000);            [ -z "$found" ] || { echo "set-user-id: $found"; exit 1; }
    found=$(find / -xdev -perm -0002 ! -type l ! -path "/proc/*" ! -path "/dev/*" ! \( -type d -perm -1000 \)); [ -z "$found" ] || { echo "world-writable: $found"; exit 1; }
    env | grep -iE "token|secret|passw|proxy|index_url" && exit 1
    test -s /opt/fcpower/requirements.lock
    if touch /opt/x /usr/x 2>/dev/null; then echo "the root can be written"; exit 1; fi
  '
  result "set-user-id programs, world-writable files" "none"
}

check_imports() { # every module of ours, and what they import late, as a user without a name
  say "every module can be imported"
  as "$UNKNOWN" --entrypoint python "$IMAGE" -W ignore -c '
import importlib, pkgutil, fcpower_bids
names = [m.name for m in pkgutil.walk_packages(fcpower_bids.__path__, "fcpower_bids.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names), "modules")'
}

check_host() {
  say "demo dataset and reference run on this machine"
  "$PYTHON" -m fcpower_bids.demo "$SCRATCH/data" --subjects 12 --volumes 120 > /dev/null
  chmod -R a+rX "$SCRATCH/data"
  local start; start=$(now)
  "$PYTHON" -m fcpower_bids "$SCRATCH/data" "$SCRATCH/host" participant "${OPTIONS[@]}" --quiet
  result "participant level on the host, 25 recordings" "$(since "$start") s"
  "$PYTHON" -m fcpower_bids "$SCRATCH/data" "$SCRATCH/host" group "${GROUP[@]}" --quiet
}

compare() { "$PYTHON" compare_outputs.py "$SCRATCH/host" "$1" "$SCRATCH/data=/data" "$SCRATCH/host=/out"; }

# run_as USER NAME: both levels as a user, inputs read-only
run_as() {
  local out start; out=$(open_folder "$2")
  say "participant and group level as user $1"
  start=$(now)
  as "$1" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" /data /out participant "${OPTIONS[@]}" --quiet
  result "participant level in the container, user $1" "$(since "$start") s"
  as "$1" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" /data /out group "${GROUP[@]}" --quiet
  compare "$out"
}

check_readme() { # the lines of the README as they stand there, but without network, so with an atlas that needs none
  say "the README's lines"
  local out line; out=$(open_folder readme)
  docker() { "${bounded[@]}" "$engine" "$1" --network none --pull never "${@:2}"; }
  "$engine" tag "$IMAGE" fcpower_bids
  while read -r line; do
    line=${line%%#*} line=${line//BIDS/$SCRATCH/data}
    [[ $line != *participant* ]] || line+=" --atlas builtin"
    eval "${line//OUT/$out}"
  done < <(grep '^docker run' ../README.md)
  test -s "$out/sub-01.html"
  test -s "$out/group.html"
}

check_known() { run_as "$OWN" known; }
check_unknown() { run_as "$UNKNOWN" unknown; }

KERNEL='import numpy, threadpoolctl; print({found.get("architecture") for found in threadpoolctl.threadpool_info()})'
same_kernel() { # same_kernel WHAT COMMAND...: the BLAS of the image computes as that of this machine does
  local here there; here=$("$PYTHON" -c "$KERNEL"); there=$("${@:2}" -c "$KERNEL")
  [[ $here == "$there" ]] || die "BLAS computes with $there in $1, with $here on this machine"
}

check_demo() { # the image makes the same dataset as this machine
  same_kernel "the image" as "$OWN" --entrypoint python "$IMAGE"
  say "the demo dataset made inside"
  local out; out=$(open_folder demo)
  as "$OWN" -v "$out:/out" --entrypoint python "$IMAGE" -m fcpower_bids.demo /out/bids --subjects 2 > /dev/null
  "$PYTHON" -m fcpower_bids.demo "$SCRATCH/demo" --subjects 2 > /dev/null
  "$PYTHON" compare_outputs.py "$SCRATCH/demo" "$out/bids"
}

check_atlas() { # what was handed in at build is found without network
  say "atlas $ATLAS from the image"
  local out; out=$(open_folder atlas)
  as "$OWN" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" \
    /data /out participant --participant-label 01 --session-label a --atlas "$ATLAS" --quiet
  ls "$out"/sub-01/ses-a/func/*_relmat.tsv > /dev/null

  say "prefetch: checksums are written, a whole folder is used without network"
  local folder prefetch=(prefetch --folder /atlases --atlas "$ATLAS" --space MNI152NLin2009cAsym)
  folder=$(open_folder atlases); out=$(open_folder prefetched)
  as "$OWN" -v "$folder:/atlases" --entrypoint cp "$IMAGE" -r /opt/templateflow/. /atlases
  as "$OWN" -v "$folder:/atlases" "$IMAGE" "${prefetch[@]}"
  (cd "$folder" && awk -F'\t' 'NR > 1 {print $2 "  " $1}' checksums.tsv | sha256sum --check --strict)
  as "$OWN" -v "$SCRATCH/data:/data:ro" -v "$out:/out" -v "$folder:/opt/templateflow:ro" -e FCPOWER_OFFLINE=1 "$IMAGE" \
    /data /out participant --participant-label 01 --session-label a --atlas "$ATLAS" --quiet
}

finished() { { grep -l '"state": "done"' "$1"/logs/status/*.json 2>/dev/null || true; } | wc -l; }

check_resume() { # kill -9 in the middle, then the same command again
  say "killed in the middle, and run again"
  local out name=fcpower-killed-$$ done=0; out=$(open_folder killed)
  as "$OWN" --name "$name" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" /data /out participant "${OPTIONS[@]}" --nprocs 1 --quiet &
  local job=$!
  for _ in $(seq 600); do
    done=$(finished "$out")
    if (( done >= 5 )); then break; fi
    sleep 0.1
  done
  "$engine" kill --signal KILL "$name" > /dev/null
  if wait "$job"; then die "the run ended before it was killed"; fi
  done=$(finished "$out")
  touch "$SCRATCH/before"
  as "$OWN" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" /data /out participant "${OPTIONS[@]}" --quiet
  local kept; kept=$(find "$out/logs/status" -name '*.json' ! -newer "$SCRATCH/before" | wc -l)
  (( kept >= done )) || die "$done recordings were finished when it was killed, but only $kept were kept"
  as "$OWN" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" /data /out group "${GROUP[@]}" --quiet
  compare "$out"
  result "finished before the kill, kept afterwards" "$done, $kept"
}

check_stop() { # `docker stop` is heard
  say "stopped"
  local out name=fcpower-stopped-$$ start code=0; out=$(open_folder stopped)
  as "$OWN" --name "$name" -v "$SCRATCH/data:/data:ro" -v "$out:/out" "$IMAGE" /data /out participant "${OPTIONS[@]}" --quiet &
  local job=$!
  until ls "$out"/logs/status/*.json >/dev/null 2>&1; do sleep 0.2; kill -0 "$job" || die "it ended by itself"; done
  start=$(now); "$engine" stop --time 30 "$name" > /dev/null; wait "$job" || code=$?
  [[ $code == 130 ]] || die "it ended with $code instead of 130"
  result "docker stop" "$(since "$start") s, exit code $code"
}

check_sif() { # clean environment, nothing of the host but the two folders, no network
  local out start strict=(--cleanenv --containall --net --network none)
  say "apptainer test"
  "${bounded[@]}" apptainer test --cleanenv --containall "$SIF"
  start=$(now); "${bounded[@]}" apptainer run "${strict[@]}" "$SIF" --version; result ".sif: --version" "$(since "$start") s"
  say "apptainer run"
  same_kernel "the .sif" "${bounded[@]}" apptainer exec "${strict[@]}" "$SIF" python
  out=$(open_folder sif)
  start=$(now)
  "${bounded[@]}" apptainer run "${strict[@]}" -B "$SCRATCH/data:/data:ro" -B "$out:/out" "$SIF" /data /out participant "${OPTIONS[@]}" --quiet
  result ".sif: participant level" "$(since "$start") s"
  "${bounded[@]}" apptainer run "${strict[@]}" -B "$SCRATCH/data:/data:ro" -B "$out:/out" "$SIF" /data /out group "${GROUP[@]}" --quiet
  compare "$out"
  result ".sif" "$(( $(stat -c %s "$SIF") / 1000000 )) MB"
}

check_array() { # the example for clusters, with a queue that runs two jobs at a time, and the group once all are done
  say "docs/examples/slurm_array.sh with the .sif"
  local out start; out=$(open_folder array)
  mkdir -p "$SCRATCH/bin" "$out/logs/slurm"; chmod 777 "$out/logs" "$out/logs/slurm"
  cat > "$SCRATCH/bin/sbatch" <<'S'
#!/usr/bin/env bash
jobs=
while [[ $1 != *.sh ]]; do if [[ $1 == --array ]]; then jobs=${2#1-}; jobs=${jobs%%%*}; fi; shift; done
if [[ -n $jobs ]]; then seq "$jobs" | SLURM_JOB_ID=1 SLURM_CPUS_PER_TASK=1 xargs -P 2 -I '{}' env SLURM_ARRAY_TASK_ID='{}' bash "$@" >&2
else SLURM_JOB_ID=2 bash "$@" >&2; fi
echo 1
S
  chmod 755 "$SCRATCH/bin/sbatch"
  start=$(now)
  PATH=$SCRATCH/bin:$PATH GROUP="${GROUP[*]} --quiet" PER_JOB=5 "${bounded[@]}" bash "$ROOT/docs/examples/slurm_array.sh" \
    "$SCRATCH/data" "$out" "$SIF" "${OPTIONS[@]}" --quiet 2> "$SCRATCH/array.txt" || { tail "$SCRATCH/array.txt"; die "the array failed"; }
  compare "$out"
  result ".sif: SLURM array, three jobs of up to five participants, and the group" "$(since "$start") s"
}

check_size() {
  say "size"
  local megabytes; megabytes=$(( $("$engine" image inspect --format '{{.Size}}' "$IMAGE") / 1000000 ))
  result "image" "$megabytes MB"
  "$engine" history --no-trunc --format '{{.Size}}	{{.CreatedBy}}' "$IMAGE" | grep -v '^0 \?B' | cut -c1-110
  inside 'du -sm /usr /opt/templateflow; cd /opt/fcpower/lib/python3*/site-packages; du -sm * | sort -rn | head -14'
  (( megabytes < LIMIT_MB )) || die "the image has $megabytes MB, more than $LIMIT_MB"
}

rm -f "$SCRATCH/results.tsv"
for step in ${STEPS:-start content imports size demo host known unknown readme ${ATLAS:+atlas} resume stop ${SIF:+sif array}}; do
  "check_$step"
done
say "results"
cat "$SCRATCH/results.tsv"
