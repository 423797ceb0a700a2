# Everything a newcomer needs: `make setup`, `make quickstart` and `make test`. All are safe to repeat.
PYTHON ?= python3
BIN := .venv/bin
# Two torch threads beside another busy process can be many times slower than one.
export OMP_NUM_THREADS ?= 1
# The tests start many processes: compile each file once, not in every process.
unexport PYTHONDONTWRITEBYTECODE
# Files for `make mutants`. Default: all.
FILES ?=
# Time of `make fuzz`, for all readers together.
SECONDS ?= 600

.PHONY: help setup quickstart test slow kill-test mutants docs lint fix fuzz lowest newest audit native wheels release-check clean

help:
	@echo "make setup       install into .venv: the program is then .venv/bin/joao"
	@echo "make quickstart  install into .venv, then pre-train, score, embed and draw on the bundled data set"
	@echo "make test        install into .venv, then run the whole default test suite"
	@echo "make slow        run the slow tests, too"
	@echo "make docs        build the documentation into site: open site/index.html, no network is needed"
	@echo "make kill-test   kill trainings more than a hundred times and resume them (some minutes); writes docs/results/kills.md"
	@echo "make mutants     mutation testing: break the code in more than a thousand places (half an hour or more); writes docs/results/mutants.md"
	@echo "make lint        check format, lint and types;  make fix  repairs what can be repaired"
	@echo "make fuzz        feed the readers with mutated files, guided by coverage (SECONDS=600)"
	@echo "make lowest      run the tests with the lowest versions that are allowed;  make newest  with the newest there are"
	@echo "make native      compile src/joao/kernels/_native again;  make wheels  builds wheels with it into dist"
	@echo "make audit       ask for known vulnerabilities of the pinned versions (needs the network)"
	@echo "make release-check  build wheel and sdist, install them in a bare environment and use them"

.venv/installed: pyproject.toml constraints.txt
	@echo "Setting up a virtual environment in .venv (a few minutes the first time) ..."
	@$(PYTHON) -c "import sys; sys.exit('joao needs Python 3.11 or 3.12, this is ' + sys.version.split()[0] + '. Use: make PYTHON=python3.12') if not (3, 11) <= sys.version_info[:2] <= (3, 12) else None"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev,molecules,baselines]'
	@touch .venv/installed
	@echo "Set up. The program is .venv/bin/joao; after 'source .venv/bin/activate' it is joao."

setup: .venv/installed

quickstart: .venv/installed
	@echo "Pre-training on the data set inside the package ..."
	@$(BIN)/joao quickstart

test: .venv/installed
	@echo "Running the tests (a few minutes) ..."
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

slow: .venv/installed
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --hypothesis-profile thorough

docs: .venv/installed
	@$(BIN)/python docs/build.py site
	@echo "Built: site/index.html"

kill-test: .venv/installed
	@$(BIN)/python -m repro.studies.kills

mutants: .venv/installed
	@$(BIN)/python -m repro.studies.mutants $(FILES)

lint: .venv/installed
	@echo "Checking format, lint and types ..."
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

fix: .venv/installed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

fuzz: .venv/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt '.[fuzz]'
	@$(BIN)/python -m fuzz.run --seconds $(SECONDS)

lowest newest:
	@PYTHON=$(PYTHON) .ci/versions $@

audit:
	@rm -rf build/audit && $(PYTHON) -m venv build/audit
	@build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

native:
	@$(PYTHON) hatch_build.py

wheels:
	@PYTHON=$(PYTHON) .ci/wheels

release-check:
	@PYTHON=$(PYTHON) .ci/release

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
