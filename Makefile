# Everything a fresh machine needs is Python 3.11+ and make. The first target that runs builds .venv; later
# ones find the stamp and do not install again until pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint types format clean

demo: $(STAMP)
	$(BIN)/onebyone demo

test: $(STAMP) lint types
	$(BIN)/pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onebyone needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist demo
