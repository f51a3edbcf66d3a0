#!/bin/sh
# Measures the transports over verbs beside programs that use the same device without us,
# in a virtual machine with soft-RoCE, and writes machine.json, raw output and a summary.
#
#   rdma-bench.sh [--cpus N] [--seconds N] [ARGS…]
#   rdma-bench.sh [--seconds N] --count
#
# With --count it compares instructions in place of times, of a signal with its completion,
# in a machine with one processor. It fails if ours are more than 1.10 times perftest's.
#
# ARGS go to the program that does it: see `go run ./bench/cmd/compare-verbs -h`. By
# default the machine has 4 processors, and the results are in docs/results/verbs. As root
# it installs what it needs. Run `make build` first.
set -eu
cd "$(dirname "$0")/.."
cpus=4 seconds=1800 clock='' what=
while [ $# -gt 0 ]; do
	case $1 in
	--cpus) cpus=$2; shift 2 ;;
	--seconds) seconds=$2; shift 2 ;;
	--count) clock=--count cpus=1 what=count; shift ;;
	*) break ;;
	esac
done
[ "$(id -u)" != 0 ] || scripts/deps.sh rdma
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -o bin/verbs-peer bench/verbs/peer.c -libverbs
"${GO:-go}" build -trimpath -o bin/compare-verbs ./bench/cmd/compare-verbs
export MSCCLPP_PLUGINS__START_TIMEOUT=60s MSCCLPP_BOOTSTRAP__TIMEOUT=90s
exec scripts/rdma-guest.sh $clock --cpus "$cpus" --seconds "$seconds" bin/compare-verbs \
	--load "$(cut -d' ' -f1 /proc/loadavg) with $(nproc) processors" "$@" $what
