# Two commands matter: `make run` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Arguments of `make run`, such as LOG=/var/log/nginx/access.log or ARGS="--once --visits 100000".
LOG ?=
ARGS ?=
# Processes of the part of `make test` that starts no services, each with an engine of its own; a module's tests stay together.
WORKERS ?= 2
PARALLEL = -n $(WORKERS) --dist loadfile
export DE_JARS ?= $(CURDIR)/.de/jars

.PHONY: help setup java run test test-unit lint format bench clean

help:            ## Show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 16

setup: java $(VENV)/.ready $(DE_JARS)/.ready  ## Install what a fresh machine lacks: JDK, environment, jars

java:
	@command -v java > /dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing a Java runtime"; apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless > /dev/null; \
	else \
		echo "Java 17 or newer is missing. Install it: sudo apt-get install openjdk-17-jre-headless (Debian, Ubuntu)," \
		     "sudo dnf install java-17-openjdk-headless (Fedora), brew install openjdk@17 (macOS)."; exit 1; \
	fi

$(VENV)/.ready: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the Python environment (some minutes on a fresh machine)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(DE_JARS)/.ready: de_resources/local/jars.lock | $(VENV)/.ready
	@$(BIN)/de jars
	@touch $@

run: setup       ## Start services, feed them, materialise the graph, serve the UI (LOG=…, ARGS=--once)
	@$(BIN)/de run $(if $(LOG),--log "$(LOG)") $(ARGS)

# Classic and Connect sessions do not live in one process, hence two.
test: setup      ## Run the whole suite, what starts no services on WORKERS processes (2)
	$(BIN)/pytest $(PARALLEL) tests/unit tests/graph tests/faults
	$(BIN)/pytest tests/services tests/ui

test-unit: setup ## Run the part that starts no service
	$(BIN)/pytest tests/unit

lint: setup      ## Style, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup    ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup     ## Measure against the bars, write docs/benchmarks.md
	$(BIN)/python -m benchmarks $(ARGS)

clean:           ## Stop services; remove the environment and everything kept under .de
	-@test -x $(BIN)/de && $(BIN)/de down
	rm -rf $(VENV) .de build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
