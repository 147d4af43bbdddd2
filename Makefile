# Two commands matter: `make run` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Arguments of `make run`, such as LOG=/var/log/nginx/access.log or ARGS="--once --visits 100000".
LOG ?=
ARGS ?=
# Processes of `make test`: two more than there are cores, at least two and at most eight, as far as there are 4 GiB of memory for
# each. Tests often wait: for a death to be noticed, a start, an answer that does not come. Half of them have services of their
# own, each has an engine.
WORKERS ?= $(shell $(PYTHON) -c 'import os; gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30; \
	print(max(2, min(8, (os.cpu_count() or 2) + 2, gib // 4)))')
# One pattern's tests: PATTERN=merger.
PATTERN ?=
TIMINGS := .de/timings
# What shares expensive fixtures stays in one process; the order of the groups is the one of `tests/grouping.py`.
GROUPED = --dist loadgroup --no-loadscope-reorder
WITH_ENGINE = -n $(shell echo $$(( ($(WORKERS) + 1) / 2 ))) $(GROUPED)
# The tests with an engine in the process: the first of the two calls.
OF_ENGINE := tests/unit tests/tables tests/proof tests/graph tests/faults
WITH_SERVICES = -n $(shell echo $$(( $(WORKERS) / 2 ))) $(GROUPED)
# The whole suite leaves the long proofs of `tests/long_proofs.yaml` to `make soak`; ALL=1 has them here.
ALL ?=
CHOSEN = $(if $(PATTERN),--pattern '$(PATTERN)',$(if $(ALL),,--short))
# What fails is run once more, alone, if it lies in so many modules at most; what passes then is told as unsteady.
UNSTEADY ?= 0
CACHE := .de/pytest
# Long proofs with seeds; the same seed goes on where it stopped.
MINUTES ?= 10
SEED ?= 0
export DE_JARS ?= $(CURDIR)/.de/jars

.PHONY: help setup java run test test-unit test-tables soak sabotage lint format bench clean

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

# The engine's classes are kept beside its jars, as this Java and this PySpark have them.
$(DE_JARS)/.ready: de_resources/local/jars.lock de_resources/local/class_archive.py de_resources/local/hadoop_defaults.py \
		de_resources/local/made_jars.py de_resources/local/local_files.py de_resources/local/local_files.scala de_resources/loaded_classes.py requirements.lock | $(VENV)/.ready
	@$(BIN)/de jars
	@touch $@

run: setup       ## Start services, feed them, materialise the graph, serve the UI (LOG=…, ARGS=--once)
	@$(BIN)/de run $(if $(LOG),--log "$(LOG)") $(ARGS)

# Hundreds of processes import the platform, and each would compile it again where the environment forbids to keep the result.
test test-unit test-tables soak: export PYTHONDONTWRITEBYTECODE =

# Classic and Connect sessions do not live in one process, hence two calls of pytest; they run side by side, so that one computes
# while the other waits.
test: setup      ## Run the suite on WORKERS processes (two more than cores, 2 to 8); PATTERN=merger: what proves it; ALL=1: long proofs too
	@rm -rf $(TIMINGS)
	DE_TEST_TIMINGS=$(TIMINGS) $(BIN)/python tests/suite.py $(CACHE) --again $(UNSTEADY) $(if $(PATTERN),--some) \
		--part engine '$(WITH_ENGINE) $(OF_ENGINE)' \
		--part services '$(WITH_SERVICES) tests/services tests/ui' -- $(CHOSEN)
	@$(BIN)/python tests/timings.py $(TIMINGS) .de/test-report
	@sed 's/^/unsteady: /' $(CACHE)/UNSTEADY.txt 2> /dev/null || true

test-unit: setup ## Run the platform's units: functions, frames, messages, commands
	$(BIN)/pytest $(WITH_ENGINE) --short tests/unit

test-tables: setup ## Run the library of tables on real ones: what Spark commits
	$(BIN)/pytest $(WITH_ENGINE) --short tests/tables

soak: setup      ## Repeat the long proofs with ever new seeds: MINUTES=10 SEED=0; the same call goes on where it stopped
	$(BIN)/pytest --soak $$(( ($(MINUTES) + 1) / 2 )) --seed $(SEED) tests/soak $(OF_ENGINE)
	$(BIN)/pytest --soak $$(( ($(MINUTES) + 1) / 2 )) --seed $(SEED) tests/services
	@[ $(MINUTES) -lt 30 ] || $(BIN)/pytest --soak 1 --seed $(SEED) tests/ui

# Resumes where it was interrupted; ARGS="--list", ARGS="merger", ARGS=--without-services.
sabotage: setup  ## Plant every known defect in a copy of the code, and see whether a test notices it
	$(BIN)/python -m tests.sabotage $(ARGS)

lint: setup      ## Style, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup    ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup     ## Measure against the bars, write docs/benchmarks.md
	$(BIN)/python -W ignore -m benchmarks $(ARGS)

clean:           ## Stop services; remove the environment and everything kept under .de
	-@test -x $(BIN)/de && $(BIN)/de down
	rm -rf $(VENV) .de build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
