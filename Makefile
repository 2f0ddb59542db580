# Each target sets up what it needs: a virtual environment in $(VENV), with the package and its locked dependencies.
# Python 3.11 to 3.13; another than `python3` is chosen with  make PYTHON=python3.12 ...

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SET := 3c273_vla_8ghz

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers docs kernels clean

help:
	@echo "make demo    image a real observation of the quasar 3C 273 into demo/"
	@echo "make test    run the tests"
	@echo "make lint    check the style          make types   check the types"
	@echo "make layers  check who imports whom   make docs    write the option reference"
	@echo "make kernels write the wavelets' module"
	@echo "make clean   remove what the others made"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "pfb needs Python 3.11 to 3.13 but $(PYTHON) is $$($(PYTHON) -V 2>&1); choose one with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.tools: setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/.package

demo: $(VENV)/.package
	mkdir -p demo
	tar -xzf examples/data/$(SET).ms.tar.gz -C demo
	$(BIN)/pfb clean demo/$(SET).ms -o demo/3c273 --config examples/clean.yaml --overwrite
	@echo "The picture is demo/3c273-quicklook.png"

test: $(VENV)/.tools
	$(BIN)/python -m pytest

lint: $(VENV)/.tools
	$(BIN)/ruff check .

types: $(VENV)/.tools
	$(BIN)/mypy

layers: $(VENV)/.tools
	$(BIN)/python -m pytest tests/test_layers.py

docs: $(VENV)/.package
	$(BIN)/python docs/options.py

kernels: $(VENV)/.tools
	$(BIN)/python docs/lattice.py

clean:
	rm -rf $(VENV) demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
