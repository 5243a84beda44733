# `make demo` and `make test` do all the set-up. Everything is pinned in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -c constraints.txt
export PIP_DEFAULT_TIMEOUT ?= 60

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format bench torture docs results clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "erda needs Python 3.11 or newer; try: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): up to 5 GB, several minutes. The extractor alone is small: pip install ."
	$(INSTALL) setuptools wheel
	$(INSTALL) torch
	$(INSTALL) --no-build-isolation -e '.[dev]' -e packages/erda-mpnet -e packages/erda-peers
	@touch $@

demo: $(STAMP)  ## set up, then five ways to learn the embedded dataset, and an extractor that is taught
	$(BIN)/erda demo

test: $(STAMP)  ## set up, then the tests, but for the long ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not long'

test-all: $(STAMP)  ## every test, also the long ones: many kills, Ray, several processes; new random cases
	HYPOTHESIS_PROFILE=explore OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(STAMP)  ## format, lint, types, direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure the figures of the core on this machine (FewRel: set ERDA_DATA)
	$(BIN)/python benchmarks/core.py

torture: $(STAMP)  ## kills, damaged files, full disks, two at once, hostile names: docs/reliability.md
	$(BIN)/python benchmarks/torture

docs: $(STAMP)  ## write the generated pages, then build the site into build/site
	$(BIN)/python docs/reference.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . build/site
	@echo "build/site/index.html"

results: $(STAMP)  ## rebuild REPRODUCIBILITY.md, docs/beyond.md and the leaderboard from results/
	$(BIN)/python benchmarks/results.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build
