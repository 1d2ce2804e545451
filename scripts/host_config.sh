# shellcheck shell=bash
# The apt and pip configuration of this machine, as mounts for `podman build` and `buildah build`.
# Mirrors and indexes are read here and now and written nowhere but into a scratch folder: no address of this machine
# gets into the repository or the image. Every mount point exists in a Debian image, so none is left behind.
#   FOLDER/mnt            -> /mnt                     CA bundle, local indexes (read-only)
#   FOLDER/home           -> /root                    pip.conf   (overlay: what is written is dropped)
#   FOLDER/apt.conf.d     -> /etc/apt/apt.conf.d      (overlay)
#   FOLDER/sources.list.d -> /etc/apt/sources.list.d  (overlay)

SUITE=${SUITE:-bookworm}

apt_sources() { # the file with the Debian sources of this machine
  local file
  for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    if [[ -s $file ]] && grep -q "$SUITE" "$file"; then echo "$file"; return; fi
  done
  return 1
}

apt_options() { # how this machine fetches packages
  apt-config dump | grep -E '^Acquire::(Check-|http::|https::|Retries)' || true
}

lend_host_config() { # lend_host_config FOLDER: fill it and set LENT to the arguments of the build
  local folder=$1 bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} sources mount
  mkdir -p "$folder"/{mnt,home/.config/pip,apt.conf.d,sources.list.d}
  chmod -R go+rX "$(dirname "$folder")"
  if [[ -r $bundle ]]; then
    cp "$bundle" "$folder/mnt/ca.crt"
    echo 'Acquire::https::CAInfo "/mnt/ca.crt";' > "$folder/apt.conf.d/99lent"
  fi
  apt_options >> "$folder/apt.conf.d/99lent"
  # As in the official image: keep neither archives nor caches.
  cat > "$folder/apt.conf.d/docker-clean" <<'APT'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/archives/partial/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/archives/partial/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
APT
  sources=$(apt_sources) || die "this machine has no apt sources for $SUITE"
  case $sources in
    *.sources) cp "$sources" "$folder/sources.list.d/debian.sources" ;;
    *) cp "$sources" "$folder/sources.list.d/debian.list" ;;
  esac
  python3 "$ROOT/scripts/pip_config.py" "$folder/mnt" > "$folder/home/.config/pip/pip.conf" 3> "$folder/mounts"
  LENT=(--volume "$folder/mnt:/mnt:ro" --volume "$folder/home:/root:O"
        --volume "$folder/apt.conf.d:/etc/apt/apt.conf.d:O" --volume "$folder/sources.list.d:/etc/apt/sources.list.d:O")
  while read -r mount; do LENT+=(--volume "$mount"); done < "$folder/mounts"
}
