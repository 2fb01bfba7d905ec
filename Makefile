# Everything here needs Go and make alone, but for `make real` (Node and npm for
# the reference servers) and `make ci` (which runs it).

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

GO ?= go

# Linters are pinned here and run from the module cache, so that they are no
# dependency of the module and the same everywhere.
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := $(GO) run mvdan.cc/gofumpt@v0.12.0

# Modules with dependencies of their own: real peers and other clients.
NESTED := $(patsubst %/go.mod,%,$(wildcard conformance/*/go.mod))

# Everything that is installed or built for a run; ignored by git.
CACHE := $(CURDIR)/.cache
NPM   := $(CACHE)/npm

# Extra flags for go test, such as TESTFLAGS=-count=1.
TESTFLAGS ?=

# Flags for the bench, such as BENCHFLAGS=-judge (see -help).
BENCHFLAGS ?=

.PHONY: help build test test-plain random drill lint lint-format lint-cross lint-nested docs docs-check bench real conformance ci

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## compile everything, and bin/respawn
	$(GO) build ./...
	$(GO) build -o bin/respawn ./cmd/respawn

# Sets $$race to the flag of the race detector, or to nothing where it does not
# work and cgo is not needed.
detect-race = race=$$(.ci/race "$(GO)"); if [ -z "$$race" ]; then export CGO_ENABLED=0; fi

test: ## run the tests, with the race detector where it works
	@set -eu; $(detect-race); \
	$(GO) test $$race -shuffle=on $(TESTFLAGS) ./...

# The same as on a machine with Go and make alone, where this project has to
# build and pass too; without cgo the runtime differs (it detects deadlocks). The
# long runs are the race detector's.
test-plain:
	RESPAWN_REAL= CGO_ENABLED=0 $(GO) test -shuffle=on $(TESTFLAGS) ./...

# What is drawn by chance, 100 times as often as in a test: a search for what is
# rare, which a change does not have to wait for.
random: ## the random tests of client and relay, 10,000 runs each
	@set -eu; $(detect-race); \
	$(GO) test $$race $(TESTFLAGS) ./client ./client/relay -run 'Random|AnyDialog' -rapid.checks=10000

drill: ## kill the built-in server in every way and prove what is recovered
	$(GO) run ./cmd/respawn drill

lint: lint-format lint-cross lint-nested ## vet, staticcheck, gofumpt; vet for Windows and macOS
	$(GO) vet ./... ./client/testdata/ledger
	$(GO) vet -tags official ./conformance/driver
	$(STATICCHECK) ./... ./client/testdata/ledger
	$(STATICCHECK) -tags official ./conformance/driver

lint-format:
	@set -eu; out=$$(find . \( -name node_modules -o -name .cache \) -prune -o -name '*.go' -print0 | xargs -0 $(GOFUMPT) -l); \
	if [ -n "$$out" ]; then echo "not formatted with gofumpt:"; echo "$$out"; exit 1; fi

# These systems are compiled and vetted here, not run.
lint-cross:
	GOOS=windows $(GO) build ./...
	GOOS=windows $(GO) vet ./...
	GOOS=darwin $(GO) build ./...
	GOOS=darwin $(GO) vet ./...

lint-nested:
	@set -eu; for dir in $(NESTED); do (cd "$$dir" && $(GO) vet ./... && $(STATICCHECK) ./...); done

# Documents with blocks that are generated from the code.
DOCS = $(shell grep -l 'respawn:begin' README.md docs/*.md)

docs: ## write the generated blocks of the documents anew
	$(GO) run ./cmd/respawn diagram -write $(DOCS)

docs-check:
	$(GO) run ./cmd/respawn diagram -check $(DOCS)

# The reference servers, at the exact versions of the committed package.json. No
# lock file is kept, since one records the addresses of the registry used.
$(NPM)/node_modules/.package-lock.json: conformance/peers/npm/package.json conformance/peers/npm/.npmrc
	mkdir -p $(NPM)
	cp $^ $(NPM)/
	npm install --prefix $(NPM)
	touch $@

real: $(NPM)/node_modules/.package-lock.json ## test against real servers: npm's, the Go SDK's, mcp-go's
	@set -eu; race=$$(.ci/race "$(GO)"); \
	cd conformance/peers; \
	RESPAWN_REAL=1 RESPAWN_NPM=$(NPM) $(GO) test $$race $(TESTFLAGS) ./...

# The official suite, and the Node that it needs where npm has one for the system.
SUITE := $(CACHE)/suite

$(SUITE)/node_modules/.package-lock.json: conformance/driver/npm/package.json conformance/driver/npm/.npmrc
	mkdir -p $(SUITE)
	cp $^ $(SUITE)/
	npm install --prefix $(SUITE)
	touch $@

conformance: $(SUITE)/node_modules/.package-lock.json ## run the official conformance suite against the client
	RESPAWN_SUITE=$(SUITE) $(GO) test -tags official -v $(TESTFLAGS) ./conformance/driver

bench: ## measure clients against the lightest server; prints, judges nothing
	cd conformance/peers && $(GO) build -o $(CACHE)/bin/ ./bench ./echoserver ./sdkserver github.com/respawn-mcp/respawn/cmd/respawn
	$(CACHE)/bin/bench -server $(CACHE)/bin/echoserver -shim $(CACHE)/bin/respawn -sdkserver $(CACHE)/bin/sdkserver $(BENCHFLAGS)

# Each stage says how long it took.
define stage
@set -eu; start=$$(date +%s); echo "== $(1)"; $(MAKE) $(1); echo "== $(1): $$(($$(date +%s) - start)) s"
endef

# The packages that kill real processes hundreds of times need more than the ten
# minutes that go test grants by default, on a slow or busy machine.
ci: export TESTFLAGS := -count=1 -timeout=25m
ci: ## everything that must hold before a change lands
	$(call stage,lint)
	$(call stage,docs-check)
	$(call stage,test)
	$(call stage,test-plain)
	$(call stage,drill)
	$(call stage,real)
	$(call stage,conformance)
