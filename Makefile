# Everything a newcomer needs: `make setup`, `make quickstart` and `make test`. All are safe to repeat.
PYTHON ?= python3
BIN := .venv/bin
# Two torch threads beside another busy process can be many times slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup quickstart test slow docs lint fix clean

help:
	@echo "make setup       install into .venv: the program is then .venv/bin/joao"
	@echo "make quickstart  install into .venv, then pre-train, score, embed and draw on the bundled data set"
	@echo "make test        install into .venv, then run the whole default test suite"
	@echo "make slow        run the slow tests, too"
	@echo "make docs        build the documentation into site: open site/index.html, no network is needed"
	@echo "make lint        check format, lint and types;  make fix  repairs what can be repaired"

.venv/installed: pyproject.toml constraints.txt
	@echo "Setting up a virtual environment in .venv (a few minutes the first time) ..."
	@$(PYTHON) -c "import sys; sys.exit('joao needs Python 3.11 or 3.12, this is ' + sys.version.split()[0] + '. Use: make PYTHON=python3.12') if not (3, 11) <= sys.version_info[:2] <= (3, 12) else None"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,molecules,baselines]'
	@touch .venv/installed

setup: .venv/installed

quickstart: .venv/installed
	@echo "Pre-training on the data set inside the package ..."
	@$(BIN)/joao quickstart

test: .venv/installed
	@echo "Running the tests (a few minutes) ..."
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

slow: .venv/installed
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal

docs: .venv/installed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Built: site/index.html"

lint: .venv/installed
	@echo "Checking format, lint and types ..."
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

fix: .venv/installed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
