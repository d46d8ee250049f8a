# Everything a developer or a fresh machine needs. `make demo` and `make test` do all set-up by themselves.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
DURATION ?= 60
WORKERS ?= 1
HOST ?= local
INTAKE ?= driver
KILLS ?= 1000
PAUSE ?= 60
HOURS ?= 4
HOSTILE ?= 1800
RECORDS ?= 1000000
QUERIES ?= 100000
SEEDS ?= 10000
PROCESSES ?= 3
SF ?= 0.1
SEED ?= 1
SOURCES ?= 1
VENV := .venv
BIN := $(VENV)/bin
KERNEL_TESTS := tests/engine/kernels tests/engine/batch tests/engine/trace
PY := $(BIN)/python

KERNELS := $(wildcard engine/kernels/*.py)
$(foreach folder,engine/kernels $(KERNEL_TESTS),$(if $(wildcard $(folder)/*.py),,$(error $(folder) holds no Python file: correct its name in the Makefile)))
HELM_VERSION := v3.22.0
HELM = $(HEADRACE_CACHE)/bin/helm-$(HELM_VERSION)
PROMTOOL = $(HEADRACE_CACHE)/bin/promtool-debian
PROMETHEUS = $(HEADRACE_CACHE)/bin/prometheus-debian

# One place for all that is fetched or generated once (the same rule stands in sidecar/devstack/cache.py).
export HEADRACE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headrace
# Machine code for the generic CPU: a cache filled here is good on any machine of the same architecture.
export NUMBA_CACHE_DIR ?= $(HEADRACE_CACHE)/kernels
export NUMBA_CPU_NAME ?= generic
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without bytecode on disk every start of the program compiles all of its sources anew, which takes longer than the start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: alerts lakes proof proof-suites chart chart-golden oracle datalog tpch help setup jars kernels demo failures test test-fast test-kernels walk crash fence soak hostile mutate fuzz sim sim-guards proofs check format bench bench-peers docs lock lock-jars clean

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(VENV)/.ready ## the virtual environment, from the lock file

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Headrace needs Python 3.11 or newer; name one with make PYTHON=…"; exit 1; }
	@if [ ! -x $(BIN)/pip ]; then \
	  if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv --clear $(VENV); \
	  elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	    $(PYTHON) -m venv --clear --without-pip $(VENV); \
	    sed -n '/^pip==/,/[^\\]$$/p' requirements.lock >$(VENV)/pip.lock; \
	    $(PYTHON) -m pip --python $(PY) install --quiet --no-deps --require-hashes --requirement $(VENV)/pip.lock; \
	  else echo "this Python can make no virtual environment: it has neither ensurepip nor pip. On Debian and Ubuntu: apt-get install python3-venv (or run .ci/run as root, which does)"; exit 1; fi; \
	fi
	$(PY) -m pip install --quiet --require-hashes --requirement requirements.lock
	$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

jars: $(VENV)/.jars ## the jars of Kafka, Connect and Debezium, and their class archives

$(VENV)/.jars: $(VENV)/.ready sidecar/devstack/jars.lock sidecar/devstack/java.py
	$(PY) -m headrace.sidecar.devstack.warm_cache
	@touch $@

kernels: $(VENV)/.kernels ## the numba kernels' machine code

$(VENV)/.kernels: $(VENV)/.ready $(KERNELS)
	$(PY) -c 'from headrace.engine import kernels; kernels.warm()'
	@touch $@

demo: setup jars kernels ## the whole way of a row, live, for DURATION seconds (0: until Ctrl-C), on WORKERS processes, of this machine or of HOST=spark
	$(PY) -m examples.demo --duration $(DURATION) --workers $(WORKERS) --host $(HOST) $(if $(WRONG_DIFF),--wrong-diff)

test: setup ## all tests, with real servers, by PROCESSES processes that have servers each
	@$(MAKE) --no-print-directory --jobs 2 jars kernels
	@mkdir -p build; $(MAKE) --no-print-directory test-kernels >build/test-kernels.log 2>&1 & kernels=$$!; tests=0; \
	$(PY) -m pytest --numprocesses $(PROCESSES) --dist worksteal --durations 60 --durations-min 5 || tests=$$?; \
	wait $$kernels || tests=$$?; cat build/test-kernels.log; exit $$tests

# Kernels that read at addresses (hashing, ordering, seek) are not seen by bounds checks; as plain Python they are run too.
test-kernels: setup kernels ## the kernels' tests with the JIT off, and with bounds checks, side by side
	@NUMBA_DISABLE_JIT=1 $(PY) -m pytest -p no:cacheprovider $(KERNEL_TESTS) -k 'not long_life and not work_of' & plain=$$!; \
	checked=0; NUMBA_BOUNDSCHECK=1 $(PY) -m pytest -p no:cacheprovider $(KERNEL_TESTS) || checked=$$?; \
	wait $$plain; exit $$checked

test-fast: setup kernels ## the tests that start no server
	$(PY) -m pytest --numprocesses $(PROCESSES) --dist worksteal -m 'not servers and not long and not chart and not lakes'

chart: setup $(HELM) $(PROMTOOL) ## the chart by helm and the alerts by promtool; helm is built once, which takes two minutes
	$(PY) -m pytest -m chart tests/helm

chart-golden: setup $(HELM) ## what helm renders of tests/helm/values into tests/helm/golden, and the chart's generated files
	$(PY) -m tests.helm.generate
	$(PY) -m tests.helm.rendering

$(HELM):
	@command -v go >/dev/null || { echo "helm is built from its Go module: install Go 1.26 or newer"; exit 1; }
	@mkdir -p $(@D)/building
	GOBIN=$(abspath $(@D))/building GOFLAGS=-trimpath go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@mv $(@D)/building/helm $@

# Of Debian's package only these programs are taken: nothing is installed and no server starts.
$(PROMTOOL) $(PROMETHEUS):
	@mkdir -p $(@D)/building
	@name=$(patsubst %-debian,%,$(notdir $@)); \
	if command -v $$name >/dev/null; then cp "$$(command -v $$name)" $@; \
	elif command -v apt-get >/dev/null; then \
	  cd $(@D)/building && rm -f prometheus_*.deb && { apt-get download prometheus || { apt-get update -qq && apt-get download prometheus; }; } && \
	  dpkg-deb --extract prometheus_*.deb prometheus && mv prometheus/usr/bin/$$name $(abspath $@) && rm -rf prometheus prometheus_*.deb; \
	else echo "$$name is not here: install Prometheus"; exit 1; fi

# Spark 4.1 and Java 17 stand before the usual Spark on Python's path; they are fetched once, with the jars of Delta and Iceberg.
# pyspark 4.1 leaves sockets of its own to be closed by the garbage collector.
lakes: setup jars kernels ## Delta's and Iceberg's own change feeds, and all other tests of Spark's jobs, on Spark 4.1 with Java 17: half an hour
	for marked in lakes 'not lakes'; do PYTHONPATH="$$($(PY) -m tests.connectors.spark.lakes.environment)" \
	  $(PY) -m pytest -W ignore::ResourceWarning -m "$$marked" tests/connectors/spark || exit 1; done

alerts: setup jars kernels $(PROMETHEUS) ## each alert provoked by its real fault and cleared by the runbook: some fifteen minutes
	$(PY) -m pytest -m long tests/alerts

walk: setup jars kernels ## the product by its command line, as a user goes and as the tutorial says, on the embedded parts: some four minutes
	$(PY) -m pytest -m long tests/sidecar/cli/test_walk.py tests/sidecar/cli/test_tutorial.py

crash: setup jars kernels ## the bank, or with SOURCES=2 two, under KILLS kills, cuts and stalls on real processes, from SEED; HOST=spark: of executors, too; INTAKE=shards: workers read
	$(PY) -m tests.crash.run --kills $(KILLS) --seed $(SEED) --sources $(SOURCES) --host $(HOST) --intake $(INTAKE)

fence: setup jars kernels ## old sidecars frozen at every step for PAUSE seconds beside a new one: not one stale write
	$(PY) -m tests.crash.fence --seconds $(PAUSE)

soak: setup jars kernels ## the bank for HOURS, audited all the while: memory, files and threads must stay flat
	$(PY) -m tests.crash.soak --hours $(HOURS) --seed $(SEED)

hostile: setup jars kernels ## twenty hostile views beside five ordinary ones for HOSTILE seconds: nothing may run away
	$(PY) -m tests.hostile.run --seconds $(HOSTILE) --timing

mutate: setup kernels ## state folders cut, flipped, deleted and swapped: about 250,000 mutations
	$(PY) -m tests.crash.mutate --seed $(SEED)

fuzz: setup kernels ## RECORDS mutations of Debezium's own records, from SEED
	$(PY) -m tests.crash.fuzz --records $(RECORDS) --seed $(SEED)

oracle: setup kernels ## QUERIES drawn from the whole grammar (GRAMMAR=recursive: with WITH RECURSIVE), kept through transactions and compared with Postgres, from SEED
	$(PY) -m tests.oracle.run --queries $(QUERIES) --seed $(SEED) --processes $(PROCESSES) $(if $(GO_ON),--go-on) $(if $(GRAMMAR),--grammar $(GRAMMAR))

datalog: setup ## Datalog programs drawn at random, PROGRAMS of them from SEED on, against a loop in Postgres
	$(PY) -m tests.oracle.datalog_postgres --programs $(or $(PROGRAMS),1000) --seed $(or $(SEED),0)

proof-suites: setup kernels ## Public suites under SUITES=FOLDER (a clone of Soufflé, Postgres's with.sql): equal, refused by name, different
	$(PY) -m tests.proof_suites $(SUITES) --seed $(SEED)

tpch: setup kernels ## TPC-H's 22 views, or VIEWS=12-22 of them, at scale SF through loading and refreshes, compared with Postgres, from SEED
	$(PY) -m tests.oracle.tpch --scale $(SF) --seed $(SEED) $(if $(VIEWS),--views $(VIEWS))

sim: setup kernels ## SEEDS simulated lives from SEED, each with its own faults; SEEDS=1 SEED=n plays one again
	$(PY) -m tests.sim.run --seeds $(SEEDS) --seed $(SEED) --keep

sim-guards: setup kernels ## every fsync, fence, dedupe and order taken away alone: the simulator must fail
	$(PY) -m tests.sim.guards

proofs: setup ## the last counts of sim, crash, mutate and fuzz into docs/proofs.md
	$(PY) -m tests.crash.counts

failures: setup jars kernels ## what may fail on Spark: machines, drivers, masters, stores, the network between them
	$(PY) -m pytest -m long tests/sidecar/execution

proof: setup jars kernels chart alerts walk lakes ## what proves rather than tests, all of it: many hours
	$(PY) -m pytest -m 'long' --ignore tests/alerts --ignore tests/sidecar/cli/test_walk.py
	for of in sim sim-guards mutate fuzz crash fence hostile oracle tpch soak; do $(MAKE) $$of; done
	$(MAKE) oracle GRAMMAR=recursive QUERIES=10000
	$(MAKE) crash HOST=spark KILLS=300
	$(MAKE) proofs

check: setup ## lint, format, strict types, import laws, words, the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PY) -m tests.docs_build.words
	$(BIN)/hadolint Dockerfile

format: setup ## rewrite the sources as `check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup jars kernels ## all benchmarks, one after the other; results in build/bench
	@for file in tests/bench/bench_*.py; do $(PY) -m "tests.bench.$$(basename $$file .py)"; done

bench-%: setup jars kernels ## one benchmark: make bench-freshness
	$(PY) -m tests.bench.bench_$(subst -,_,$*)

bench-peers: setup ## the peers that benchmarks are measured beside (the crates need cargo, dbsp Rust 1.93; Pathway takes 1.6 GB, Flink 0.6)
	$(PY) -m tests.bench.peers.crate
	$(PY) -m tests.bench.peers.pathway
	$(PY) -m tests.bench.peers.flink

docs: setup ## the generated pages and figures of the documentation
	$(PY) -m tests.docs_build
	$(PY) -m tests.engine.page
	$(PY) -m tests.helm.generate

lock: setup ## resolve the dependencies anew and write the lock files
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --strip-extras --all-extras --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --strip-extras --no-annotate --extra s3 --constraint requirements.lock --output-file requirements-run.lock pyproject.toml

lock-jars: setup ## resolve the jars anew and write sidecar/devstack/jars.lock (needs Maven)
	$(PY) -m headrace.sidecar.devstack.jars --lock

clean: ## remove what was built here; the cache of jars and kernels stays
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
