# Everything a contributor runs. `make` alone lists the targets; each sets up what it needs, in .venv.

# The interpreters to try, in order; the first that is new enough and has venv wins. `make PYTHON=/some/python3.12 test`
# names one.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
FUZZ_SECONDS ?= 60
CHAOS_SECONDS ?= 600
PORT ?= 8000
# Of `make test-agents`: names of agents and habits (all), the ways to the server, and how many agents run at once.
AGENTS ?=
HABITS ?=
ROUTES ?= gateway
JOBS ?= 2
PYTEST_ARGS ?=
# Many tests wait for a process or a timer: more of them than cores at once keep the cores busy.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) * 2 )))

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
INSTALL := $(PIP) --quiet --quiet --editable
CLI := $(VENV)/.installed-cli
DEV := $(VENV)/.installed-dev
FUZZ := $(VENV)/.installed-fuzz
DOCS := $(VENV)/.installed-docs
RELEASE := $(VENV)/.installed-release
QUICK := tests/project/test_layers.py tests/framing/test_framing.py tests/wires/test_laws.py tests/dialects/test_texts.py tests/run/test_run.py \
    tests/agent/test_agent.py tests/model/test_model.py tests/history/test_history.py -k 'not cut and not prefix'
# The parts that use the optional packages; the tests need nothing but these and pytest.
LOWEST := tests/asgi tests/serve/test_serve.py tests/cli/test_shown_runs.py
FUZZ_TARGETS = $(sort $(wildcard tests/fuzz/fuzz_*.py))
SOURCES = $(wildcard src tests benchmarks examples)

say = @printf '==> %s\n'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo picture screenshots site site-serve test test-again test-clients test-agents test-lowest lock release release-files quick test-all pytest check format fuzz chaos siege soak same walk bench clean api test-prefix

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(CLI) ## watch an agent at work with a simulated provider: no key, no network; ARGS="--wire gemini"
	@$(BIN)/python -m penstock.cli demo $(ARGS)

picture: $(CLI) ## draw docs/demo.svg and docs/crash.svg from runs of the demos
	@$(BIN)/python docs/picture.py

screenshots: $(DEV) ## make docs/chat-page.png and docs/inspector.png from real runs, in Chromium (after make test-clients)
	@$(BIN)/python -m tests.clients.pictures

site: $(DOCS) ## build docs/ as a site; broken links are errors
	@$(BIN)/python -m tests.site
	@$(BIN)/zensical build --strict
	@echo "'make site-serve' shows it in a browser; search needs that server."

site-serve: site ## build docs/ and serve it on http://127.0.0.1:8000 (PORT=8000)
	@echo 'Serving on http://127.0.0.1:$(PORT), Ctrl-C stops it.'
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(PORT)

quick: $(DEV) ## the tests that find most mistakes, in under a minute
	@$(BIN)/python -m pytest --quiet --numprocesses auto $(QUICK) $(PYTEST_ARGS)

test-all: ## all tests on each Python from 3.11 to 3.14 that this machine has; THOROUGH=1 tries every case
	@for version in 3.11 3.12 3.13 3.14; do \
	    found=; \
	    for python in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	        "$$python" -c 'import venv, ensurepip' 2>/dev/null && found=$$python && break; \
	    done; \
	    if [ -z "$$found" ]; then echo "==> Python $$version: not on this machine, skipped"; continue; fi; \
	    echo "==> Python $$version"; \
	    $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$found" pytest || exit 1; \
	done

test-lowest: $(DEV) ## the quick tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	@$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python .venv-lowest
	@$(BIN)/python -m uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable '.[all]'
	@$(BIN)/python -m uv pip install --quiet --python .venv-lowest 'pytest>=9.0' 'pytest-xdist>=3.8' 'hypothesis>=6.150'
	@$(BIN)/python -m uv pip list --quiet --python .venv-lowest
	@.venv-lowest/bin/python -m pytest --quiet --numprocesses auto $(LOWEST) $(QUICK) $(PYTEST_ARGS)

