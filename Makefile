# plegd: `make help` lists the targets. Needed: Go, make and git; gcc only for
# the race detector; root and Debian's packages only for `make e2e`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go

# Tools are modules at fixed versions: no checksum can change under us.
GOLANGCI_VERSION := v2.15.0
HELM_VERSION := v3.22.0
ACTIONLINT_VERSION := v1.7.12

# The version comes from the nearest v* tag; before the first tag it reads as
# if v0.0.0 had been the repository's first commit. Outside a git checkout the
# packager sets VERSION, REVISION, BRANCH and BUILD_DATE.
ifneq ($(shell git rev-parse --git-dir 2>/dev/null),)
  VERSION := $(or $(VERSION),$(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null | sed 's/^v//' | grep . || echo "0.0.0-$$(git rev-list --count HEAD)-g$$(git describe --always --dirty --exclude '*')"))
  REVISION := $(or $(REVISION),$(shell git rev-parse HEAD))
  BRANCH := $(or $(BRANCH),$(shell git symbolic-ref -q --short HEAD || echo HEAD))
  # The commit's date, not today's: the same commit gives the same binary.
  BUILD_DATE := $(or $(BUILD_DATE),$(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd))
else
  VERSION ?= 0.0.0-unknown
  REVISION ?= unknown
  BRANCH ?=
  BUILD_DATE ?=
endif

V := github.com/prometheus/common/version
LDFLAGS := -s -w -X $(V).Version=$(VERSION) -X $(V).Revision=$(REVISION) -X $(V).Branch=$(BRANCH) -X $(V).BuildDate=$(BUILD_DATE)
# -buildvcs=false: the version is given above, and a dirty tree or a missing
# .git does not change the binary.
GOBUILD = CGO_ENABLED=0 GOOS=linux $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

# The race detector needs a C compiler with its headers. CI always has one.
RACE = $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && echo '\#include <stdlib.h>' | $$($(GO) env CC) -E -x c - >/dev/null 2>&1 && echo -race)
# Modules of their own, for what plegd itself must not depend on.
MODULES := deploy/image deploy/kubernetes deploy/mixin
TESTFLAGS ?=
# The tests of the chart run it.
HELM_TOOL := build/tools/helm-$(HELM_VERSION)
export HELM := $(CURDIR)/$(HELM_TOOL)
ACTIONLINT := build/tools/actionlint-$(ACTIONLINT_VERSION)
FREEZE ?=
E2EFLAGS ?=
RUNS ?= 1
LANES ?= 1
DURATION ?= 30m
FUZZTIME ?= 2000x
export PACKAGES

.PHONY: help
help: ## Show this list
	@echo "plegd $(VERSION)"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build build/plegd, a static binary for this machine
	@mkdir -p build
	$(GOBUILD) -o build/plegd ./cmd/plegd

.PHONY: build-all
build-all: ## Build build/linux-{amd64,arm64}/plegd
	@mkdir -p build
	GOARCH=amd64 $(GOBUILD) -o build/linux-amd64/plegd ./cmd/plegd
	GOARCH=arm64 $(GOBUILD) -o build/linux-arm64/plegd ./cmd/plegd

.PHONY: demo
demo: build ## Show a fault, its reason and the recovery on a fake runtime (under a minute, no root)
	@bash demo/demo.sh build/plegd

.PHONY: test
test: ## Run the fast tests: race detector, no root, no network
	@[ -n "$(RACE)" ] || echo "make test: NO RACE DETECTOR: it needs cgo and a C compiler with headers (Debian: gcc libc6-dev)" >&2
	$(if $(RACE),,CGO_ENABLED=0 )$(GO) test $(RACE) -timeout 30m $(TESTFLAGS) ./... # a loaded machine is no failure
	$(if $(RACE),$(GO) test $(TESTFLAGS) -run TestLive ./internal/stacks) # its dumps are of this process, as built without the detector
	for m in $(MODULES); do $(GO) test -C $$m ./...; done

.PHONY: e2e
e2e: build ## Run the end-to-end tests on a real containerd and Prometheus (root; installs Debian packages)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e: needs root: it starts a containerd and stops, kills and starves it" >&2; exit 1; }
	@[ -d test/e2e ] || { echo "make e2e: there is no test/e2e" >&2; exit 1; }
	@[ ! -e test/e2e/install-deps.sh ] || bash test/e2e/install-deps.sh
	$(GO) test -tags e2e -count=1 -timeout 30m -parallel 5 -v $(E2EFLAGS) ./test/e2e/

