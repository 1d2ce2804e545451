# shellcheck shell=bash
# Which container program to use; read by the other scripts of this folder.
#   ENGINE   docker, podman or buildah; without it the first that works
#   IMAGE    name of the image [localhost/fcpower_bids:<version>]

say() { printf '\n== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VERSION=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$ROOT/fcpower_bids/_version.py")
IMAGE=${IMAGE:-localhost/fcpower_bids:$VERSION}

works() { # a docker command without its daemon is no engine
  case $1 in
    docker) docker info >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 && "$1" info >/dev/null 2>&1 ;;
  esac
}

find_engine() { # find_engine NAME...: print the first of them that works
  local name
  for name in ${ENGINE:-"$@"}; do
    if works "$name"; then echo "$name"; return; fi
  done
  die "none of ${ENGINE:-$*} works here. Install one, or start the docker daemon."
}
