# `make` lists the targets. Everything is built into bin/ and kept there.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# A program that was written in part is not taken for a program.
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Without cgo programs are static: a CI job runs lanyard in any image. The race detector alone needs cgo.
export CGO_ENABLED := 0
# Every package is compiled once without the race detector, for programs and e2e, and once with the detector, for unit tests,
# lint, and the daemons of e2e. So all go commands have the same flags. -trimpath: another clone finds the same packages in Go's
# build cache. grpcnotrace: gRPC's own tracing imports html/template, with which the linker keeps all methods: lanyard has 49 MB
# then, not 37. disable_grpc_modules: Google's storage client, which the local cloud imports, leaves out gRPC's service mesh.
# -dwarf=false: the compiler leaves out what only debuggers read. The linker would drop this anyway.
TAGS := grpcnotrace,disable_grpc_modules
OWN_GOFLAGS := -trimpath -tags=$(TAGS) -gcflags=all=-dwarf=false
export GOFLAGS := $(strip $(filter-out $(OWN_GOFLAGS),$(GOFLAGS)) $(OWN_GOFLAGS))
# Tests run Debian's aws and az, whatever stands before them in PATH, and the caller's go.
GO := $(shell command -v go)
export PATH := $(if $(GO),$(patsubst %/,%,$(dir $(GO))):)/usr/bin:$(PATH)

# Modules of the product, modules that test or measure it, and modules with unit tests. "serial" stands for the unit tests of all
# modules that start no goroutine.
MODULES      := api auth cloudtest .
TEST_MODULES := test/flux test/e2e bench
UNIT         := serial auth cloudtest . test/flux dev/controlplane
# The unit tests' modules are a workspace: packages of one module are compiled once for all modules.
WORKSPACE := GOWORK=$(CURDIR)/dev/product.work
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

KUBE    := v1.36.4
KUBE_LD := -s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(KUBE) -X $(p).gitMajor=1 -X $(p).gitMinor=36)


