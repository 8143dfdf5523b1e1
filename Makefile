# Two commands do all set-up: `make demo` and `make test`. Each makes its own virtual environment.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_FLAGS := $(if $(wildcard $(CONSTRAINTS)),-c $(CONSTRAINTS),)
EXTRAS ?= dev
# With constraints, as in CI, also what the tests of the extras take (a Dask cluster, an S3 server, MPI).
COMMA := ,
CI_EXTRA := $(if $(CONSTRAINTS),$(COMMA)ci,)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all soak damages check bench fuzz clean

help: ## list what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml setup.py $(wildcard traceanalyzer/ingest/_scan*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -e '.[$(EXTRAS)$(CI_EXTRA)]'
	@touch $@

demo: $(STAMP) ## print the top kernels of the bundled real traces, and what is wrong in each
	$(BIN)/traceanalyze top-kernels sample_traces/sparse-eager/*.trace.json.gz --limit 8
	@echo
	$(BIN)/traceanalyze top-kernels sample_traces/cast-eager/*.trace.json.gz --limit 8
	@echo
	$(BIN)/traceanalyze top-kernels sample_traces/mask-64k-eager/*.trace.json.gz --limit 8
	@echo
	$(BIN)/traceanalyze findings sample_traces/sparse-eager sample_traces/cast-eager sample_traces/mask-64k-eager

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: $(STAMP) ## run the tests, on every trace of the corpus where it is present
	TRACEANALYZER_EXHAUSTIVE=1 $(BIN)/python -m pytest -n auto --dist worksteal

soak: $(STAMP) ## run the property tests with 1,000 random examples each (SEED=7: those of a seed)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m hypothesis -n auto $(if $(SEED),--hypothesis-seed=$(SEED)) $(SOAK)

check: $(STAMP) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: ## fuzz the native scanner under sanitizers (needs clang)
	fuzz/run.sh

damages: $(STAMP) ## damage small real traces in every way, 1,000 times each, and check what is read
	POLARS_MAX_THREADS=1 $(BIN)/python fuzz/damages.py $(DAMAGES)

bench: $(STAMP) ## measure the reader against named peers
	$(BIN)/python benchmarks/read_bench.py $(BENCH)
	$(BIN)/python benchmarks/start_bench.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
