# shellcheck shell=bash
# What the container stage of CI needs before it builds anything: tools, an engine that runs, a base image, an index.
# Every function is bounded in time, and returns 1 after it has written why to $WORK/quiet.log.
#   WORK, PYTHON   as in .ci/containers
# shellcheck disable=SC2016  # what stands in single quotes is expanded by mmdebstrap

BASE=docker.io/library/debian:bookworm-slim
TOOLBOX=localhost/apptainer-toolbox
TOOLBOX_SUITE=trixie
# What an official image leaves out as well: documentation, translations, package lists.
LEAN=(--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright'
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*'
      --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*')

quietly() { "$@" > "$WORK/quiet.log" 2>&1; } # for programs, and functions of which nothing is kept

# The stages of CI run beside each other, and apt-get does not wait for another that reads its lists.
APT_LOCK=/var/lock/fcpower_bids.apt

install_tools() {
  local missing=() apt=(apt-get -o DPkg::Lock::Timeout=30 -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
  for tool in buildah podman runc mmdebstrap catatonit netavark uidmap fuse-overlayfs; do
    dpkg -s "$tool" >/dev/null 2>&1 || missing+=("$tool")
  done
  if (( ${#missing[@]} == 0 )); then return; fi
  local code=0
  exec 8> "$APT_LOCK"
  flock -w 300 8 || true
  { quietly timeout 90 "${apt[@]}" update &&
    DEBIAN_FRONTEND=noninteractive quietly timeout -k 10 240 "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
  } 8>&- || code=$?
  exec 8>&-
  return "$code"
}

overlay_works() {
  local trial code=1
  trial=$(mktemp -d -p "$WORK") && mkdir "$trial"/{lower,upper,work,merged} || return
  if quietly mount -t overlay overlay -o "lowerdir=$trial/lower,upperdir=$trial/upper,workdir=$trial/work" "$trial/merged"; then
    umount "$trial/merged"; code=0
  fi
  rm -rf "$trial"
  return "$code"
}

configure_engine() { # for a sandbox: runc, no more limits than there are, storage of our own
  local files procs
  files=$(ulimit -Hn); if [[ $files == unlimited || $files -gt 65536 ]]; then files=65536; fi
  procs=$(ulimit -Hu); if [[ $procs == unlimited || $procs -gt 16384 ]]; then procs=16384; fi
  printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$WORK/storage" "$WORK/run" > "$WORK/storage.conf"
  cat > "$WORK/containers.conf" <<C
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$procs:$procs"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "$WORK/run/libpod"
[network]
network_backend = "netavark"
C
  export CONTAINERS_STORAGE_CONF=$WORK/storage.conf CONTAINERS_CONF=$WORK/containers.conf
  export BUILDAH_ISOLATION=oci BUILDAH_RUNTIME=runc TMPDIR=$WORK/tmp
  quietly timeout 60 podman info || return
  # A stage that was killed leaves containers behind, and every change of the code a few layers.
  timeout 120 podman rm -af >/dev/null 2>&1 || true
  timeout 120 buildah rm -a >/dev/null 2>&1 || true
  if (( $(du -sm "$WORK/storage" | cut -f1) > 15000 )); then
    buildah images -aq --filter "since=$BASE" | xargs -r timeout 300 buildah rmi -f >/dev/null 2>&1 || true
  fi
}

have_image() { buildah images -q "$1" >/dev/null 2>&1; }

import_tar() { # import_tar FILE IMAGE
  local container; container=$(buildah from scratch)
  quietly timeout 120 buildah add -q "$container" "$1" / && buildah config --cmd bash "$container" &&
    quietly timeout 120 buildah commit -q --rm "$container" "$2"
}

obtain_base() { # pulled, else made the way the official image is made
  if have_image "$BASE"; then return; fi
  if quietly timeout 60 buildah pull -q "$BASE"; then return; fi
  local tar=$WORK/tmp/base.tar sources
  sources=$(apt_sources) || return
  apt_options > "$WORK/tmp/apt.opt"
  quietly timeout -k 10 240 mmdebstrap --mode=root --variant=minbase --aptopt="$WORK/tmp/apt.opt" --include=usr-is-merged \
    --hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr "${LEAN[@]}" \
    --customize-hook='rm -rf "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/log/* "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/cache/ldconfig/*' \
    "$SUITE" "$tar" "$sources" && import_tar "$tar" "$BASE" && rm -f "$tar"
}

containers_run() { # as the build does it, and as the tests do
  local container
  container=$(buildah from --pull-never "$BASE") && mkdir -p "$WORK/tmp/overlay" &&
    quietly timeout 60 buildah run --network host --volume "$WORK/tmp/overlay:/root:O" "$container" sh -c 'touch ~root/x' &&
    quietly buildah rm "$container" &&
    quietly timeout 60 podman run --rm --pull never --network none --cap-drop ALL --security-opt no-new-privileges --read-only \
      --tmpfs /tmp:rw,mode=1777 --user 54321:54321 "$BASE" touch /tmp/x
}

index_answers() { # with one small pinned package
  quietly timeout 60 "$PYTHON" -m pip download -q --no-deps --no-cache-dir -d "$WORK/tmp/probe" -c constraints.txt tqdm &&
    rm -rf "$WORK/tmp/probe"
}

index_has_cpu_torch() { # else torch comes from the index of PyTorch: the one on PyPI brings CUDA along
  local pin; pin=$(grep '^torch==' constraints.txt)
  quietly timeout 60 "$PYTHON" -m pip install -q --dry-run --ignore-installed --no-deps --report - "$pin" &&
    grep -q "\"version\": \"${pin#torch==}+cpu\"" "$WORK/quiet.log"
}

build_toolbox() {
  local tar=$WORK/tmp/toolbox.tar sources uri
  sources=$(apt_sources) || return
  uri=$(awk '/^URIs:/ {print $2; exit} $1 == "deb" {for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) {print $i; exit}}' "$sources")
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$uri" "$TOOLBOX_SUITE" "$uri" sid > "$WORK/tmp/toolbox.list"
  printf 'Package: *\nPin: release a=unstable\nPin-Priority: 100\n' > "$WORK/tmp/pin"
  apt_options > "$WORK/tmp/apt.opt"
  quietly timeout -k 10 300 mmdebstrap --mode=root --variant=minbase --aptopt="$WORK/tmp/apt.opt" "${LEAN[@]}" \
    --setup-hook="mkdir -p \"\$1\"/etc/apt/preferences.d; cp '$WORK/tmp/pin' \"\$1\"/etc/apt/preferences.d/sid" \
    --include=ca-certificates,squashfs-tools,fuse3,squashfuse,fuse-overlayfs,fakeroot,uidmap,e2fsprogs,apptainer \
    --customize-hook='chroot "$1" useradd -m -u 1000 hpc; for f in subuid subgid; do printf "root:100000:65536\nhpc:200000:65536\n" > "$1"/etc/$f; done; rm -rf "$1"/var/lib/apt/lists/*' \
    "$TOOLBOX_SUITE" "$tar" "$WORK/tmp/toolbox.list" && import_tar "$tar" "$TOOLBOX" && rm -f "$tar"
}

obtain_apptainer() { # Debian has it in sid alone: a tool image with that one package, and a command that runs it
  if ! command -v apptainer >/dev/null; then
    have_image "$TOOLBOX" || build_toolbox || return
    mkdir -p "$WORK/bin"
    cat > "$WORK/bin/apptainer" <<C
#!/usr/bin/env bash
# apptainer in the tool image: builds as root in a user namespace, runs as the unprivileged user 1000
case \$PWD in "$WORK"/*) ;; *) cd "$WORK" ;; esac
inside() { exec podman run --rm --pull never --privileged --network host --env 'APPTAINERENV_*' -v "$WORK:$WORK" -w "\$PWD" "$TOOLBOX" "\$@"; }
mkdir -p "$WORK/tmp/apptainer"
if [[ \$1 == build ]]; then
  inside env APPTAINER_TMPDIR="$WORK/tmp/apptainer" APPTAINER_CACHEDIR="$WORK/tmp/apptainer" \\
    unshare --user --mount --map-users=0,0,65536 --map-groups=0,0,65536 --setuid 0 --setgid 0 apptainer "\$@"
else
  inside sh -c 'chmod 666 /dev/fuse; mkdir -p /scratch; chmod 1777 /scratch
    exec setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/hpc USER=hpc APPTAINER_TMPDIR=/scratch APPTAINER_CACHEDIR=/scratch apptainer "\$@"' apptainer "\$@"
fi
C
    chmod 755 "$WORK/bin/apptainer"
    PATH=$WORK/bin:$PATH
  fi
  # A trial with the base image: it can be built with a test, and run without network.
  local trial=$WORK/tmp/trial
  rm -rf "$trial"; mkdir -p "$trial"
  printf 'Bootstrap: oci-archive\nFrom: base.tar\n%%test\n    true\n' > "$trial/base.def"
  quietly timeout 60 buildah push -q "$BASE" "oci-archive:$trial/base.tar:latest" && chmod -R a+rX "$trial" &&
    (cd "$trial" && quietly timeout 120 apptainer build --mksquashfs-args "-comp zstd -Xcompression-level 3" base.sif base.def) &&
    quietly timeout 60 apptainer exec --cleanenv --containall --net --network none "$trial/base.sif" true && rm -rf "$trial"
}