lock: $(DEV) ## write requirements.lock: the versions and hashes of what the extra `all` installs
	@$(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --extra all --generate-hashes --upgrade \
	    --no-header --no-emit-index-url --no-emit-find-links --output-file requirements.lock pyproject.toml

release: ## build wheel, sdist and bill of materials in dist/, and check them; nothing is uploaded
	@$(MAKE) --no-print-directory VENV=.venv-release release-files

release-files: $(RELEASE)
	@$(BIN)/python -m tests.release

pytest: $(DEV)
	@$(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test: check ## everything: the checks, then all tests
	$(say) 'pytest'
	@$(MAKE) --no-print-directory pytest

test-clients: $(DEV) ## real clients of a served agent, from npm: the AI SDK, AG-UI, a browser
	@$(BIN)/python -m pytest --quiet tests/clients $(PYTEST_ARGS)

test-agents: $(DEV) ## nine real coding agents through the gateway, from npm (2.3 GB, about 15 minutes); AGENTS=… HABITS=…
	@$(BIN)/python -m tests.agents --agents "$(AGENTS)" --habits "$(HABITS)" --routes "$(ROUTES)" --jobs $(JOBS) \
	    $(if $(AGAIN),--again) $(if $(WRITE),--write)

test-prefix: $(DEV) ## a session of a hundred steps of each agent: is the history upstream an exact prefix? AGENTS=…
	@$(BIN)/python -m tests.agents.prefix --agents "$(AGENTS)" --jobs $(JOBS) $(if $(WRITE),--write)

test-again: check ## the checks, then the tests that failed last, one after the other
	$(say) 'pytest, the tests that failed'
	@$(BIN)/python -m pytest --quiet --last-failed --last-failed-no-failures none $(PYTEST_ARGS)

check: $(DEV) ## format, lint and types (ruff, mypy, pyright)
	$(say) 'ruff format'
	@$(BIN)/ruff format --quiet --check . || { echo "'make format' puts this right."; exit 1; }
	$(say) 'ruff check'
	@$(BIN)/ruff check --quiet .
	$(say) 'mypy'
	@$(BIN)/mypy
	$(say) 'pyright'
	@$(BIN)/pyright

format: $(DEV) ## write what repeats the code, format it, and fix the lint that can be fixed
	@$(BIN)/python -m tests.declared_options
	@$(BIN)/python -m tests.known_models
	@$(BIN)/python -m tests.reference_tables
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

fuzz: $(FUZZ) ## damaged streams, random runs and orders of calls, changed states, and the atheris targets of tests/fuzz, FUZZ_SECONDS (60) each
	@for name in fuzz.streams fuzz.runs fuzz.states call_orders; do \
	    printf '==> %s, %s seconds\n' $$name $(FUZZ_SECONDS); \
	    $(BIN)/python -m tests.$$name --seconds $(FUZZ_SECONDS) || exit 1; \
	done
	@test -n '$(FUZZ_TARGETS)' || { echo 'tests/fuzz has no fuzz_*.py' >&2; exit 1; }
	@for target in $(FUZZ_TARGETS); do \
	    name=$$(basename $$target .py); \
	    printf '==> %s, %s seconds\n' $$name $(FUZZ_SECONDS); \
	    mkdir -p .fuzz/$$name/corpus; \
	    $(BIN)/python $$target -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=.fuzz/$$name/ .fuzz/$$name/corpus \
	        || exit 1; \
	done

chaos: $(DEV) ## kill and freeze workers, kill, restart and restore databases for CHAOS_SECONDS (600), and print what was seen
	@$(BIN)/python -m tests.chaos --seconds $(CHAOS_SECONDS)

siege: $(DEV) ## attack the servers, with a good client beside each attack (five minutes)
	@$(BIN)/python -m tests.siege

soak: $(DEV) ## 10,000 runs in one process, a tenth of them interrupted: nothing grows, nothing is left
	@$(BIN)/python -m tests.soak

same: $(DEV) ## compare events, bytes, requests and stored runs with those of another commit: make same BASE=commit
	@test -n '$(BASE)' || { echo 'make same BASE=commit' >&2; exit 1; }
	@$(BIN)/python -m tests.same $(BASE) $(ARGS)

api: $(DEV) ## compare public names and signatures with the last release, and print what changed
	@$(BIN)/python -m tests.public_api

walk: $(DEV) ## show which functions a text chunk passes on six paths, from the socket to its reader; fails over budget
	@$(BIN)/python -m benchmarks.walk

bench: $(DEV) ## measure, as ratios to the cost of parsing the JSON; PEERS=1: other libraries too
	@$(BIN)/python -m benchmarks $(if $(PEERS),all)

clean: ## remove everything that these targets created
	rm -rf $(VENV) .venv-3.* .venv-lowest .venv-release .bench .cache .fuzz .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(CLI): pyproject.toml | $(BIN)/pip
	$(say) 'installing penstock and its command line… (half a minute the first time)'
	@$(INSTALL) '.[cli]'
	@touch $@

$(DEV): pyproject.toml | $(BIN)/pip
	$(say) 'installing development tools… (a minute or two the first time)'
	@$(INSTALL) '.[dev]'
	@touch $(CLI) $@

$(FUZZ): pyproject.toml | $(BIN)/pip
	$(say) 'installing development tools and the fuzzer…'
	@$(INSTALL) '.[fuzz]'
	@touch $(CLI) $(DEV) $@

$(RELEASE): pyproject.toml | $(BIN)/pip
	$(say) 'installing what builds and checks a release…'
	@$(PIP) --quiet --quiet --editable '.[release]'
	@touch $@

$(DOCS): pyproject.toml | $(BIN)/pip
	$(say) 'installing the generator of the site…'
	@$(INSTALL) '.[docs]'
	@touch $@

# bin/pip, because venv writes it last: an incomplete environment is created again.
$(BIN)/pip:
	@for python in $(PYTHON); do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        printf '==> creating %s with %s (%s)\n' $(VENV) $$python "$$($$python --version)"; \
	        exec $$python -m venv --clear --upgrade-deps $(VENV); \
	    fi; \
	done; \
	{ \
	    echo 'Penstock needs Python 3.11 or newer, with its venv module. Looked for: $(PYTHON)'; \
	    for python in $(PYTHON); do \
	        version=$$($$python -c 'import sys; print(sys.version.split()[0])' 2>/dev/null) || continue; \
	        $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' && fault='has no venv' || fault='is too old'; \
	        echo "  found $$python, which is Python $$version and $$fault"; \
	    done; \
	    echo 'If it has no venv: on Debian and Ubuntu, apt install python3-venv.'; \
	    echo 'If it is too old or missing: install a newer one, or name one: make PYTHON=/path/to/python3.12 test'; \
	} >&2; \
	exit 1
