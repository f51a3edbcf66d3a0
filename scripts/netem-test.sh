#!/bin/sh
# The tcp transport over a bad network: the conformance suite with 5 ms of delay and
# 1 % of the packets lost, and an error that names the peer when everything is lost. It
# runs in a virtual machine (scripts/rdma-guest.sh), whose kernel has netem, and whose
# loopback device may be spoiled.
#
#   netem-test.sh [--delay TIME] [--loss PERCENT]
set -eu
cd "$(dirname "$0")/.."
delay=5ms loss=1%
while [ $# -gt 0 ]; do
	case $1 in
	--delay) delay=$2; shift 2 ;;
	--loss) loss=$2%; shift 2 ;;
	*) echo "netem-test: unknown argument $1: expected --delay TIME, --loss PERCENT" >&2; exit 2 ;;
	esac
done
mkdir -p bin/netem-test
"${GO:-go}" test -c -o bin/netem-test/tcp.test ./transports/tcp
cat >bin/netem-test/guest.sh <<EOF2
set -eu
PATH=\$PATH:/usr/sbin:/sbin
tc qdisc replace dev lo root netem delay 0ms || { echo "netem-test: no netem in the guest's kernel" >&2; exit 1; }
cd transports/tcp
TCP_TEST_NETEM=lo ../../bin/netem-test/tcp.test -test.v -test.timeout 300s -test.run 'DelayAndLoss|EverythingIsLost'
tc qdisc replace dev lo root netem delay $delay loss $loss
TCP_TEST_NETEM=lo ../../bin/netem-test/tcp.test -test.timeout 800s -test.run ConformanceOverABadNetwork
tc -s qdisc show dev lo | sed 's/^/netem-test: /'
echo "netem-test: passed with $delay of delay and $loss of loss"
EOF2
exec scripts/rdma-guest.sh --seconds 900 --cpus 2 sh bin/netem-test/guest.sh
