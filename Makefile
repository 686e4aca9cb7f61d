# Everything a fresh machine needs is Python 3.11+ and make. The first target that runs builds .venv; later
# ones find the stamp and do not install again until pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs

.PHONY: demo test test-slow lint types format docs clean

demo: $(STAMP)
	$(BIN)/onebyone demo

test: $(STAMP) lint types
	$(BIN)/pytest -n auto

test-slow: $(STAMP)
	$(BIN)/pytest -n auto -m slow

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The variable silences a notice of the theme about its successor, which is no warning about these pages.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onebyone needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $(DOCS_STAMP)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist demo site
