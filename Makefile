# Everything a fresh machine needs is Python 3.11+ and make. The first target that runs builds .venv; later
# ones find the stamp and do not install again until pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
DEMO_STAMP := .venv/.installed-demo
TEACH_STAMP := .venv/.installed-teach
STAMP := .venv/.installed
SLOW_STAMP := .venv/.installed-slow
DOCS_STAMP := .venv/.installed-docs
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo teach test test-slow lint types format docs clean

demo: $(DEMO_STAMP)
	$(BIN)/onebyone demo

# The page with a drawing pad, and digits to try. What you teach stays in the folder `teach`.
teach: $(TEACH_STAMP)
	$(BIN)/onebyone serve --state teach --samples digits --size 8 --gray

test: $(STAMP) lint types
	$(BIN)/pytest -n auto

test-slow: $(SLOW_STAMP)
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

# What the demo needs, so that a newcomer waits no longer than necessary.
$(DEMO_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onebyone needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(INSTALL) '.[research]'
	touch $@

$(TEACH_STAMP): $(DEMO_STAMP)
	$(INSTALL) '.[serve]'
	touch $@

$(STAMP): $(DEMO_STAMP)
	$(INSTALL) '.[dev]'
	touch $@

# The slow tests use real encoders, clusters and trackers, build the site and the wheel, and open pages in a browser.
# pyarrow is for ray.data. axe-core checks the teaching page for people who use a keyboard or a screen reader.
SLOW := alembic build hatchling mlflow-skinny playwright pyarrow sqlalchemy tensorboard timm twine wandb
$(SLOW_STAMP): $(STAMP)
	$(INSTALL) '.[all,docs]' $(SLOW)
	! command -v npm > /dev/null || npm install --silent --no-audit --no-fund --prefix .venv/axe axe-core@4.14.0
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(INSTALL) '.[docs]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist demo site
