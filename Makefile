# `make demo` and `make test` do all the set-up. Everything is pinned in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -c constraints.txt
export PIP_DEFAULT_TIMEOUT ?= 60

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format bench torture docs results clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "erda needs Python 3.11 or newer; try: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing the extractor into $(VENV)."
	$(INSTALL) 'setuptools>=77' wheel
	$(INSTALL) --no-build-isolation -e .
	@touch $@

$(STAMP): $(CORE)
	@echo "Installing PyTorch and the tools into $(VENV): up to 5 GB, several minutes."
	$(INSTALL) torch
	$(INSTALL) --no-build-isolation -e '.[dev]' -e packages/erda-mpnet -e packages/erda-peers
	@touch $@

demo: $(CORE)  ## install and teach an extractor, then install PyTorch and compare methods on the embedded dataset
	$(BIN)/erda demo extractor
	@$(MAKE) --no-print-directory $(STAMP)
	$(BIN)/erda demo methods

test: $(STAMP)  ## install, then run the default tests (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not long'

test-all: $(STAMP)  ## run all tests, including the long ones, with new random cases
	HYPOTHESIS_PROFILE=explore OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(STAMP)  ## check format, lint, types, import layers and the size budget
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/lines.py --check

format: $(STAMP)  ## format the code and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure speed and memory on this machine (FewRel: set ERDA_DATA)
	$(BIN)/python benchmarks/core.py

torture: $(STAMP)  ## kill processes, damage files, fill disks: docs/reliability.md (25 minutes)
	$(BIN)/python tests/torture

docs: $(STAMP)  ## write the generated pages and build the site in build/site
	$(BIN)/python docs/reference.py
	$(BIN)/python benchmarks/results.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . build/site
	@echo "build/site/index.html"

results: $(STAMP)  ## rebuild the tables of the documents from the records in results/
	$(BIN)/python benchmarks/results.py

clean:  ## remove the environment, caches and build files
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build
