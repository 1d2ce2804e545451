# Two commands for a fresh machine with Python 3.10 or later:
#   make demo   installs into .venv, makes a small dataset, runs every level on it
#   make test   installs into .venv, runs the tests
# TORCH_INDEX_URL chooses where torch comes from, e.g. https://download.pytorch.org/whl/cpu for a small CPU build.

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX_URL ?=
DEMO ?= demo_output
BIN := $(VENV)/bin
TORCH := $(shell grep '^torch==' constraints.txt)
export OMP_NUM_THREADS = 1

.PHONY: demo test lint install install-test benchmarks clean

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(TORCH)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

install: $(VENV)/installed

install-test: $(VENV)/installed-test

demo: install
	rm -rf $(DEMO)
	$(BIN)/python -m fcpower_bids.demo $(DEMO)/bids
	$(BIN)/fcpower_bids $(DEMO)/bids $(DEMO)/fcpower participant --atlas builtin --strategy 24P
	@echo "Results: $(DEMO)/fcpower   Report: $(DEMO)/fcpower/sub-01.html   Status: $(DEMO)/fcpower/logs/status.tsv"

test: install-test
	$(BIN)/python -m pytest -n 2 -q

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

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
