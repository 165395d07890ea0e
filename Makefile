# make help says what there is. Nothing here needs root.

SHELL := /bin/sh
SALTS := 3008.4 3006.29
SALT  := 3008.4
# The zstd in Go that the program is built with (CGO off), in tests too: the one in C takes minutes to compile.
export GOFLAGS := $(strip $(GOFLAGS) -tags=pebblegozstd)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
RETURNER := salt/src/saltext/saltern/returners/saltern.py

# The name of a Python environment is the last line of what builds it.
pyenv = $$($(CURDIR)/testbed/pyenv/build $(1))
# Packages that start a real Salt, or a real Redis or Cassandra, are parts of their own.
unit_packages = $$(go list ./... | grep -vE "^saltern/(e2e|testbed|proxy/backplane|tiers/redis|tiers/cassandra)(/|$$)")
shared_packages = ./testbed/... ./proxy/backplane/... ./tiers/redis/... ./tiers/cassandra/...

.PHONY: help
help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  SALTERN_CACHE=DIR   where the Python environments are kept (default ~/.cache/saltern)"
	@echo "  PYTHON=PROGRAM      the Python 3.10 to 3.13 that they are made with"

.PHONY: build
build: need-go ## build bin/saltern
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X saltern/cli.version=$(VERSION)" -o bin/saltern .

.PHONY: run
run: build ## run the daemon with no configuration; it prints what to put into the master's
	@bin/saltern serve

.PHONY: demo
demo: build need-python ## a real Salt master and three minions on Saltern, until Ctrl-C; ONCE=1, CLUSTER=1
	@env=$(call pyenv,salt-$(SALT)) && \
	exec bin/saltern demo --salt "$$env" --returner $(RETURNER) $(if $(CLUSTER),--cluster) $(if $(ONCE),--once)

# ---- the tests

.PHONY: check
check: need-go need-python ## format, vet, staticcheck, the table of imports, alert rules, Python lint
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt -w is needed for: $$unformatted"; exit 1; }
	CGO_ENABLED=0 go vet ./...
	GOBIN=$(CURDIR)/bin go -C tools install tool
	CGO_ENABLED=0 bin/staticcheck ./...
	CGO_ENABLED=0 go test -count=1 -run '^TestImports' .
	CGO_ENABLED=0 go -C tools/rules test -count=1 ./...
	ruff=$(call pyenv,lint)/bin/ruff && "$$ruff" check . && "$$ruff" format --check .

.PHONY: test
test: ## everything that fits in 30 minutes on 2 cores; from a warm cache in half of that
	@MAKE="$(MAKE)" tools/parts test-parts

.PHONY: test-long
test-long: ## what is longer: a million jobs, 50 kills, long faults
	@MAKE="$(MAKE)" SALTERN_LONG=1 tools/parts test-long-parts

.PHONY: bench-returner
bench-returner: build need-python ## saltern and local_cache in one run, driven as a master's workers do
	@env=$(call pyenv,salt-$(SALT)) && "$$env/bin/python" bench/returner_bench.py --saltern bin/saltern --returner $(RETURNER)

.PHONY: conformance
conformance: build need-python need-shared ## every returner through the same calls, and Salt's own tests; an hour; writes docs/compatibility.md
	@env=$(call pyenv,salt-$(SALT)) && cd salt && SALTERN_BIN=$(CURDIR)/bin/saltern "$$env/bin/python" -m conformance \
		$(if $(QUICK),,--own) --when "$$(date '+%-d %B %Y')" --page ../docs/compatibility.md

# The parts of make test, two at a time. Real Salts come last and are timed: they wait for what compiles. A part that
# fails stops nothing but what needs it; tools/parts knows of it.
e2e = SALTERN_BIN=$(CURDIR)/bin/saltern go test -count=1 -v

.PHONY: test-parts part-build part-check part-go part-shared part-e2e part-salts-own part-kill part-cluster part-moving part-conformance
test-parts: part-check part-go part-shared $(SALTS:%=part-python-%) part-e2e part-salts-own part-kill part-cluster part-moving part-conformance

