#!/usr/bin/env bash
# One job per participant, then one for the group level, on a cluster with SLURM.
#
#   bash slurm_array.sh /data/study /scratch/fcpower /images/fcpower_bids.sif [options of fcpower_bids]
#
# Started by hand it submits itself; the copies that SLURM starts do the work. Running it again does only what is not
# finished. Inside, the dataset is /data and the output folder /out: paths in the options start with these. In the place
# of the image an installed program may be named, such as ~/venv/bin/fcpower_bids; it sees all folders by their own names.
# Settings (environment), which sbatch hands to the jobs
#   GROUP           options of the group level; without it that level is not run
#   SBATCH          more options of sbatch, such as "--account=lab --partition=short"
#   GROUP_SBATCH    options of sbatch for the group level ["--cpus-per-task=8 --mem=16G --time=12:00:00"]
#   PER_JOB         participants per job [as few as MaxArraySize of the cluster allows]
#   AT_A_TIME       jobs that run at once [50]
#   APPTAINER_BIND  more folders, such as "/project/atlases:/atlases:ro" for --atlas-dir /atlases
#SBATCH --job-name=fcpower
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=02:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
if (( $# < 3 )); then sed -n '4,15s/^# \{0,1\}//p' "$0"; exit 2; fi
bids=$(realpath "$1") out=$(realpath -m "$2") program=$(realpath -s "$3")
arguments=("$bids" "$out" "$program" "${@:4}")
mkdir -p "$out/logs/slurm"
list=$out/logs/slurm/participants.txt

run() { # run LEVEL [options]: of the host an image sees but the folders named here; nothing needs the network
  if [[ -f $program && -x $program && $program != *.sif ]]; then
    "$program" "$bids" "$out" "$@"
  else
    apptainer run --cleanenv --containall --env FCPOWER_OFFLINE=1 -B "$bids:/data:ro" -B "$out:/out" \
      ${TEMPLATEFLOW_HOME:+-B "$TEMPLATEFLOW_HOME:/opt/templateflow:ro"} "$program" /data /out "$@"
  fi
}

if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  per_job=${PER_JOB:-1}
  mapfile -t labels < <(sed -n "$(( (SLURM_ARRAY_TASK_ID - 1) * per_job + 1 )),$(( SLURM_ARRAY_TASK_ID * per_job ))p" "$list")
  run participant --participant-label "${labels[@]}" --nprocs "${SLURM_CPUS_PER_TASK:-1}" "${@:4}"
elif [[ -n ${SLURM_JOB_ID:-} ]]; then
  # shellcheck disable=SC2086  # GROUP holds several words
  run group --nprocs "${SLURM_CPUS_PER_TASK:-1}" --mem-mb "${SLURM_MEM_PER_NODE:-0}" ${GROUP:-}
else
  derivatives=$bids
  if [[ -d $bids/derivatives/fmriprep ]]; then derivatives=$bids/derivatives/fmriprep; fi
  find "$derivatives" -maxdepth 1 -type d -name 'sub-*' -printf '%f\n' | sort > "$list"
  count=$(wc -l < "$list")
  if (( count == 0 )); then echo "There is no sub-* folder in $derivatives." >&2; exit 3; fi
  largest=$(scontrol show config 2>/dev/null | sed -n 's/^MaxArraySize *= *//p' || true)
  most=$(( ${largest:-1001} - 1 )) # the numbers of an array's jobs stay below MaxArraySize
  export PER_JOB=${PER_JOB:-$(( (count + most - 1) / most ))}
  options=(--parsable --output "$out/logs/slurm/%x-%A_%a.txt")
  # shellcheck disable=SC2086  # SBATCH holds several words
  job=$(sbatch "${options[@]}" ${SBATCH:-} --array "1-$(( (count + PER_JOB - 1) / PER_JOB ))%${AT_A_TIME:-50}" "$0" "${arguments[@]}")
  echo "$count participants, $PER_JOB per job: job $job"
  if [[ -n ${GROUP:-} ]]; then # afterany: people who failed are left out of the group and listed there
    # shellcheck disable=SC2086
    job=$(sbatch "${options[@]}" ${SBATCH:-} ${GROUP_SBATCH:---cpus-per-task=8 --mem=16G --time=12:00:00} \
      --dependency "afterany:${job%%;*}" "$0" "${arguments[@]}")
    echo "group level: job $job"
  fi
fi
