# The whole contributor interface. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# Where this is set, each of the hundreds of processes that tests start compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
WHEELS := $(VENV)/wheels
# One more than the reference machine has cores: stories on a real control plane wait more than they compute.
WORKERS ?= 3
NEEDS_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Forebay needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12" >&2; exit 1; }

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: env
env: $(STAMP) $(WHEELS) ## create .venv from the hash-locked requirements

$(STAMP): requirements/uv.txt requirements/dev.txt pyproject.toml
	@$(NEEDS_PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	@$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements/uv.txt requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# What the image is made of, by hash: its test does the Dockerfile's steps from here, whatever is in anybody's cache.
$(WHEELS): requirements/run.txt requirements/build.txt | $(STAMP)
	@rm -rf $@ $@.new
	@if $(BIN)/python -m pip download --quiet --require-hashes --no-deps --only-binary=:all: --dest $@.new $(^:%=-r %); \
		then mv $@.new $@ && touch $@; \
		else echo "The wheels of the image could not be fetched, so its tests will not run. To try again: make env" >&2; [ "$$CI" != true ]; fi

.PHONY: demo
demo: $(VENV)-run/.stamp ## everything on this machine: no cluster, no account
	@$(VENV)-run/bin/forebay demo
	@echo "To go on with the command: $(VENV)-run/bin/forebay --help, or to have it everywhere: uv tool install '.[embedded]' (or pipx install)"

# What the command runs with, and nothing of what it is developed with: half the size of .venv.
$(VENV)-run/.stamp: requirements/demo.txt requirements/build.txt pyproject.toml
	@$(NEEDS_PYTHON)
	@echo "Installing Forebay into $(VENV)-run, once. This takes about a minute."
	@test -x $(VENV)-run/bin/python || $(PYTHON) -m venv $(VENV)-run
	@$(VENV)-run/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r requirements/demo.txt -r requirements/build.txt
	@$(VENV)-run/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: test
test: env ## run all tests; the first time builds a real control plane (about 9 minutes)
	@$(BIN)/python -m tests.rig.build || [ "$$CI" != true ]
	@tests/install-kubectl
	@tests/install-programs
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not parts"

.PHONY: parts
parts: env ## what machines boot, shown to the programs that read it: Talos, kubeadm, cloud-init, shellcheck, Headscale, tailscaled (first run: about 9 minutes)
	@$(BIN)/python -m tests.parts.build $(if $(filter small,$(FOREBAY_PARTS)),--small) || [ "$$CI" != true ]
	@$(BIN)/python -m pytest -q tests/parts

.PHONY: quick
quick: env ## run the tests that need nothing but `make env`
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not cluster and not kubectl and not parts"

.PHONY: rig
rig: env ## find or build the real control plane that tests run against
	@$(BIN)/python -m tests.rig.build

.PHONY: matrix
matrix: env ## the suites that need a control plane, on the oldest Kubernetes that Forebay supports (its first run builds it)
	@FOREBAY_RIG_KUBERNETES=1.34 $(BIN)/python -m tests.rig.build
	@FOREBAY_RIG_KUBERNETES=1.34 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m cluster tests/contract tests/cluster tests/rig

.PHONY: soak
soak: env ## the leader test 50 times in a row, on a real API server
	@$(BIN)/python -m tests.cluster.soak 50

.PHONY: bars
bars: env ## the stories on a real control plane in their full size: 120 nodes of a group, a hundred pods on three clouds, the predecessors' examples
	@$(BIN)/python -m tests.rig.build
	@FOREBAY_BARS=full $(BIN)/python -m pytest -q -s tests/cluster/test_groups.py tests/cluster/test_pools.py tests/cluster/test_migrated.py

.PHONY: bars-offload
bars-offload: env ## fifty Jobs at RunPod's conformance server end as on a node: undisturbed, then with kills and faults
	@$(BIN)/python -m tests.rig.build
	@$(BIN)/python bench/same_as_local.py --calm
	@$(BIN)/python bench/same_as_local.py

.PHONY: coverage
coverage: env kubectl ## run the tests and report what they do not reach
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest
	@$(BIN)/coverage report

EACH ?= 25
SEED ?= 1
.PHONY: mutants
mutants: env ## put small faults into the core rooms (EACH=25 a room, SEED=1) and see whether the tests notice
	@$(BIN)/python -m tests.mutants --each $(EACH) --seed $(SEED) $(OPTS)

.PHONY: deep
deep: env ## the laws with many more examples, 10,000 random crash worlds among them, in 10 slices (SEED= SLICE=3-5 PART=worlds LAW=)
	@$(BIN)/python -m tests.deep --workers $(WORKERS) $(if $(filter-out file,$(origin SEED)),--seed $(SEED)) $(if $(SLICE),--slice $(SLICE)) $(if $(PART),--part $(PART)) $(if $(LAW),--law $(LAW))

.PHONY: kubectl
kubectl: env # the kubectl that tests drive: the machine's, else Debian's
	@tests/install-kubectl

.PHONY: check
check: env ## format, lint, types, contracts, generated files up to date
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@PYTHONPATH=src $(BIN)/lint-imports --no-logo
	@$(MAKE) --no-print-directory generate OPTS=--check
	@$(BIN)/python -m tests.dependency_audit

.PHONY: audit
audit: env ## ask osv.dev about known vulnerabilities of the locked dependencies (also part of check)
	@$(BIN)/python -m tests.dependency_audit

.PHONY: format
format: env ## format the code and apply safe lint fixes
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

.PHONY: generate
generate: env ## write the generated files (CRDs, reference pages)
	@$(BIN)/python -m docs.generate $(OPTS)

.PHONY: bench
bench: $(VENV)-bench/.stamp ## run the benchmarks against the peers
	@for b in $$(grep -l '^if __name__' bench/*.py); do echo "== $$b"; $(VENV)-bench/bin/python $$b || exit 1; done

.PHONY: bench-budgets
bench-budgets: env ## budgets: accuracy, cost and size, also on a real control plane
	@$(BIN)/python -m tests.rig.build
	@$(BIN)/python bench/budgets.py --only philly --only assess --only month --only bench --only bench-deleted --only admission

.PHONY: chaos-budgets
chaos-budgets: env ## budgets: accuracy while the operator is killed, on a real control plane
	@$(BIN)/python -m tests.rig.build
	@$(BIN)/python bench/budgets.py --only chaos --only down --only kill

$(VENV)-bench/.stamp: $(STAMP) requirements/bench.txt
	@test -x $(VENV)-bench/bin/python || $(PYTHON) -m venv $(VENV)-bench
	@$(BIN)/uv pip sync --quiet --require-hashes --python $(VENV)-bench/bin/python requirements/bench.txt
	@$(BIN)/uv pip install --quiet --python $(VENV)-bench/bin/python --no-deps -e . --no-build-isolation
	@touch $@

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --upgrade
.PHONY: lock
lock: env ## refresh the hash-locked requirements
	@echo uv | $(LOCK) - -o requirements/uv.txt
	@$(LOCK) pyproject.toml --extra fast -o requirements/run.txt
	@$(LOCK) pyproject.toml --extra embedded --extra fast --extra otel --extra plots --extra sentry --group dev -o requirements/dev.txt
	@$(LOCK) pyproject.toml --extra fast --extra otel --extra sentry --constraint requirements/dev.txt -o requirements/telemetry.txt
	@$(LOCK) pyproject.toml --extra embedded --extra fast --constraint requirements/dev.txt -o requirements/demo.txt
	@echo hatchling | $(LOCK) - --constraint requirements/dev.txt -o requirements/build.txt
	@$(LOCK) pyproject.toml --extra embedded --extra fast --group dev --group bench -o requirements/bench.txt

IMAGE ?= forebay
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/forebay/__init__.py)
TAG ?= $(VERSION)
.PHONY: tagged
tagged: ## is TAG the version of the package? Wheel, image and chart of a release have one version
	@[ "$(TAG)" = "$(VERSION)" ] || { echo "The tag is $(TAG) and src/forebay/__init__.py says $(VERSION): change one of them, and run make generate." >&2; exit 1; }

.PHONY: wheel
wheel: env ## build the package's wheel and source archive into dist/
	@$(BIN)/uv build --quiet --require-hashes --build-constraint requirements/build.txt --out-dir dist .

.PHONY: image
image: ## build the operator's image (IMAGE=forebay, TAG= the version) with docker
	@docker build --tag $(IMAGE):$(TAG) .

.PHONY: chart
chart: env ## package the Helm chart into dist/
	@$(BIN)/helm package --destination dist deploy/helm/forebay

.PHONY: clean
clean: ## remove what make created
	@rm -rf $(VENV) $(VENV)-run $(VENV)-bench dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov .deep