.PHONY: e2e-systemd
e2e-systemd: packages image-oci ## Run the unit, the packages and the image on a real systemd beside a real containerd service (root; installs Debian packages)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-systemd: needs root: it boots a systemd in namespaces" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	$(GO) test -tags e2e -count=1 -timeout 20m -parallel 6 -v $(E2EFLAGS) ./test/systemd/

.PHONY: e2e-chain
e2e-chain: ## Make processes wait for each other in every way that plegd follows, and compare (root)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-chain: needs root: it mounts file systems, freezes cgroups and traces processes" >&2; exit 1; }
	$(GO) test -tags e2e -count=1 -timeout 10m -v $(E2EFLAGS) ./test/chain/

.PHONY: e2e-faults
e2e-faults: build ## Make every fault on a real runtime and print how plegd names it: make e2e-faults [CONTAINERD=1.6|1.7|2.1|2.4] [RUNTIME=containerd|crio|cri-dockerd|simulated] [RUNS=10] [LANES=2] [CASES=regexp] [AT_LEAST=0.98] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-faults: needs root: it starts a runtime and stops, kills and starves it" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	@mkdir -p build/faults
	PLEGD_E2E_RUNTIME="$(RUNTIME)" PLEGD_E2E_CONTAINERD="$(CONTAINERD)" PLEGD_FAULTS_RESULTS="$(CURDIR)/build/faults" PLEGD_FAULTS_AT_LEAST="$(AT_LEAST)" \
	  RUNS="$(RUNS)" LANES="$(LANES)" CASES="$(CASES)" $(GO) test -tags e2e -count=1 -parallel "$(LANES)" -timeout 4h -v -run 'TestFaults|TestPairs|TestHarmless' $(E2EFLAGS) ./test/faults/

.PHONY: e2e-advice
e2e-advice: build ## Restart the runtime in each fault for which a restart may help, and look at lists and pods afterwards; paste the commands of runbooks while their faults stand; read what incidents say ended them: make e2e-advice [CONTAINERD=1.6|1.7|2.1|2.4] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-advice: needs root: it starts a runtime and stops and kills it" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	PLEGD_E2E_RUNTIME="$(RUNTIME)" PLEGD_E2E_CONTAINERD="$(CONTAINERD)" $(GO) test -tags e2e -count=1 -timeout 30m -v -run 'TestRestart|TestSteps|TestServiceSteps|TestEndings' $(E2EFLAGS) ./test/faults/

.PHONY: e2e-casebook
e2e-casebook: ## Make the faults of public incidents only; the same settings as e2e-faults (root)
	$(MAKE) e2e-faults CASES=book

.PHONY: e2e-kubelet
e2e-kubelet: build ## Compare plegd's predictions with unmodified kubelets; writes docs/results/kubelet.md: make e2e-kubelet [KUBELETS="1.36 1.37 1.35 1.34 1.33"] [RUNS=3] [LANES=8] [SCENARIOS=regexp] [KEEP=1: only runs that build/kubelet does not hold] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-kubelet: needs root: it starts nodes with a runtime and a kubelet" >&2; exit 1; }
	@bash test/e2e/install-deps.sh cluster
	KUBELETS="$(or $(KUBELETS),1.36 1.37 1.35 1.34 1.33)" SCENARIOS="$(SCENARIOS)" KEEP="$(KEEP)" RUNS="$(RUNS)" LANES="$(if $(filter 1,$(LANES)),8,$(LANES))" \
	  PLEGD_BINARY=$(CURDIR)/build/plegd PLEGD_KUBELET_RESULTS=$(CURDIR)/build/kubelet PLEGD_KUBELET_REVISION=$$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown) \
	  $(GO) test -tags e2e -count=1 -parallel 256 -timeout 6h -v $(E2EFLAGS) ./test/kubelet/ || failed=1; \
	$(GO) run ./test/kubelet/table -results build/kubelet -write docs/results/kubelet.md && [ -z "$${failed:-}" ]

