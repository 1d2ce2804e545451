# The image of fcpower_bids: small, without root, any user, read-only, offline. See docs/containers.md.
#   docker build -t fcpower_bids .        or   make image
# No instruction here needs more than Docker 20.10, podman 4 or buildah 1.28.
ARG BASE_IMAGE=debian:bookworm-slim

# ---- python: the interpreter, at the same path in every stage ---------------------------------------------------
FROM ${BASE_IMAGE} AS python
ENV LANG=C.UTF-8 LC_ALL=C.UTF-8 PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*

# ---- deps: the pinned wheels; pip stays in this stage -----------------------------------------------------------
FROM python AS deps
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt requirements.lock ./
# Where torch comes from: https://download.pytorch.org/whl/cu126 makes a GPU image; empty is what pip is configured with.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/fcpower \
 && /opt/fcpower/bin/pip install --no-cache-dir --only-binary :all: ${TORCH_INDEX_URL:+--index-url "${TORCH_INDEX_URL}"} \
    "$(grep '^torch==' constraints.txt)"
# What setup.cfg asks for, file by file (`make lock`). All are wheels but docopt, which is one file of Python.
RUN /opt/fcpower/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: --no-binary docopt -r requirements.lock \
 && /opt/fcpower/bin/pip check \
 && /opt/fcpower/bin/pip list --format=freeze --exclude pip --exclude setuptools > /opt/fcpower/requirements.lock
# What no run needs: the C++ headers and test programs of torch, test suites, pip, setuptools.
# numpy/_core/tests stays because numpy.testing imports it.
RUN cp -a /opt/fcpower /opt/slim \
 && for site in /opt/slim/lib/python3*/site-packages; do \
      rm -rf "$site"/torch/include "$site"/torch/share "$site"/torch/test "$site"/pip "$site"/pip-* "$site"/setuptools \
        "$site"/setuptools-* "$site"/pkg_resources "$site"/_distutils_hack "$site"/distutils-precedence.pth; \
      find "$site"/torch/bin -type f ! -name torch_shm_manager -delete; \
      find "$site" -type d -name tests ! -path '*/numpy/_core/tests' -prune -exec rm -rf {} +; \
    done \
 && rm -f /opt/slim/bin/pip* /opt/slim/bin/[Aa]ctivate*

# ---- package: our files alone, in a tree that is copied over the environment ------------------------------------
FROM deps AS package
COPY . ./
RUN /opt/fcpower/bin/pip install --no-cache-dir --no-deps --prefix=/package . \
 && rm -f /package/lib/python3*/site-packages/fcpower_bids-*.dist-info/direct_url.json

# ---- atlases: fetched here, or a folder given with --build-context atlases=FOLDER -------------------------------
FROM package AS atlases
# Names as for --atlas; empty fetches none, and then a run needs its atlas mounted.
ARG ATLASES=Schaefer400
WORKDIR /atlases/templateflow
RUN for site in /package/lib/python3*/site-packages; do \
      if [ -n "${ATLASES}" ]; then \
        for atlas in ${ATLASES}; do PYTHONPATH="$site" /opt/fcpower/bin/python -m fcpower_bids prefetch --folder . --atlas "$atlas"; done \
      fi \
    done

# ---- final ------------------------------------------------------------------------------------------------------
FROM python AS final
# procps is for joblib, which ends its processes with pgrep. Nobody needs set-user-id programs here.
# The user has a name, but any other number works as well.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends procps \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && useradd --no-create-home --home-dir /tmp --uid 1000 --shell /usr/sbin/nologin fcpower
COPY --from=atlases /atlases/ /opt/
COPY --from=deps /opt/slim /opt/fcpower
# HOME and caches lie in /tmp: the one folder that any user can write to when the root is read-only.
ENV PATH=/opt/fcpower/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp XDG_CACHE_HOME=/tmp/.cache TORCHINDUCTOR_CACHE_DIR=/tmp/.torch \
    TEMPLATEFLOW_HOME=/opt/templateflow TEMPLATEFLOW_AUTOUPDATE=0 \
    NO_ET=1 NIPYPE_NO_ET=1 HF_HUB_DISABLE_TELEMETRY=1 \
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \
    PYTHONSAFEPATH=1 IS_DOCKER_8395080871=1
COPY --from=package /package /opt/fcpower
RUN python -c "import fcpower_bids.workflows.participant, fcpower_bids.encoders.fbert, lightning.fabric, nilearn.image, \
      sklearn.linear_model, huggingface_hub, yaml, jinja2" \
 && rm -rf /tmp/* /tmp/.[!.]*
USER 1000:1000
WORKDIR /tmp
# `docker stop` then ends a run as Ctrl-C does, and the same command goes on where it stopped.
STOPSIGNAL SIGINT
ENTRYPOINT ["/opt/fcpower/bin/fcpower_bids"]
ARG VERSION=0+unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="fcpower_bids" \
      org.opencontainers.image.description="Functional connectomes with a flattened spectrum from fMRIPrep derivatives" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
