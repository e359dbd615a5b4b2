# Two commands need nothing but Python 3.11 or newer and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo dev test test-pg18 test-pg16 test-n8n lint bench db-dump architecture lock clean

help: ## Show what can be made
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1|\2/' | column -t -s '|'

setup: $(VENV)/ready ## Make .venv with everything in it

$(VENV)/ready: requirements/run.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vestnik needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## Play the demo: the whole service on emulated platforms
	@# Ctrl-C is how one leaves it.
	@trap : INT; $(BIN)/vestnik demo || [ $$? -eq 130 ]

dev: setup ## Run the service with what .env says
	@$(BIN)/vestnik up

test: setup lint test-pg18 test-pg16 ## Run every check and every test

test-pg18:
	$(BIN)/python -m pytest -n 2

test-pg16: ## The SQL once more, on PostgreSQL 16 and without a locale
	env -u LC_ALL LANG=C VESTNIK_TEST_PG=16 $(BIN)/python -m pytest -n 2 -m pg16

test-n8n: setup ## The workflows in a real n8n: 2.4 GB into ~/.cache/vestnik, some minutes
	folder=$$($(BIN)/python tests/n8n/real/install.py) && VESTNIK_TEST_N8N="$$folder" $(BIN)/python -m pytest -n 0 tests/n8n/real

lint: setup ## Style, types, dependency direction
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Measure: make bench NAME=drain
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@$(BIN)/vestnik bench $(or $(NAME),drain) --json

db-dump: setup ## Write db/schema.sql anew
	$(BIN)/python -m vestnik.db.dump

architecture: ## Draw docs/architecture.png from docs/architecture.svg (Debian: chromium, fonts-inter)
	@profile=$$(mktemp -d) && chromium --headless --no-sandbox --disable-gpu --disable-background-networking \
		--disable-component-update --disable-sync --no-first-run --user-data-dir="$$profile" --hide-scrollbars \
		--force-device-scale-factor=2 --window-size=1120,596 --screenshot=docs/architecture.png \
		"file://$(CURDIR)/docs/architecture.svg" 2>/dev/null; status=$$?; rm -rf "$$profile"; exit $$status

lock: setup ## Write the locked requirements anew, from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) --output-file requirements/run.txt pyproject.toml
	$(LOCK) --extra dev --output-file requirements/dev.txt pyproject.toml
	$(LOCK) --extra dev --extra bench --output-file requirements/bench.txt pyproject.toml

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

clean: ## Remove what was made, but not the data
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