part-build: need-go need-python need-gcc
	@tools/part build $(MAKE) --no-print-directory build

part-env-%: need-python
	@tools/part env-$* testbed/pyenv/build salt-$*

part-check: part-build
	-@tools/part check $(MAKE) --no-print-directory check

part-go: part-build
	-@tools/part go sh -c 'go test -race $(unit_packages)'

part-shared: part-build need-shared | part-go
	-@tools/part shared sh -c 'go test -race -timeout 15m $(shared_packages)'

part-python-%: part-build part-env-%
	-@tools/part python-$* sh -c 'cd salt && SALTERN_BIN=$(CURDIR)/bin/saltern $(call pyenv,salt-$*)/bin/python -m pytest -q -p no:cacheprovider'

part-e2e: part-build $(SALTS:%=part-env-%) | part-check part-go part-shared $(SALTS:%=part-python-%)
	-@tools/part e2e sh -c '$(e2e) -timeout 20m -run "^TestSalt[0-9]" ./e2e'

part-salts-own: part-build $(SALTS:%=part-env-%) | part-e2e
	-@tools/part salts-own sh -c '$(e2e) -timeout 15m -run "^TestSaltsOwn" ./e2e'

part-kill: part-build | part-e2e
	-@tools/part kill sh -c '$(e2e) -run "^TestKilled" ./e2e'

part-cluster: part-build need-shared | part-shared part-kill part-salts-own
	-@tools/part cluster sh -c '$(e2e) -timeout 15m ./e2e/cluster'

part-moving: part-build $(SALTS:%=part-env-%) need-shared | part-cluster
	-@tools/part moving sh -c '$(e2e) -timeout 10m ./e2e/moving'

part-conformance: part-build $(SALTS:%=part-env-%) | part-kill
	-@tools/part conformance sh -c 'cd salt && SALTERN_BIN=$(CURDIR)/bin/saltern $(call pyenv,salt-$(SALT))/bin/python -m conformance local_cache saltern "saltern 3006"'

.PHONY: test-long-parts part-long-go part-long-e2e
test-long-parts: part-long-go part-long-e2e

part-long-go: part-build
	-@tools/part long-go sh -c 'go test -count=1 -timeout 3h $(unit_packages)'

part-long-e2e: part-build $(SALTS:%=part-env-%) | part-long-go
	-@tools/part long-e2e sh -c '$(e2e) -timeout 3h ./e2e'

# ---- what has to be there

.PHONY: need-go
need-go:
	@command -v go >/dev/null || { echo "needed: Go 1.21 or later (https://go.dev/dl; apt's 1.19 of Debian 12 is too old)"; exit 1; }
	@v=$$(go env GOVERSION) && case "$$v" in \
	go1.[0-9]|go1.1[0-9]|go1.20|go1.[0-9].*|go1.1[0-9].*|go1.20.*) \
		echo "needed: Go 1.21 or later, which fetches 1.26 by itself; this is $$v. Install it from https://go.dev/dl"; exit 1;; \
	go1.21*|go1.22*|go1.23*|go1.24*|go1.25*) \
		echo "needed: Go 1.26; this $$v was told not to fetch it. Allow that: go env -w GOTOOLCHAIN=auto"; exit 1;; \
	esac

.PHONY: need-python
need-python:
	@testbed/pyenv/build --check

.PHONY: need-gcc
need-gcc:
	@command -v gcc >/dev/null || { echo "needed for the race detector: gcc. Debian: apt-get install gcc libc6-dev"; exit 1; }

.PHONY: need-shared
need-shared:
	@command -v redis-server >/dev/null || { echo "needed for the tests of the shared tiers: redis-server. Debian: apt-get install redis-server"; exit 1; }
	@command -v java >/dev/null && command -v mvn >/dev/null || { echo "needed for the tests of the shared tiers: Java 17 and Maven. Debian: apt-get install openjdk-17-jre-headless maven"; exit 1; }
