#!/usr/bin/env bash
# One job per participant, then one for the group level, on a cluster with SLURM and Apptainer.
#
#   bash slurm_array.sh /data/study /scratch/fcpower /images/fcpower_bids.sif [options of fcpower_bids]
#
# Started by hand it submits itself; the copies that SLURM starts do the work. Running it again does only what is not
# finished. Inside, the dataset is /data and the output folder /out: paths in the options start with these.
# Settings (environment), which sbatch hands to the jobs
#   GROUP           options of the group level; without it that level is not run
#   SBATCH          more options of sbatch, such as "--account=lab --partition=short"
#   PER_JOB         participants per job [1]
#   AT_A_TIME       jobs that run at once [50]
#   APPTAINER_BIND  more folders, such as "/project/atlases:/atlases:ro" for --atlas-dir /atlases
#SBATCH --job-name=fcpower
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=02:00:00
set -euo pipefail
if (( $# < 3 )); then sed -n '4,13s/^# \{0,1\}//p' "$0"; exit 2; fi
bids=$(realpath "$1") out=$(realpath -m "$2") sif=$(realpath "$3")
arguments=("$bids" "$out" "$sif" "${@:4}")
mkdir -p "$out/logs/slurm"
list=$out/logs/slurm/participants.txt per_job=${PER_JOB:-1}

run() { # run LEVEL [options]: nothing of the host is seen but the folders named here; nothing needs the network
  apptainer run --cleanenv --containall --env FCPOWER_OFFLINE=1 -B "$bids:/data:ro" -B "$out:/out" \
    ${TEMPLATEFLOW_HOME:+-B "$TEMPLATEFLOW_HOME:/opt/templateflow:ro"} "$sif" /data /out "$@"
}

if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  mapfile -t labels < <(sed -n "$(( (SLURM_ARRAY_TASK_ID - 1) * per_job + 1 )),$(( SLURM_ARRAY_TASK_ID * per_job ))p" "$list")
  run participant --participant-label "${labels[@]}" --nprocs "${SLURM_CPUS_PER_TASK:-1}" "${@:4}"
elif [[ -n ${SLURM_JOB_ID:-} ]]; then
  # shellcheck disable=SC2086  # GROUP holds several words
  run group ${GROUP:-}
else
  derivatives=$bids
  if [[ -d $bids/derivatives/fmriprep ]]; then derivatives=$bids/derivatives/fmriprep; fi
  find "$derivatives" -maxdepth 1 -type d -name 'sub-*' -printf '%f\n' | sort > "$list"
  count=$(wc -l < "$list")
  if (( count == 0 )); then echo "There is no sub-* folder in $derivatives." >&2; exit 3; fi
  options=(--parsable --output "$out/logs/slurm/%x-%A_%a.txt")
  # shellcheck disable=SC2086  # SBATCH holds several words
  job=$(sbatch "${options[@]}" ${SBATCH:-} --array "1-$(( (count + per_job - 1) / per_job ))%${AT_A_TIME:-50}" "$0" "${arguments[@]}")
  echo "$count participants: job $job"
  if [[ -n ${GROUP:-} ]]; then # afterany: people who failed are left out of the group and listed there
    # shellcheck disable=SC2086
    echo "group level: job $(sbatch "${options[@]}" ${SBATCH:-} --mem 8G --dependency "afterany:${job%%;*}" "$0" "${arguments[@]}")"
  fi
fi
