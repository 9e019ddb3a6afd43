# Every target makes .venv by itself when it is missing or out of date. `make` alone says what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20

PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
BIN := .venv/bin

.PHONY: help
help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

FROM_NPM := node_modules/.package-lock.json
READY := .venv/ready $(FROM_NPM)

.PHONY: setup
setup: $(READY) ## the virtual environment and what comes from npm, with everything pinned

.venv/ready: pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "tenon needs Python 3.11 or newer on PATH, and found none; set PYTHON=/path/to/python3" >&2; exit 1; }
	@node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null || { \
		echo "tenon needs Node.js 20 or newer on PATH for the CDK, and found $$(node --version 2>/dev/null || echo none)" >&2; exit 1; }
	@echo "Setting up .venv with $$($(PYTHON) --version) (once; a minute or two)"
	@$(PYTHON) -m venv --clear .venv
	@if command -v uv >/dev/null 2>&1; then \
		uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock && \
		uv pip install --quiet --python $(BIN)/python --no-deps --editable .; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; \
	fi
	@touch $@

# Without it everything works but the report, which says so: a registry that doesn't answer is no reason to stop.
$(FROM_NPM): package.json package-lock.json
	@npm ci --silent --ignore-scripts --no-audit --no-fund --fetch-retries=1 || { rm -rf node_modules; \
		echo "npm can't install uPlot and mermaid, so tenon report, its tests and make docs fail; make setup tries again" >&2; }

.PHONY: demo
demo: $(READY) ## the whole system on this machine: pending pods become nodes, empty nodes go
	@$(BIN)/tenon demo $(ARGS)

PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: test
test: $(READY) ## unit and integration tests, and one world for each flow, in about five minutes (ARGS="-k name" picks some)
	@$(PYTEST) -m "not long and not real and not aws and (flow or not e2e)" --ignore tests/local $(ARGS)

.PHONY: test-local
test-local: $(READY) ## the tests of the local world itself: its API server, scheduler, controllers, kubelets and AWS
	@$(PYTEST) tests/local $(ARGS)

.PHONY: test-rest
test-rest: $(READY) ## what make test leaves out and takes less than a minute: the other worlds, and the local world's own tests
	@$(PYTEST) -m "not long and not real and not flow" tests/e2e tests/local $(ARGS)

.PHONY: test-all
test-all: $(READY) ## the long tests too: large clusters, every crash, and all end-to-end tests in a hostile world
	@$(PYTEST) -m "not real and not aws" $(ARGS)
	@TENON_HOSTILE=1 $(PYTEST) -m "not long and not real and not calm_world" tests/e2e $(ARGS)

.PHONY: test-real
test-real: $(READY) ## the tests on real control planes, built by Go (KUBERNETES=1.37: that one), or on a throw-away cluster (KUBECONFIG=file; ARGS="-m real": the long ones, too)
	@TENON_TEST_KUBERNETES="$(KUBERNETES)" TENON_TEST_KUBECONFIG="$(if $(filter command line,$(origin KUBECONFIG)),$(KUBECONFIG))" \
		$(BIN)/python -m pytest -n $(if $(filter command line,$(origin KUBECONFIG)),0,2) -m "real and not long" tests/real $(ARGS)

.PHONY: control-plane
control-plane: $(READY) ## the real control planes for test-real, built by Go (five minutes each, once; KUBERNETES=1.37: that one)
	@$(BIN)/python -m local.real.binary $(KUBERNETES)

.PHONY: test-karpenter
test-karpenter: $(READY) ## Karpenter's own suites on a real control plane, built by Go (ARGS="--focus name" runs some)
	@$(BIN)/python -m tests.karpenter $(ARGS)

.PHONY: fuzz
fuzz: $(READY) ## inputs on which a parser raises an error that it doesn't document, for ten minutes (ARGS="--minutes 60": longer)
	@nice -n 19 $(BIN)/python -m tests.fuzz $(ARGS)

.PHONY: test-aws
test-aws: $(READY) ## policies, event rules and bundles, judged by engines of AWS's behaviour that aren't ours (what each needs: tests/README.md)
	@$(PYTEST) -m aws tests/aws_judges $(ARGS)

.PHONY: lint
lint: $(READY) ## format, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

.PHONY: format
format: $(READY) ## format the code and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: synth
synth: $(READY) ## the CloudFormation template of a cluster called demo in cdk.out/, checked by cfn-lint
	@$(BIN)/python -m infra.app $(if $(filter cluster=% clusters=%,$(ARGS)),,-c cluster=demo) $(ARGS)
	@$(BIN)/cfn-lint --ignore-checks W3005 -- cdk.out/*.template.json

.PHONY: wheel
wheel: $(READY) ## the wheel in dist/, with the demo's stack and uPlot in it, and bills of materials in dist/sbom
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@$(BIN)/python -m distribution.sbom dist/sbom >/dev/null

.PHONY: chart
chart: $(READY) ## a Helm chart of what Tenon needs in a cluster, in dist/chart/tenon
	@$(BIN)/python -m distribution.chart dist/chart

.PHONY: audit
audit: $(READY) ## the pinned versions, compared with PyPI's advisories (ARGS=--if-reachable: no error without them)
	@$(BIN)/python -m distribution.audit $(ARGS)

.PHONY: test-wheel
test-wheel: $(READY) ## the wheel's commands, installed without a checkout
	@$(BIN)/python -m pytest -m long tests/wheel $(ARGS)

.PHONY: bench
bench: $(READY) ## the figures of README and docs
	@$(BIN)/python -m bench $(ARGS)

.PHONY: pictures
pictures: $(READY) ## the pictures of docs/, drawn again (needs a Chromium)
	@$(BIN)/python -m bench.pictures

.PHONY: docs
docs: $(READY) ## the documentation as a site in build/site, its reference written again from the code, each page tried in a Chromium
	@$(BIN)/python -m docs.generate
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@$(BIN)/python -m pytest -q -n 2 -m long tests/integration/test_docs_site.py

.PHONY: lock
lock: $(READY) ## pin every dependency again
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --extra dev pyproject.toml -o requirements.lock