.PHONY: e2e-cluster
e2e-cluster: build image-oci $(HELM_TOOL) ## Install the chart into a small real Kubernetes with Prometheus, break its node, upgrade, uninstall: make e2e-cluster [CONTAINERD=1.6|1.7|2.1|2.4] (root; builds Kubernetes once)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-cluster: needs root: it starts a node with a runtime and a kubelet" >&2; exit 1; }
	@bash test/e2e/install-deps.sh cluster
	@mkdir -p build/cluster
	PLEGD_E2E_CONTAINERD="$(or $(CONTAINERD),2.4)" PLEGD_BINARY=$(CURDIR)/build/plegd PLEGD_CLUSTER_RESULTS=$(CURDIR)/build/cluster \
	  PLEGD_CLUSTER_REVISION=$$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown) \
	  $(GO) test -tags e2e -count=1 -timeout 40m -v $(E2EFLAGS) ./test/cluster/ || failed=1; \
	$(GO) run ./test/kubelet/table -results build/cluster -command "make e2e-cluster" -write docs/results/kubelet.md && [ -z "$${failed:-}" ]

.PHONY: results
results: ## Write the results of make e2e-faults that are in build/faults into docs/results/faults.md
	$(GO) run ./test/results/page -results build/faults -write docs/results/faults.md

.PHONY: soak
soak: build ## Live an ordinary day of a node in half an hour, in which plegd must raise no false alarm: make soak [DURATION=30m] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make soak: needs root: it starts a containerd with pods" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	PLEGD_BINARY=$(CURDIR)/build/plegd DURATION="$(DURATION)" $(GO) test -tags e2e -count=1 -timeout 24h -v $(E2EFLAGS) ./test/soak/

.PHONY: e2e-events
e2e-events: build ## Listen to the events of containerd 1.6, 1.7 and 2.4, with cuts and stopped subscribers: make e2e-events [FREEZE=1m] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-events: needs root: it starts containerds and stops their clients" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	@for v in trixie 2.4.2; do bash test/lab/containerd.sh $$v >/dev/null || echo "make e2e-events: no containerd $$v here; its tests say so too" >&2; done
	PLEGD_EVENTS_FREEZE="$(FREEZE)" $(GO) test -tags e2e -count=1 -timeout 20m -v $(E2EFLAGS) ./test/events/

.PHONY: e2e-hostile
e2e-hostile: build ## Run plegd against hostile runtimes and on a broken node (no root needed; with it, a little more)
	PLEGD_BINARY=$(CURDIR)/build/plegd $(GO) test -C test/hostile -tags e2e -count=1 -timeout 15m -parallel 8 $(E2EFLAGS)

.PHONY: e2e-observe
e2e-observe: build ## Look at the page with a real browser, and at the alerts with a real Prometheus and Alertmanager (installs Debian packages)
	@bash test/e2e/install-deps.sh observe
	$(GO) test -tags e2e -count=1 -timeout 10m -v -skip TestRulesCost $(E2EFLAGS) ./test/observe
	$(GO) test -tags e2e -count=1 -timeout 10m $(E2EFLAGS) ./deploy/prometheus
	cd test/page && $(GO) test -tags e2e -count=1 -timeout 10m -v $(E2EFLAGS) .

.PHONY: pictures
pictures: build ## Take the pictures of the page in docs/pictures with a real browser
	@bash test/e2e/install-deps.sh observe
	SCREENSHOTS=$(CURDIR)/docs/pictures $(GO) test -C test/page -tags e2e -count=1 -timeout 10m -run TestPictures .

.PHONY: fleet-rules
fleet-rules: ## Evaluate every rule over 5,000 nodes in a real Prometheus, measure its CPU time, and write it into docs/results/fleet.md
	@bash test/e2e/install-deps.sh
	@bash bench/write.sh rules docs/results/fleet.md $(GO) test -tags e2e -count=1 -timeout 30m -run TestRulesCost -v ./test/observe

.PHONY: e2e-fleet
e2e-fleet: build ## Send a fleet's metrics by remote write from two Prometheus agents to a Prometheus with all rules, and write what it took into docs/results/fleet.md: make e2e-fleet [NODES=5000] [INTERVAL=60s] (12 GiB of memory)
	@bash test/e2e/install-deps.sh observe
	@PLEGD_FLEET_NODES="$(or $(NODES),5000)" PLEGD_FLEET_INTERVAL="$(or $(INTERVAL),60s)" bash bench/write.sh remote-write docs/results/fleet.md $(GO) test -tags e2e -count=1 -timeout 40m -v -run TestRemoteWrite ./test/observe

