#!/bin/sh
# Tests the transports over InfiniBand on real verbs, in virtual machines with soft-RoCE:
# the conformance suite, embedded and as plugins, and a job, in one; then a job over two.
#
#   rdma-test.sh [quick]     quick: without the suite as plugins
#
# As root it installs what it needs. Needs bin/ from make build.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
[ "$(id -u)" != 0 ] || scripts/deps.sh rdma

out=bin/rdma-test
mkdir -p "$out"
for t in ib-host ib-nonatomic; do
	"$go" test -c -o "$out/$t.test" "./transports/$t"
done
"$go" build -o "$out/pingpong" ./examples/pingpong

# Emulated machines are slow, and those that emulate them may be busy.
export MSCCLPP_PLUGINS__START_TIMEOUT=60s MSCCLPP_BOOTSTRAP__TIMEOUT=90s

suite='Embedded|AsPlugin|Guest'
[ "${1:-}" != quick ] || suite='Embedded|Guest'
cat >"$out/one.sh" <<EOT
set -e
for t in ib-host ib-nonatomic; do
	echo "== \$t: conformance, in one guest"
	$out/\$t.test -test.timeout 900s -test.run '$suite'
	echo "== \$t: a job of 2 ranks, in one guest"
	timeout 60 bin/mscclpp-run --standalone -n 2 --transports \$t $out/pingpong
done
EOT
RDMA_REQUIRED=1 scripts/rdma-guest.sh --seconds 1800 sh "$out/one.sh"

# Two hosts. Each starts one rank; the second finds the first by its address.
cat >"$out/two.sh" <<'EOT'
set -e
for t in ib-host ib-nonatomic; do
	timeout 100 bin/mscclpp-run -n 1 --nnodes 2 --node-rank "$1" --master-addr 192.0.2.1 --transports $t bin/rdma-test/pingpong
done
EOT
umask 077
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$out/secret"
export MSCCLPP_SECRET_FILE="$PWD/$out/secret"
ether=$(mktemp -d "${TMPDIR:-/tmp}/rdma-test.XXXXXX")
trap 'rm -rf "$ether" "$out/secret"' EXIT
echo "== a job of 2 ranks over two guests"
scripts/rdma-guest.sh --seconds 300 --join "$ether/socket" --host 1 sh "$out/two.sh" 0 >"$out/host1.log" 2>&1 &
first=$!
tries=0
while [ ! -S "$ether/socket" ] && [ $tries -lt 600 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
second=0
scripts/rdma-guest.sh --seconds 300 --join "$ether/socket" --host 2 sh "$out/two.sh" 1 || second=$?
status=0
wait $first || status=$?
cat "$out/host1.log"
if [ $status != 0 ] || [ $second != 0 ]; then
	echo "rdma-test: the job over two guests failed: status $status on the first, $second on the second" >&2
	exit 1
fi
