# SPDX-License-Identifier: Apache-2.0
# The catalogue of commands: CI calls exactly these. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .build/venv-airflow-3.3.2
RUN := $(VENV)/bin
PYTEST := $(RUN)/python -m pytest
PART ?=
PAIR ?=
# what the checkers read
CODE := provider_patch sidecar dashboards tests chart/files/scripts

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## The main job: cluster, images, chart, three stories on a running Airflow, their numbers from Prometheus
	@$(PYTHON) -m tests.cluster.demo

.PHONY: test
test: ## All tests of the newest pair, the suites of one older pair (PAIR= fixes it), the cluster and its stories (60 min cold)
	@$(PYTHON) -m tests.support.tiers test

.PHONY: test-fast
test-fast: ## No cluster: checks, unit, real Airflow on PostgreSQL, chart, rules (3 min warm)
	@$(PYTHON) -m tests.support.tiers test-fast

.PHONY: test-all
test-all: ## Everything in `make test`, every supported pair, faults, soak, bench; resumes (FRESH=1 starts anew)
	@$(PYTHON) -m tests.support.tiers test-all

.PHONY: matrix
matrix: env ## The suites (unit, on Airflow, the guard on an API server) on every supported pair, or on PAIR=3.0.6+10.8.2; writes docs/matrix.md
	@$(RUN)/python -m tests.support.matrix $(PAIR)

.PHONY: pairs
pairs: ## List the supported pairs of Airflow and provider, and which of them this machine can run
	@$(PYTHON) -m tests.support.environment pairs

.PHONY: faults
faults: env ## Each known hole of the launch under real faults, upstream beside ours; writes docs/faults.md, resumes (45 min)
	@$(RUN)/python -m tests.faults

.PHONY: faults-short
faults-short: env ## A representative part of `make faults`, ours only (3 min)
	@$(RUN)/python -m tests.faults short

.PHONY: bench
bench: env ## Ratios against upstream in one run; writes docs/performance.md, resumes
	@$(RUN)/python -m tests.bench

.PHONY: mutation
mutation: env ## Change the guard's decisions one by one and see that a unit test notices; writes docs/mutation.md
	@$(RUN)/python -m tests.mutation

.PHONY: cluster
cluster: ## Start the two-node kind cluster with every image it needs (CLUSTER=existing uses your context)
	@$(PYTHON) -m tests.cluster up

.PHONY: cluster-down
cluster-down: ## Stop the cluster and everything that `make cluster` started
	@$(PYTHON) -m tests.cluster down

.PHONY: env
env: ## Make the test environment in .build/ and install the Debian packages that tests need
	@$(PYTHON) -m tests.support.environment packages
	@$(PYTHON) -m tests.support.environment ensure 3.3.2

.PHONY: fmt
fmt: env ## Format the code
	$(RUN)/ruff format $(CODE)
	$(RUN)/ruff check --fix $(CODE)

.PHONY: lint
lint: env ## Format check, ruff, mypy strict, import contracts, generated files up to date
	$(RUN)/ruff format --check $(CODE)
	$(RUN)/ruff check $(CODE)
	$(RUN)/mypy provider_patch sidecar dashboards tests/support tests/cluster chart/files/scripts
	$(RUN)/lint-imports
	$(RUN)/python -m tests.support.generated check

.PHONY: unit
unit: env ## Pure logic only
	$(PYTEST) tests/unit

.PHONY: test-airflow
test-airflow: env ## Real Airflow 3.3.2 and real PostgreSQL, no cluster (PART=outbox for one part)
	$(PYTEST) tests/on_airflow/$(PART)

.PHONY: test-apiserver
test-apiserver: env ## A real kube-apiserver with etcd, no nodes (PART=launch_guard for one part)
	$(PYTEST) tests/apiserver/$(PART)

.PHONY: soak
soak: env ## Two schedulers under random faults, upstream beside ours, and a database outage; writes docs/soak.md (40 min)
	$(RUN)/python -m tests.soak

.PHONY: test-chart
test-chart: env ## helm lint, helm-unittest, and the chart's pytest suite
	$(PYTEST) tests/chart

.PHONY: test-dashboards
test-dashboards: env ## Rules by promtool, every panel's query on a real Prometheus
	$(PYTEST) tests/dashboards

.PHONY: test-cluster
test-cluster: env cluster ## The three stories on the cluster, executions counted exactly
	$(PYTEST) tests/cluster

.PHONY: generate
generate: env ## Write everything that is generated: dashboards, rules, values schema, reference docs
	$(RUN)/python -m tests.support.generated write

.PHONY: dashboards-preview
dashboards-preview: env ## Draw the dashboard to docs/images/ from real query answers (PROMETHEUS=url: of that one)
	$(RUN)/python -m dashboards preview $(if $(PROMETHEUS),--prometheus $(PROMETHEUS))
