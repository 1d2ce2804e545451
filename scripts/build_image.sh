#!/usr/bin/env bash
# Build the image with docker, podman or buildah, whichever works here.
#
#   scripts/build_image.sh            (the same as: make image)
#
# Settings (environment)
#   ENGINE, IMAGE     see scripts/engine.sh
#   TORCH_INDEX_URL   where torch comes from [the CPU index of PyTorch]; empty: what pip is configured with
#   ATLASES           atlases to fetch into the image [Schaefer400]; empty: none
#   ATLAS_FOLDER      a folder made by `fcpower_bids prefetch` that goes into the image instead; nothing is fetched then
#   BASE_IMAGE        [debian:bookworm-slim]
#   PUSH=1            docker with buildx alone: push what is built, with a list of its contents (SBOM) and its provenance
#   HOST_CONFIG=1     podman, buildah: lend the build the apt and pip configuration of this machine (mirrors, CA bundle)
#                     in mounts that leave nothing in the image
set -euo pipefail
cd "$(dirname "$0")"
. ./engine.sh
engine=$(find_engine docker buildah podman)

arguments=(
  --build-arg "VERSION=$VERSION"
  --build-arg "REVISION=$(git -C "$ROOT" rev-parse HEAD 2>/dev/null || echo unknown)"
  --build-arg "CREATED=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%dT%H:%M:%SZ)"
)
for name in TORCH_INDEX_URL ATLASES BASE_IMAGE; do
  if [[ -v $name ]]; then arguments+=(--build-arg "$name=${!name}"); fi
done
if [[ $engine != docker ]]; then arguments+=(--layers); fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ -n ${ATLAS_FOLDER:-} ]]; then # the folder takes the place of the stage `atlases`
  mkdir -p "$scratch/atlases/atlases"
  cp -a "$ATLAS_FOLDER" "$scratch/atlases/atlases/templateflow"
  arguments+=(--build-context "atlases=$scratch/atlases")
fi
if [[ ${HOST_CONFIG:-} == 1 ]]; then
  if [[ $engine == docker ]]; then die "HOST_CONFIG needs podman or buildah: docker has no mounts at build time"; fi
  . ./host_config.sh
  lend_host_config "$scratch/config"
  arguments+=(--pull-never --network host "${LENT[@]}")
fi

build=(build)
if [[ ${PUSH:-} == 1 ]]; then
  if [[ $engine != docker ]]; then die "PUSH needs docker with buildx: the others write no attestations"; fi
  build=(buildx build --push --sbom=true --provenance=mode=max)
fi

say "$engine: building $IMAGE"
"$engine" "${build[@]}" "${arguments[@]}" -f "$ROOT/Dockerfile" -t "$IMAGE" "$ROOT"
