#!/usr/bin/env bash
# Turn the image into a .sif for Apptainer or Singularity (on a machine that has it).
#
#   scripts/build_sif.sh      (the same as: make sif)
#
# Settings (environment)
#   ENGINE, IMAGE   see scripts/engine.sh
#   SIF             the file to make [fcpower_bids.sif in the repository]
#   SQUASHFS        arguments of mksquashfs ["-comp zstd -Xcompression-level 3" is much faster, and a little larger]
set -euo pipefail
cd "$(dirname "$0")"
. ./engine.sh
engine=$(find_engine docker buildah podman)
apptainer=$(command -v apptainer || command -v singularity) || die "apptainer is not installed"
SIF=$(realpath -m "${SIF:-$ROOT/fcpower_bids.sif}")
mkdir -p "$(dirname "$SIF")"
scratch=$(mktemp -d -p "$(dirname "$SIF")")
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"

say "$engine: writing $IMAGE into an archive"
bootstrap=oci-archive
case $engine in
  docker) bootstrap=docker-archive; docker save -o "$scratch/image.tar" "$IMAGE" ;;
  podman) podman save -q --format oci-archive -o "$scratch/image.tar" "$IMAGE" ;;
  buildah) buildah push -q "$IMAGE" "oci-archive:$scratch/image.tar:latest" ;;
esac
cp "$ROOT/singularity.def" "$scratch/"
say "apptainer: building $SIF"
cd "$scratch"
"$apptainer" build --force ${SQUASHFS:+--mksquashfs-args "$SQUASHFS"} \
  --build-arg "BOOTSTRAP=$bootstrap" --build-arg FROM=image.tar image.sif singularity.def
mv image.sif "$SIF"
ls -l "$SIF"
