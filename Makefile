.DEFAULT_GOAL := help
SHELL := bash
PATH := $(CURDIR)/.venv/bin:$(PATH)
UV := $(shell command -v uv 2>/dev/null || echo .venv/bin/uv)

.PHONY: help
help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.venv/.ready: pyproject.toml uv.lock
	@test -x "$(UV)" || command -v uv >/dev/null || { python3 -m venv .venv && .venv/bin/python -m pip install -q uv; }
	@$(UV) sync --frozen --quiet
	@touch $@

.PHONY: setup
setup: .venv/.ready ## Installs everything into .venv

.PHONY: gen
gen: setup ## Generates the stubs in gen/ from proto/, offline
	buf generate 2>/dev/null
	buf build proto -o gen/descriptors.pb --as-file-descriptor-set --exclude-source-info

.PHONY: gen-check
gen-check: setup ## Proves that gen/ is what proto/ says
	tools/gen_check.sh