.PHONY: record-incidents
record-incidents: build ## Make every fault and keep what plegd records of it in internal/health/testdata/incidents (root)
	@[ "$$(id -u)" = 0 ] || { echo "make record-incidents: needs root: it starts a containerd and stops, kills and starves it" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	PLEGD_RECORD_INCIDENTS="$(CURDIR)/internal/health/testdata/incidents" $(GO) test -tags e2e -count=1 -timeout 4h -v -run TestFaults $(E2EFLAGS) ./test/faults/

.PHONY: soak-chaos
soak-chaos: build ## Break a real containerd at random, kill plegd now and then, compare its incidents: make soak-chaos [DURATION=30m] [SEED=1] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make soak-chaos: needs root: it starts a containerd and stops, kills and starves it" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	DURATION="$(or $(DURATION),30m)" SEED="$(SEED)" $(GO) test -tags e2e -count=1 -timeout 12h -v -run TestChaos $(E2EFLAGS) ./test/faults/

.PHONY: soak-week
soak-week: ## Play a week of relists, faults and flapping in fast forward: make soak-week [DAYS=7]
	TMPDIR=/dev/shm $(GO) test -count=1 -timeout 3h -v -run TestWeek ./internal/daemon -days $(or $(DAYS),7)

.PHONY: bench
bench: build ## Measure plegd beside a plain client at 110, 500 and 5000 pods; fails if a limit is broken: make bench [ARGS='-pods 110'] [WRITE=docs/results/performance.md]
	@$(GO) build -o build/bench ./bench
	@bash bench/write.sh table "$(WRITE)" build/bench $(ARGS)

.PHONY: bench-real
bench-real: build ## Measure plegd on a real containerd with 10, 110 and 250 pods beside the plain client, node-problem-detector and a kubelet; prints missed limits, fails if it costs more than it did: make bench-real [PLEGD_BENCH_NPD=DIR] [PLEGD_BENCH_KUBELET=/PATH/kubelet] [PLEGD_BENCH_WINDOW=30s] [PLEGD_BENCH_PODS=110] [WRITE=docs/results/performance.md] (root)
	@[ "$$(id -u)" = 0 ] || { echo "make bench-real: needs root: it starts a containerd with pods" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	@$(GO) build -o build/bench ./bench
	@PLEGD_BINARY=$(CURDIR)/build/plegd PLEGD_BENCH=$(CURDIR)/build/bench bash bench/write.sh real "$(WRITE)" $(GO) test -tags e2e -count=1 -timeout 1h -v -run TestReal ./test/realbench/

.PHONY: e2e-peers
e2e-peers: build ## Measure how soon plegd, node-problem-detector's health checker and crictl state faults of a real containerd, and what they cost: make e2e-peers PLEGD_BENCH_NPD=DIR [WRITE=docs/comparison.md] (with node-problem-detector, health-checker and crictl) (root)
	@[ "$$(id -u)" = 0 ] || { echo "make e2e-peers: needs root: it starts a containerd with pods" >&2; exit 1; }
	@bash test/e2e/install-deps.sh
	@PLEGD_BINARY=$(CURDIR)/build/plegd bash bench/write.sh peers "$(WRITE)" $(GO) test -tags e2e -count=1 -timeout 30m -v -run TestPeers ./test/realbench/
	@$(MAKE) --no-print-directory bench-real PLEGD_BENCH_PODS=10 WRITE=

.PHONY: lint
lint: lint-tools ## Check formatting and run golangci-lint, which vets with the tag e2e
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "make lint: gofmt -w these files:" >&2; echo "$$bad" >&2; exit 1; }
	for m in test/page $(MODULES); do $(GO) vet -C $$m -tags e2e ./...; done
	build/tools/golangci-lint-$(GOLANGCI_VERSION) run ./...
	@if command -v shellcheck >/dev/null; then shellcheck --severity=warning $$(git ls-files -co --exclude-standard '*.sh' .ci/run .ci/debian deploy/kubectl/kubectl-plegd); else echo "make lint: no shellcheck here, shell scripts not checked" >&2; fi

.PHONY: lint-tools deploy-tools
lint-tools: build/tools/golangci-lint-$(GOLANGCI_VERSION)
deploy-tools: $(HELM_TOOL) $(ACTIONLINT)

# Built once for each version, from source.
build/tools/golangci-lint-%:
	@mkdir -p build/tools
	GOBIN=$(CURDIR)/build/tools $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$*
	@mv build/tools/golangci-lint $@

build/tools/helm-%:
	@mkdir -p build/tools
	CGO_ENABLED=0 GOBIN=$(CURDIR)/build/tools $(GO) install helm.sh/helm/v3/cmd/helm@$*
	@mv build/tools/helm $@

build/tools/actionlint-%:
	@mkdir -p build/tools
	CGO_ENABLED=0 GOBIN=$(CURDIR)/build/tools $(GO) install github.com/rhysd/actionlint/cmd/actionlint@$*
	@mv build/tools/actionlint $@

.PHONY: generate
generate: ## Write what comes from code: docs (reasons, metrics, examples), rules and dashboards
	$(GO) test ./internal/exporter ./internal/server ./internal/view -update
	$(GO) test ./internal/health -run TestThresholds -update
	$(GO) test ./test/docs -run TestMeasured -update
	$(GO) run -C deploy/mixin .

.PHONY: verify
verify: ## Check that rules and dashboards, formatting and go.mod are committed as they should be; make test checks documents
	$(GO) run -C deploy/mixin .
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "make verify: gofmt -w these files:" >&2; echo "$$bad" >&2; exit 1; }
	$(GO) mod tidy -diff
	for m in $(MODULES); do $(GO) mod tidy -C $$m -diff; done
	cd test/page && $(GO) mod tidy -diff
	$(GO) mod verify
	@[ -z "$$(git status --porcelain)" ] || { echo "make verify: the tree is not as committed:" >&2; git status --short >&2; git --no-pager diff --stat >&2; exit 1; }

