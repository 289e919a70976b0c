# `make` lists the targets. Every target sets up what it needs in .venv by itself.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread: bits of a framework's kernels may depend on the thread count.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint types bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --group dev
	@touch $@

demo: $(VENV)/ready ## align a real torch model with its paddle port, from nothing to a report
	$(BIN)/reprod demo --output demo_output

test: $(VENV)/ready lint types ## check style and types, then run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/ready ## check style
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(VENV)/ready ## check types
	$(BIN)/mypy

clean: ## remove what the targets made
	rm -rf $(VENV) demo_output .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
