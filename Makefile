# Two commands for a newcomer: `make demo` and `make test`. Both make .venv in this checkout first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The devkit needs numpy below 2, so it cannot live beside merope.
NUSCENES_VENV := .venv-nuscenes
WORKERS ?= 2
DEMO_ARGS ?=
FUZZ_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types pytest fuzz crosscheck clean

help:
	@echo "make demo     install into $(VENV), then generate a street video along a commanded drive and score it"
	@echo "              (DEMO_ARGS='--trajectory FILE --format kitti' for a drive of your own)"
	@echo "make test     install into $(VENV), then format check, lint, types and tests"
	@echo "make lint     format check, lint and types alone"
	@echo "make fuzz     install into $(VENV), then 10 000 damaged files of every pose format; long"
	@echo "              (FUZZ_ARGS='--format kitti --count 500 --seed 1' for some)"
	@echo "make crosscheck  install the official nuScenes devkit into $(NUSCENES_VENV), and compare its cameras with ours"
	@echo "make format   rewrite files the way 'make lint' wants them"
	@echo "make clean    remove both environments and every cache"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "merope needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# A stamp per set of extras: installed again only when the lists of packages change.
$(VENV)/.stamp-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing merope and what the demo needs (once; a few minutes) ..."
	$(PIP) -e ".[demo]"
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing merope and what its tests need (once; a few minutes) ..."
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.stamp-demo

demo: $(VENV)/.stamp-demo
	$(BIN)/merope demo $(DEMO_ARGS)

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory types

types: $(VENV)/.stamp-dev
	$(BIN)/mypy -p merope

format: $(VENV)/.stamp-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pytest: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -q -n $(WORKERS)

test: lint pytest

# tests/fuzz/test_sample.py has every planned mutation once.
fuzz: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

$(NUSCENES_VENV)/.stamp:
	$(PYTHON) -m venv $(NUSCENES_VENV)
	$(NUSCENES_VENV)/bin/python -m pip install --quiet --disable-pip-version-check "nuscenes-devkit==1.2.0"
	@touch $@

crosscheck: $(VENV)/.stamp-dev $(NUSCENES_VENV)/.stamp
	$(BIN)/python -m pytest -q tests/data/datasets/test_nuscenes_devkit.py

clean:
	rm -rf $(VENV) $(NUSCENES_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
