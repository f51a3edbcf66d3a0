# Everything that is done to this tree by hand or by CI. `make` lists it.

GO       ?= go
PREFIX   ?= /usr/local
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
STAMP     = -X github.com/mscclpp-go/mscclpp/internal/version.Version=$(VERSION)
BUILD     = $(GO) build -ldflags '$(STAMP)'
PLUGINS   = $(wildcard transports/*/cmd/mscclpp-transport-*)
GOLANGCI  = 2.15.0
# Tests that are not run under the race detector, which sees goroutines of one process: of what kernels and compilers make,
# of arithmetic, of costs, of plugins that are other processes, and of jobs whose programs they build without it. It makes
# them many times slower and finds nothing there; the stage test runs them all. scripts/raced.sh has the packages.
UNRACED   = TestKernelsOnGrids TestKernelsWithThreads TestCopyAnySizeAndAlignment TestChoiceIsTheModels TestModeledRowsServeAllCalls \
	TestSlowLinksMoveThresholdsDown TestConformanceAsPlugin TestDeath TestVerbsInAJob TestTuneInAJob TestPlansInAJob TestEndsOfAJobWithHandedStreams \
	TestLongMessages TestCostOfACallForTheHost TestCostOfTheAbortCheck TestCostBetweenKernels TestCostOfData TestCostForAMultiplication \
	TestDirectReduceBits TestCheckExecutesCodeObjects TestCheckFindsWeakCodeObjects TestExchangesExecuteCodeObjects TestPlansExecuteCodeObjects TestRCCLExecutesCodeObjects
# Tests that hold what runs to a time or a speed. CI runs them by themselves when all else is done, so that nothing
# beside them is measured.
ALONE     = TestRoundTripTime TestPaceSleepsFinely TestPaceInACrowd TestSpeed TestTriggerTime TestSingleTriggerTime TestPreloadCost TestImportTime
TIMED     = ./framework/ring ./transports/internal/verbs ./transports/tcp ./nccl ./python
# For -run and -skip: tests of these names.
space    := $(subst ,, )
names     = ^($(subst $(space),|,$(strip $(1))))$$

# gRPC without the trace pages that nobody here serves: programs start 5 % faster. Without the tree's path in them,
# packages and results of tests are kept for any copy of the tree.
export GOFLAGS := $(strip $(GOFLAGS) -tags=grpcnotrace -trimpath)

.DEFAULT_GOAL := help
.PHONY: help build kernels machine-code check test test-beside test-alone interpret schedules race conform engines-test rdma-test torch-test nccl-soak rdma-bench demo bench-mpi bench-tcp netem-test fuzz dist-gpu gpu-test wheel install uninstall deps proto generate lint fmt clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

build: ## programs into bin/, plugins into bin/plugins/, libraries into bin/lib/; needs Go and a C++ compiler
	@GO='$(GO)' scripts/deps.sh build
	$(BUILD) -o bin/ ./cmd/...
	$(BUILD) -o bin/plugins/ $(addprefix ./,$(PLUGINS))
	GO='$(GO)' VERSION='$(VERSION)' scripts/capi.sh bin/lib
	VERSION='$(VERSION)' scripts/nccl.sh bin/lib

kernels: build ## CPU kernel images for this machine, beside the plugins
	scripts/kernels.sh build

machine-code: build ## machine code of the GPU kernels by NVIDIA's assembler, beside the plugins: programs start sooner; CHIPS=sm_90 for one kind of GPU
	scripts/kernels.sh machine-code $(CHIPS)

check: build ## compare committed kernel images and generated files with their sources
	scripts/kernels.sh check
	scripts/generated.sh

test: deps build kernels ## all tests; as root it installs what they need
	$(GO) test -timeout 30m ./...

test-beside: build kernels ## those of `make test` that may run beside other work: all but tests of times, and engines
	packages=$$($(GO) list ./...) && \
	$(GO) test -vet=off -p 3 -timeout 28m -skip '$(call names,$(ALONE))' $$(printf '%s\n' $$packages | grep -v '/launch/enginetest$$')

interpret: kernels ## kernels for GPUs in the interpreters, more ranks and schedules than in CI; takes hours
	INTERPRET_RANKS='4 8' $(GO) test -count=1 -timeout 60m -v -run 'TestEvery|TestCaches' ./collectives/gfxtest
	INTERPRET_RANKS='2 4 8' $(GO) test -count=1 -timeout 60m -v -run 'TestCheckExecutesCodeObjects|TestCheckOverTheSwitch' ./cmd/mscclpp-run
	INTERPRET=full $(GO) test -count=1 -timeout 60m -v -run TestPlansInTheInterpreter ./plan/exec
	INTERPRET=full $(GO) test -v -count=1 -timeout 4h -skip TestManySchedules ./collectives/interpreted
	$(MAKE) schedules

schedules: ## collectives for GPUs on 1,000 schedules under the race detector; a run goes on behind the last one, and ends after MINUTES
	INTERPRET=full INTERPRET_MINUTES='$(MINUTES)' INTERPRET_ROWS='$(CURDIR)/bin/interpret.rows' INTERPRET_TABLE='$(CURDIR)/bin/interpret.md' \
	$(GO) test -v -count=1 -timeout 8h -run TestManySchedules ./collectives/interpreted

test-alone: build ## tests of times and speeds, one after the other
	$(GO) test -vet=off -p 1 -count=1 -timeout 10m -run '$(call names,$(ALONE))' $(TIMED)

race: build kernels ## the packages with concurrency under the race detector
	packages=$$(GO='$(GO)' scripts/raced.sh) && \
	$(GO) test -race -vet=off -p 4 -timeout 40m -skip '$(call names,$(UNRACED) $(ALONE))' $$packages

conform: build kernels ## the conformance suite against each plugin; PLUGIN=path for one
	scripts/conform.sh $(PLUGIN)

engines-test: build kernels ## jobs started by a real mpirun, mpiexec and Slurm, and over ssh; as root it installs them
	@[ "$$(id -u)" != 0 ] || scripts/deps.sh engines
	ENGINE_TEST_RUNNER='$(CURDIR)/bin/mscclpp-run' $(GO) test -count=1 ./launch/enginetest
	ENGINE_TEST_RUNNER='$(CURDIR)/bin/mscclpp-run' GO='$(GO)' scripts/slurm-test.sh || [ $$? = 77 -a "$$(id -u)" != 0 ]
	cd launch/manifest/manifesttest && $(GO) test ./...

rdma-test: build ## the transports over InfiniBand on real verbs, in virtual machines with soft-RoCE
	GO='$(GO)' scripts/rdma-test.sh

torch-test: build kernels ## PyTorch, unchanged, on the libraries; needs 2 GB of the package registry, once
	GO='$(GO)' scripts/torch-test.sh

nccl-soak: ## 10000 communicators, and 10000 forks beside threads that open files; takes an hour
	MSCCLPP_TEST_FULL=1 $(GO) test ./nccl -count=1 -timeout 3h -run 'TestForksLoseNoDescriptor|TestNothingLeaks' -v

demo: build kernels ## a job of 4 ranks that talk through the shm plugin
	scripts/demo.sh

bench-mpi: build kernels ## compare with the installed MPI; results in docs/results
	scripts/bench-mpi.sh

bench-tcp: build kernels ## compare the tcp transport with C, and with MPI over TCP; results in docs/results/tcp
	GO='$(GO)' scripts/bench-tcp.sh

rdma-bench: build ## compare the transports over InfiniBand with programs that use verbs, in a virtual machine; results in docs/results/verbs; ARGS='--cpus 4' or '--count'
	GO='$(GO)' scripts/rdma-bench.sh $(ARGS)

netem-test: ## the tcp transport over a network with delay and loss, in a virtual machine
	GO='$(GO)' scripts/netem-test.sh

dist-gpu: ## dist/mscclpp-gpu.tar.xz: what gpu-test.sh needs on a machine with GPUs and without Go
	@GO='$(GO)' scripts/deps.sh build
	GO='$(GO)' VERSION='$(VERSION)' scripts/dist-gpu.sh

gpu-test: dist-gpu ## tests on the GPUs of this machine, results in dist/gpu-results; ARGS='--tier bench'
	dist/gpu-test.sh --out dist/gpu-results $(ARGS)

wheel: ## dist/*.whl: the Python package with libraries, plugins and kernels, for any Linux with glibc 2.28
	mkdir -p dist && python3 -m pip wheel --no-index --no-deps -w dist .

install: build kernels ## programs, plugins, libraries and headers under PREFIX (and DESTDIR)
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh

uninstall: ## remove what install put there
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh --remove

deps: ## Debian packages that development needs; installs them when run as root
	scripts/deps.sh

proto: ## regenerate plugins/proto
	$(GO) generate ./plugins/proto

generate: build proto ## regenerate everything that is generated
	bin/mscclpp-run config --docs > docs/config.md
	$(GO) run ./internal/notices/cmd/notices > THIRD_PARTY_NOTICES.new && mv THIRD_PARTY_NOTICES.new THIRD_PARTY_NOTICES

fuzz: ## look for new inputs that break parsers; 50 targets, 10 minutes each, or ARGS='--targets 8 --seconds 5'
	scripts/fuzz.sh $(or $(ARGS),--seconds 600)

lint: ## vet, formatting, the rules of internal/lint, and golangci-lint
	$(GO) vet ./...
	$(GO) test ./internal/lint
	GO='$(GO)' scripts/golangci.sh $(GOLANGCI)

fmt: ## format all Go files
	gofmt -l -w $$(git ls-files -co --exclude-standard '*.go')

clean: ## remove what was built
	rm -rf bin dist
