# Two commands do it all on a fresh Debian 12: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: deps build demo test test-release test-asan test-tsan compat compat-deps compat-network bench bench-guest interop format clean install

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local

deps:
	@scripts/deps.sh

build: deps
	@cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }; rm -f build-configure.log
	@cmake --build --preset release -j $(JOBS)

demo: build
	@scripts/demo.sh

# The whole suite: as programs see it, then under AddressSanitizer with UBSan, then under ThreadSanitizer.
test: build
	@scripts/test.sh release asan tsan

test-release test-asan test-tsan: test-%: deps
	@scripts/test.sh $*

# The programs that `make test` leaves out because their packages are large.
compat-deps: deps
	@scripts/deps.sh compat

compat: compat-deps build
	@tests/compat/run.py --bin build/bin/verbena --lib-dir build/lib/verbena --only '^heavy[.]'

# The one-host themes between two hosts, over IPv4 and IPv6, with small and large frames, and over a bad link, in half an
# hour; rewrites docs/NETWORK.md. Needs root. NETWORK_ARGS="--only send-bw" leaves the page alone.
compat-network: build
	@tests/compat/run.py --bin build/bin/verbena --lib-dir build/lib/verbena --matrix $(or $(NETWORK_ARGS),--write docs/NETWORK.md)

# Beside UCX, TCP and memcpy in the same run, then over the network beside TCP and UDP; rewrites docs/PERFORMANCE.md. BENCH_ARGS=--quick leaves the page alone.
bench: build
	@bench/run.py --bin build/bin/verbena --json build/bench/results.json $(BENCH_ARGS)
	@bench/wire.py --bin build/bin/verbena --json build/bench/wire.json $(BENCH_ARGS)
	@bench/connect.py --bin build/bin/verbena --json build/bench/connect.json $(BENCH_ARGS)
	@bench/objects.py --bin build/bin/verbena --json build/bench/objects.json $(BENCH_ARGS)
	@bench/report.py build/bench/results.json

# Beside the kernel's rdma_rxe in one guest, about 8 minutes; `make bench`, or report.py alone, puts it on the page.
# Needs root and rxevm, on PATH or named by RXEVM=. GUEST_ARGS="--guest 3" where guest 1 is in use.
bench-guest: build
	@bench/guest.py --bin build/bin/verbena --json build/bench/guest.json $(GUEST_ARGS)

# Against the kernel's rdma_rxe in a guest; rewrites docs/INTEROP.md. Needs root and rxevm, on PATH or named by RXEVM=.
# INTEROP_ARGS="--only rping" leaves the page alone.
interop: build
	@tests/interop/run.py --bin build/bin/verbena $(or $(INTEROP_ARGS),--write docs/INTEROP.md)

format:
	@git ls-files -co --exclude-standard '*.cpp' '*.hpp' '*.h' '*.c' | xargs clang-format -i

install: build
	@cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-debug build-asan build-tsan build-fuzz