.PHONY: fuzz
fuzz: ## Run each fuzz test for a number of executions or a time: make fuzz [FUZZTIME=2000x]
	@GO="$(GO)" FUZZTIME="$(FUZZTIME)" bash .ci/fuzz.sh

.PHONY: check-deploy
check-deploy: build $(HELM_TOOL) $(ACTIONLINT) ## Check the systemd unit, flags in documents, man pages and workflows; make test checks rules, dashboards, manifests and chart
	bash deploy/systemd/verify.sh
	bash .ci/flags.sh build/plegd
	$(GO) test -count=1 -tags gendocs -run TestManPages ./cmd/plegd
	$(ACTIONLINT)

.PHONY: image
image: ## Build the container image plegd:VERSION (docker, podman or buildah)
	@args=(--build-arg "VERSION=$(VERSION)" --build-arg "REVISION=$(REVISION)" --build-arg "BUILD_DATE=$(BUILD_DATE)" -t "plegd:$(VERSION)" .); \
	if docker info >/dev/null 2>&1; then docker build "$${args[@]}"; \
	elif command -v podman >/dev/null; then podman build "$${args[@]}"; \
	elif command -v buildah >/dev/null; then buildah build "$${args[@]}"; \
	else echo "make image: no image builder here: it needs a running docker engine, podman or buildah" >&2; exit 1; fi

# Reproducible: everything in a package bears the commit's time.
.PHONY: packages
packages: ## Build dist/*.deb and dist/*.rpm for amd64 and arm64, each if its tool is here (dpkg-deb, rpmbuild)
	@bash deploy/packages/build.sh --tools
	@$(MAKE) --no-print-directory build-all
	@GO="$(GO)" VERSION="$(VERSION)" SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(date -u -d "$(or $(BUILD_DATE),1970-01-01T00:00:00Z)" +%s)}" bash deploy/packages/build.sh

# A module of its own builds it: plegd does not depend on what that imports.
.PHONY: image-oci
image-oci: build-all ## Build dist/plegd.oci.tar, the image for amd64 and arm64, without a container engine
	@mkdir -p dist
	$(GO) run -C deploy/image . -dockerfile "$(CURDIR)/Dockerfile" -binary "$(CURDIR)/build/linux-ARCH/plegd" -name "localhost/plegd:$(VERSION)" -version "$(VERSION)" -revision "$(REVISION)" -created "$(or $(BUILD_DATE),1970-01-01T00:00:00Z)" -o "$(CURDIR)/dist/plegd.oci.tar"

# Reproducible: the same commit gives the same checksums.
.PHONY: release
release: $(HELM_TOOL) ## Build everything of a release in dist/: archives, packages, image, chart, rules, bill of materials, checksums
	rm -rf dist
	$(MAKE) --no-print-directory packages image-oci PACKAGES="deb rpm"
	@GO="$(GO)" VERSION="$(VERSION)" BUILD_DATE="$(or $(BUILD_DATE),1970-01-01T00:00:00Z)" SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(date -u -d "$(or $(BUILD_DATE),1970-01-01T00:00:00Z)" +%s)}" bash deploy/release/release.sh

.PHONY: nightly
nightly: ## Run the long suites: release twice, e2e, systemd, page, events, the whole matrix, kubelets, cluster, soaks (root; hours)
	@bash .ci/run nightly

.PHONY: clean-dist
clean-dist:
	rm -rf dist

.PHONY: clean
clean: ## Remove what was built (the Go caches stay)
	rm -rf build dist
