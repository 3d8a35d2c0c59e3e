# Two commands do everything on a machine with python3 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
DOCS_READY := $(VENV)/.docs-ready
SOURCES := src tests examples benchmarks tools
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, os.cpu_count() or 1))')
# The order of tests; `make test SEED=…` repeats the order of a run, which prints its command.
SEED := $(shell $(PYTHON) -c 'import random; print(random.randrange(10**6))')
# Tests of tests/integration wait for the processes they start: two for each core.
INTEGRATION_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 2 * (os.cpu_count() or 1)))')

BROWSER_READY := $(VENV)/.browser-ready
STUDIO_STORE := studio.db

.PHONY: demo studio test test-all test-integration test-browser shots studio-build studio-types test-minimum coverage check fix docs pictures bench shape soak \
	interop interop-mcp interop-migration interop-kits interop-phoenix probes release-check clean

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	@touch $(DOCS_READY)

$(DEMO_READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing Baton, its server and an engine for small models into $(VENV); pip says what it downloads'
	$(BIN)/python -m pip install --progress-bar off --editable '.[local,openai,serving]' || $(BIN)/python -m pip install --progress-bar off --editable '.[serving]'
	@touch $(DEMO_READY)

demo: $(DEMO_READY)  ## a handoff, an approval, `kill -9` and a resume in this terminal, then a real model; `make demo MODEL=openai:gpt-5`
	@$(BIN)/baton demo --store demo.db $(if $(MODEL),--model $(MODEL)) $(ARGS)

test: $(READY)  ## the fast tests, in random order: no processes, no servers but our own in this process
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --randomly-seed=$(SEED) --ignore=tests/architecture --ignore=tests/integration $(ARGS)

test-all: export BATON_FOLD_LAW = all
test-all: test test-integration test-minimum test-browser  ## all tests

test-integration: $(READY)  ## tests with processes, PostgreSQL and Temporal
	$(BIN)/python -m pytest -n $(INTEGRATION_WORKERS) --dist loadfile --no-loadscope-reorder --randomly-seed=$(SEED) tests/integration \
		--ignore=tests/integration/browser --ignore=tests/integration/minimum $(ARGS)

studio: $(READY)  ## Studio with the runs of a support desk: completed, suspended, failed, forked, parallel and very long
	@test -f $(STUDIO_STORE) || PYTHONPATH=. $(BIN)/python tests/integration/browser/desk.py $(STUDIO_STORE)
	PYTHONPATH=. $(BIN)/baton studio tests/integration/browser/desk.py:runner $(ARGS)

$(BROWSER_READY): $(READY)
	@test -x /usr/bin/chromium || { echo 'installing chromium with apt'; apt-get update && apt-get install -y chromium; }
	@touch $(BROWSER_READY)

studio/node_modules/.ready: studio/package-lock.json
	# Not `npm ci`: it refuses a lock file without the optional packages of other platforms.
	cd studio && npm install --no-save --no-audit --no-fund
	@touch studio/node_modules/.ready

CHAT_PAGE := examples/protocols/chat_page

$(CHAT_PAGE)/dist/page.js: $(CHAT_PAGE)/page.jsx $(CHAT_PAGE)/package.json
	cd $(CHAT_PAGE) && npm install --no-package-lock --no-audit --no-fund && npm run --silent build

test-browser: $(BROWSER_READY) studio/node_modules/.ready $(CHAT_PAGE)/dist/page.js  ## Studio, with axe, the tutorial's page and the examples' chat page in Debian's chromium; needs node
	$(BIN)/python -m pytest tests/integration/browser $(ARGS)

shots: $(BROWSER_READY)  ## the screenshots of Studio in the docs; look at them
	PYTHONPATH=. $(BIN)/python tests/integration/browser/shots.py

studio-types: $(READY) studio/node_modules/.ready  ## the TypeScript types of the HTTP API
	$(BIN)/python -c 'import json; from batonkit.serve.api.openapi import openapi_document as document; print(json.dumps(document(inspection=True)))' > studio/openapi.json
	cd studio && npm run --silent types

studio-build: studio/node_modules/.ready  ## checks and builds Studio's page into src/batonkit/serve/studio/assets
	cd studio && npm run --silent check && npm run --silent test && npm run --silent build

test-minimum:  ## smoke tests with the lowest versions of all dependencies; `make test-minimum ARGS=postgres` for one extra
	$(PYTHON) tests/integration/minimum/environments.py $(ARGS)

coverage: $(READY)  ## all tests but those of the browser and of minimum versions, with coverage
	$(BIN)/python -m pytest -n $(INTEGRATION_WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/architecture \
		--ignore=tests/integration/browser --ignore=tests/integration/minimum --cov=batonkit --cov-report=term:skip-covered

check: $(READY)  ## format, lint, types, layers, docs fences, examples
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/architecture -n $(WORKERS)

fix: $(READY)  ## format, and fix what the linter can fix
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: $(DOCS_READY)  ## the documentation, into site/
	@output=$$($(BIN)/zensical build --strict --clean 2>&1) || { echo "$$output"; exit 1; }

pictures: $(BROWSER_READY)  ## the terminal session, the diagrams and the card of the docs; fetches Mermaid with npm; look at them
	@test -d .mermaid || npm install --no-save --no-audit --no-fund --prefix .mermaid mermaid@11
	$(BIN)/python -m tools.diagrams.draw .mermaid/node_modules/mermaid/dist/mermaid.min.js
	$(BIN)/python -m tools.card
	$(BIN)/python -m tools.terminal.record

bench: $(READY)  ## ratios to a bare loop; `make bench ARGS='--peers --postgres embedded'` for the whole table
	$(BIN)/python -m benchmarks $(ARGS)

shape: $(READY)  ## sizes, layers, import loops
	$(BIN)/python tests/architecture/shape.py

soak: $(READY)  ## the property tests with random examples, and processes that are killed, for about 40 minutes; prints what was tried
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rP --randomly-seed=$(SEED) tests/integration/soak tests/laws \
		tests/log/test_fold.py tests/integration/serve/a2a/test_replicas.py tests/serve/api/test_openapi.py -p no:cacheprovider $(ARGS)

interop: $(READY)  ## official clients of AG-UI and A2A against our servers, MCP's conformance kit, programs of other frameworks, Phoenix
	PYTHONPATH=. $(BIN)/python tests/interop/agui.py
	PYTHONPATH=. $(BIN)/python tests/interop/a2a_javascript.py
	PYTHONPATH=. $(BIN)/python tests/interop/mcp_kit.py
	$(BIN)/python tests/interop/migration.py
	PYTHONPATH=. $(BIN)/python tests/interop/kits.py
	$(MAKE) interop-phoenix

interop-migration: $(READY)  ## only the programs of the migration pages, each with the framework it is for
	$(BIN)/python tests/interop/migration.py

interop-kits: $(READY)  ## only the programs of the page about other kits, each with the kit it is for
	PYTHONPATH=. $(BIN)/python tests/interop/kits.py

interop-mcp: $(READY)  ## only MCP's conformance kit; `make interop-mcp ARGS=tools_call` shows one scenario
	PYTHONPATH=. $(BIN)/python tests/interop/mcp_kit.py $(ARGS)

interop-phoenix: $(READY)  ## a traced run in Phoenix, read back through its API; `ARGS=trace.png` makes a picture with Chromium
	@test -x .phoenix/bin/phoenix || $(PYTHON) -m venv .phoenix
	.phoenix/bin/python -m pip install --quiet arize-phoenix playwright
	PYTHONPATH=. $(BIN)/python tests/interop/phoenix.py .phoenix $(ARGS)

probes: $(READY)  ## the handoff probes on Baton and other frameworks, which are installed in .peers; `ARGS='--only agno'`
	$(BIN)/python -m benchmarks.contract $(ARGS)

release-check: $(READY)  ## builds sdist and wheel, installs them and follows the README; `PYTHONS='python3.12 python3.13'` adds interpreters
	PYTHONPATH=. $(BIN)/python tests/release/check.py $(PYTHONS)

clean:
	rm -rf studio/node_modules $(CHAT_PAGE)/node_modules $(CHAT_PAGE)/dist $(VENV) .phoenix .minimum .peers .mermaid .cache .pytest_cache .ruff_cache .import_linter_cache \
		.hypothesis .coverage \
		htmlcov site dist
