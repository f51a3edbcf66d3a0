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
trap 'rm -f "$out/secret"' EXIT

# A host that loses its network in the middle of a job: both ranks end with an error, within
# the bound of the heartbeat. (Switched off, it would take the emulated Ethernet with it.)
cat >"$out/vanish.sh" <<'EOT'
counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts
timeout 100 bin/mscclpp-run -n 1 --nnodes 2 --node-rank "$1" --master-addr 192.0.2.1 --transports ib-host bin/rdma-test/pingpong &
job=$!
if [ "$1" = 1 ]; then
	while kill -0 $job 2>/dev/null && [ "$(cat $counter)" -lt 100 ]; do sleep 0.1; done
	echo "host 2 vanishes after $(cat $counter) packets"
	ip link set eth0 down
fi
last=0 at=$(cut -d. -f1 /proc/uptime)
while kill -0 $job 2>/dev/null; do
	now=$(cat $counter)
	[ "$now" = $last ] || { last=$now; at=$(cut -d. -f1 /proc/uptime); }
	sleep 0.2
done
took=$(($(cut -d. -f1 /proc/uptime) - at))
if wait $job; then
	echo "the job ended well, though a host had vanished"
	exit 1
fi
echo "the job ended with an error $took s after the last packet"
[ $took -le 12 ] # 10, and what looking at it takes
EOT

# pair SCRIPT runs it on two hosts that share an Ethernet.
pair() {
	ether=$(mktemp -d "${TMPDIR:-/tmp}/rdma-test.XXXXXX")
	scripts/rdma-guest.sh --seconds 300 --join "$ether/socket" --host 1 sh "$1" 0 >"$out/host1.log" 2>&1 &
	first=$!
	tries=0
	while [ ! -S "$ether/socket" ] && [ $tries -lt 600 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	second=0
	scripts/rdma-guest.sh --seconds 300 --join "$ether/socket" --host 2 sh "$1" 1 || second=$?
	status=0
	wait $first || status=$?
	rm -rf "$ether"
	cat "$out/host1.log"
	if [ $status != 0 ] || [ $second != 0 ]; then
		echo "rdma-test: $1 failed: status $status on the first host, $second on the second" >&2
		exit 1
	fi
}
echo "== a job of 2 ranks over two guests"
pair "$out/two.sh"
echo "== one of two guests vanishes"
pair "$out/vanish.sh"
if ! grep -q 'rank 1.*device rxe0 port 1: .*retries exceeded' "$out/host1.log"; then
	echo "rdma-test: the error on the first host does not name rank, device, port and status" >&2
	exit 1
fi