# Sources that a binary is built from: it is built again only when one of them is newer.
go_files      = $(shell find $(1) -name '*.go' -not -name '*_test.go' 2>/dev/null) $(wildcard $(addsuffix /go.mod,$(1)) $(addsuffix /go.sum,$(1)))
PRODUCT      := $(call go_files,api auth cloudtest internal cmd charts) go.mod go.sum $(shell find charts examples -type f)
PROGRAMS     := $(addprefix bin/,$(notdir $(wildcard cmd/*)))
CONTROLPLANE := $(call go_files,dev/controlplane)

##@ Use
.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: prerequisites-demo build ## start all of it on this machine and show who may pull what (ONCE=1: end after the table)
	@bin/lanyard up $(if $(ONCE),--once)

.PHONY: build
build: bin/controlplane $(PROGRAMS) ## build all programs into bin/

# One command builds all programs: go links one of them while it compiles another.
$(PROGRAMS) &: $(PRODUCT)
	@dev/build "Lanyard's programs" . bin/ -ldflags '$(LDFLAGS)' $(addprefix ./cmd/,$(notdir $(PROGRAMS)))
	@touch $(PROGRAMS)

# A Kubernetes API server, etcd, controllers and kubectl in one program: some minutes, once.
bin/controlplane: $(CONTROLPLANE)
	@dev/build "Kubernetes' control plane" dev/controlplane $@ -ldflags '$(KUBE_LD)' .

# Programs that the targets need: root gets the missing ones installed, others are told how.
.PHONY: prerequisites-demo prerequisites-test
prerequisites-demo prerequisites-test: prerequisites-%:
	@dev/prerequisites $*

##@ Test
# Some end-to-end tests run alone, and leave half of the processors idle. The unit tests without goroutines run meanwhile: these
# tests measure no time. The attacks mostly wait, and get the processor before the other unit tests.
.PHONY: test
test: prerequisites-test ## run all tests, and install what they need: unit tests with the race detector, e2e, short attacks
	@$(MAKE) build test/e2e/node/node_modules/.package-lock.json
	@$(MAKE) --jobs=2 e2e-programs
	@failed=; $(MAKE) unit UNIT=serial & serial=$$!; $(MAKE) e2e || failed=1; wait $$serial || failed=1; \
	  $(MAKE) attack SHORT=1 & attack=$$!; $(MAKE) unit UNIT="$(filter-out serial,$(UNIT))" || failed=1; wait $$attack || failed=1; \
	  [ -z "$$failed" ]

# The formatter gets the folders of one module's packages, since it would follow ./... into nested modules.
FMT := $(CURDIR)/bin/golangci-lint fmt --config $(CURDIR)/.golangci.yml

# Two kinds of unit tests are left out, because they need more than Go: those of the pages about clouds run the aws and az
# commands, and those in test/flux run git. One package more is tested at once than there are processors: many tests wait.
.PHONY: quick
quick: bin/golangci-lint ## run what one needs while writing: format, vet, unit tests without the race detector; needs only Go
	@for m in $(MODULES); do echo "== format of $$m"; (cd $$m && $(FMT) --diff $$(go list -f '{{.Dir}}' ./...)) || exit 1; done
	@echo "== vet and unit tests"; $(WORKSPACE) go vet $(MODULES:%=./%/...)
	@$(WORKSPACE) GOGC=400 go test -p=$$(($$(nproc) + 1)) -vet=off -skip '^TestPageOfClouds' $(MODULES:%=./%/...)

.PHONY: unit
unit: ## run the unit tests of every module, with the race detector wherever goroutines are
	@nice -n 5 dev/unit-tests $(TAGS) $(UNIT)

# Further flags of go test, such as -v or -run.
E2E_FLAGS ?=
# GOGC saves processor time of the control planes and of the local cloud, at the cost of memory. Lanyard's daemons do not inherit
# this variable.
RARE_GC := GOGC=200
# These tests measure time. They wait until such tests of another clone on the machine have ended.
IN_TURN := $(CURDIR)/dev/in-turn
.PHONY: e2e
e2e: build e2e-programs test/e2e/node/node_modules/.package-lock.json ## run the black-box tests: real API server, local cloud, real registry
	@cd test/e2e && $(RARE_GC) $(IN_TURN) go test $(E2E_FLAGS) -vet=off -count=1 -shuffle=on -timeout 60m . ./dataplane ./node ./stage

.PHONY: attack
attack: build ## run hostile tenants against the controller, beside an honest one (SHORT=1: those that take three minutes)
	@cd test/e2e/attack && $(RARE_GC) $(IN_TURN) go test -vet=off -count=1 -timeout 30m $(if $(SHORT),-short)

.PHONY: e2e-flux
e2e-flux: build e2e-programs bin/flux-kustomize-controller ## run Flux's kustomize-controller beside Lanyard, and its tests against Lanyard
	@cd test/e2e && go test -vet=off -count=1 -tags=flux,$(TAGS) -run 'TestKustomizeController|TestMove' .
	@cd test/flux && go test -vet=off -count=1 -timeout=30m -parallel=6 -tags=flux,$(TAGS) -run TestKustomizationsOfFlux .

# The race detector watches Lanyard's daemons in the end-to-end tests, and not the tests themselves. These would take most of
# the time then, for what they share with the unit tests, which have the detector.
# lanyard-apply-controller is not among them: its builds have less memory than the race detector needs.
RACE_PROGRAMS := $(patsubst bin/%,bin/race/%,$(filter-out bin/lanyard bin/lanyard-local bin/lanyard-apply-controller,$(PROGRAMS)))
.PHONY: e2e-programs
e2e-programs: $(RACE_PROGRAMS) bin/minio bin/vault-jwt bin/sops

# The daemons with the race detector: packages that the unit tests need too.
$(RACE_PROGRAMS) &: $(PRODUCT)
	@$(WORKSPACE) CGO_ENABLED=1 dev/build "daemons with the race detector" . bin/race/ -race -ldflags '$(LDFLAGS)' $(addprefix ./cmd/,$(notdir $(RACE_PROGRAMS)))
	@touch $(RACE_PROGRAMS)

# MinIO's STS judges the same tokens as ours does. It is built from its module, as its makers document.
bin/minio: test/e2e/minio/go.mod test/e2e/minio/go.sum
	@dev/build MinIO test/e2e/minio $@ -ldflags '-s -w' github.com/minio/minio

# Vault's JWT plugin judges tokens of our issuer. Its module is apart: it needs some 80 others.
bin/vault-jwt: $(call go_files,test/e2e/vault)
	@dev/build "Vault's JWT plugin" test/e2e/vault $@ -ldflags '-s -w' .

# The program with which people encrypt files. It is built from its module, unmodified.
bin/sops: test/e2e/sops/go.mod test/e2e/sops/go.sum
	@dev/build SOPS test/e2e/sops $@ -ldflags '-s -w' github.com/getsops/sops/v3/cmd/sops

# Flux's controller that applies sources. It is built from its module.
bin/flux-kustomize-controller: test/e2e/kustomize/go.mod test/e2e/kustomize/go.sum
	@dev/build "Flux's kustomize-controller" test/e2e/kustomize $@ -ldflags '-s -w' github.com/fluxcd/kustomize-controller

# The clouds' official clients for Node, and Azurite. npm writes this file last.
test/e2e/node/node_modules/.package-lock.json: test/e2e/node/package-lock.json
	@dev/node-packages
	@touch $@

.PHONY: fuzz
FUZZTIME ?= 50000x
fuzz: ## fuzz every target for FUZZTIME inputs (50000x) or seconds (30s)
	@dev/fuzz $(FUZZTIME)

.PHONY: bench
bench: build ## measure beside Flux's library, Cluster API Provider AWS and kube-apiserver: case, ours, theirs, ratio
	@cd bench && go run .

.PHONY: scale
scale: build ## measure one controller with 100, 1,000 and 10,000 objects (half an hour and more)
	@cd bench && go run ./controller objects

.PHONY: scale-certificates
scale-certificates: build ## measure one controller whose objects have SPIFFE certificates, 1,000 and 10,000 of them (half an hour)
	@cd bench && go run ./controller objects -certificates -sizes 1000,10000

.PHONY: scale-identities
scale-identities: build ## measure the issuer's programs with 100, 1,000 and 10,000 WorkloadIdentities (half an hour)
	@cd bench && go run ./controller identities

.PHONY: scale-bindings
scale-bindings: build ## measure the identity controller with 100, 1,000 and 10,000 WorkloadIdentityBindings (an hour and more)
	@cd bench && go run ./controller bindings

.PHONY: scale-awsclusters
scale-awsclusters: build ## measure the identity controller with 200 and 10,000 AWSClusters over 200 roles, and count the calls of AWS STS (half an hour)
	@cd bench && go run ./controller awsclusters

.PHONY: bench-artifacts
bench-artifacts: build bin/oras ## measure pushes and pulls beside Flux's and ORAS's libraries (a quarter of an hour, and 4 GiB of disk)
	@cd bench && go run ./artifacts --oras ../bin/oras

# The program oras is measured beside ours. It is built from its module. That of flux lacks the files that its program embeds.
bin/oras: bench/artifacts/oras/go.mod bench/artifacts/oras/go.sum
	@dev/build oras bench/artifacts/oras $@ -ldflags '-s -w' oras.land/oras/cmd/oras

.PHONY: bench-controller
bench-controller: build bin/flux-source-controller ## measure the controller beside Flux's source-controller (half an hour and more)
	@cd bench && go run ./controller flux -flux-crds "$$(cd controller/flux && go list -m -f '{{.Dir}}' github.com/fluxcd/source-controller)/config/crd/bases"

# Flux's controller is measured beside ours. It is built from its module.
bin/flux-source-controller: bench/controller/flux/go.mod bench/controller/flux/go.sum
	@dev/build "Flux's source-controller" bench/controller/flux $@ -ldflags '-s -w' github.com/fluxcd/source-controller

.PHONY: bench-apply
bench-apply: build bin/flux-kustomize-controller ## measure the apply controller beside Flux's kustomize-controller (12 minutes)
	@cd bench && go run ./apply

##@ Change
# go tool would build the generators with other flags, and compile what they share with the product again.
.PHONY: generators
generators: bin/controller-gen bin/openapi-gen
bin/controller-gen: dev/tools/go.mod
	@dev/build controller-gen dev/tools $@ sigs.k8s.io/controller-tools/cmd/controller-gen
bin/openapi-gen: dev/tools/go.mod
	@dev/build openapi-gen dev/tools $@ k8s.io/kube-openapi/cmd/openapi-gen

.PHONY: generate
generate: generators ## write generated files: deepcopy functions, CRDs, golden files
	@dev/generate

.PHONY: verify
verify: ## fail when generated files or module files are stale
	@dev/verify

.PHONY: check
check: lint verify ## what CI runs before the tests: format, lint, vet, generated files

# When lint nears 8 GiB, the garbage collector runs more often. Lint waits for the lint of another clone to end.
LINT := GOMEMLIMIT=8GiB $(CURDIR)/bin/golangci-lint run --config $(CURDIR)/.golangci.yml --timeout 20m --allow-serial-runners
# These linters first analyse the source of all dependencies. The product's modules are linted at once, because they share most
# of these dependencies. The test modules would need the sources of MinIO, Helm and other peers too, and dev/controlplane those
# of Kubernetes: they do without these linters.
LINT_DEPS := govet,staticcheck,exhaustive,contextcheck
# Lint compiles packages and their tests as other targets do: with the race detector where the unit tests use the detector.
RACE_LINT := CGO_ENABLED=1 GOFLAGS="$(GOFLAGS) -race" $(LINT)

.PHONY: lint
lint: bin/golangci-lint ## check format and style of every module; needs gcc
	@$(WORKSPACE) CGO_ENABLED=1 GOFLAGS="$(GOFLAGS) -race" dev/build "packages for lint" . cache $(MODULES:%=./%/...) ./test/flux/...
	@echo "== lint $(MODULES)"; $(WORKSPACE) $(RACE_LINT) $(MODULES:%=./%/...)
	@echo "== lint test/flux"; cd test/flux && $(WORKSPACE) $(RACE_LINT) --disable $(LINT_DEPS) ./...
	@for m in $(filter-out test/flux,$(TEST_MODULES)); do echo "== lint $$m"; (cd $$m && $(LINT) --disable $(LINT_DEPS) ./...); done
	@echo "== lint dev/controlplane"; cd dev/controlplane && $(RACE_LINT) ./pki ./component && $(LINT) --disable $(LINT_DEPS) .
	@echo "== lint test/e2e/vault"; cd test/e2e/vault && $(LINT) --disable $(LINT_DEPS) .

.PHONY: format
format: bin/golangci-lint ## format all Go files
	@for m in $(MODULES) $(TEST_MODULES) dev/controlplane test/e2e/vault; do (cd $$m && $(FMT) $$(go list -f '{{.Dir}}' ./...)); done

bin/golangci-lint: dev/tools/lint/go.mod
	@dev/build golangci-lint dev/tools/lint $@ -ldflags '-s -w' github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: clean
clean: ## remove what was built, and what trying the examples of the README and the help leaves
	@rm -rf bin .demo .mine .cloud
