# kvlab: install, demo, test. Every target but clean installs what it needs first, once.

PYTHON ?= python3
VENV   ?= .venv
# A CPU build is enough without a GPU and spares gigabytes; on a GPU machine: make install TORCH=torch
TORCH  ?= torch==2.13.0

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test test-all lint clean
.DEFAULT_GOAL := install

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'kvlab needs Python 3.11 or newer: make install PYTHON=python3.11'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo 'This Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv'; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install '$(TORCH)'
	$(BIN)/python -m pip install -e '.[dev]'
	touch $@

demo: install
	$(BIN)/kvlab model fetch
	$(BIN)/kvlab demo

test: lint
	$(BIN)/kvlab model fetch
	$(BIN)/python -m pytest -m 'not slow and not gpu'

test-all: lint
	$(BIN)/kvlab model fetch
	$(BIN)/python -m pytest -m 'not gpu'

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find kvlab widgets tests -name __pycache__ -type d -prune -exec rm -rf {} +
