#!/bin/sh
# The tcp transport over a bad network: the conformance suite, the engine by which ranks
# drive streams, and a job of two hosts, with 5 ms of delay and 1 % of the packets lost;
# and errors that name the peer when everything is lost, for either driver. It runs in a
# virtual machine (scripts/rdma-guest.sh), whose kernel has netem, and whose loopback
# device may be spoiled.
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
go=${GO:-go}
"$go" test -c -o bin/netem-test/tcp.test ./transports/tcp
"$go" test -c -o bin/netem-test/stream.test ./framework/stream
"$go" build -o bin/netem-test/mscclpp-run ./cmd/mscclpp-run
"$go" build -o bin/netem-test/plugins/mscclpp-transport-tcp ./transports/tcp/cmd/mscclpp-transport-tcp
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >bin/netem-test/secret
chmod 600 bin/netem-test/secret
cat >bin/netem-test/guest.sh <<EOF2
set -eu
PATH=\$PATH:/usr/sbin:/sbin
here=\$PWD/bin/netem-test
bad() { tc qdisc replace dev lo root netem "\$@"; }
fail() { echo "netem-test: \$*" >&2; cat \$here/host-0 \$here/host-1 >&2 || :; exit 1; }
bad delay 0ms || { echo "netem-test: no netem in the guest's kernel" >&2; exit 1; }

# A job of two hosts with a rank each, that drive the streams: start PORT PROGRAM…
start() {
	port=\$1; shift
	for h in 0 1; do
		MSCCLPP_SECRET_FILE=\$here/secret MSCCLPP_BOOTSTRAP__HOST_ID=host-\$h MSCCLPP_TRANSPORT__TCP__PEER_TIMEOUT=4s \$here/mscclpp-run \\
			-N 2 --node-rank \$h --master-addr 127.0.0.1 --master-port \$port --transports tcp --log-level debug -n 1 "\$@" >\$here/host-\$h 2>&1 &
		eval "host\$h=\$!"
	done
}

(
	cd transports/tcp
	TCP_TEST_NETEM=lo \$here/tcp.test -test.v -test.timeout 300s -test.run 'DelayAndLoss|EverythingIsLost'
)

# Everything is lost while ranks drive the streams: both end, and say whom they lost.
start 29711 bench allreduce --bytes 1M --iters 1000000
tries=0
until grep -q 'kind=port transport=tcp' \$here/host-0 && grep -q 'kind=port transport=tcp' \$here/host-1; do
	tries=\$((tries + 1))
	[ \$tries -lt 600 ] || fail "the job does not start"
	sleep 0.1
done
sleep 2 # it reduces for a while
bad loss 100%
tries=0
while kill -0 \$host0 2>/dev/null || kill -0 \$host1 2>/dev/null; do
	tries=\$((tries + 1))
	[ \$tries -lt 300 ] || fail "a job without a network still runs after 30 s"
	sleep 0.1
done
bad delay 0ms
for h in 0 1; do
	grep -E 'rank [01].*(peer failed|silent|timed out)' \$here/host-\$h | tail -n 1 | cut -c 1-200 | sed "s/^/netem-test: all is lost: host \$h: /" | grep . ||
		fail "host \$h does not say whom it lost"
done

bad delay $delay loss $loss
(cd framework/stream && \$here/stream.test -test.timeout 300s -test.run 'PutThenSignal|BothWays|NobodyCalls|Later|Concurrently|Bye')
echo "netem-test: streams driven by ranks: passed"
start 29712 bench allreduce --bytes 1K:4M --factor 16 --iters 2 --calls 2 --check
wait \$host0 || fail "the job failed"
wait \$host1 || fail "the job failed"
grep -E '^ *allreduce' \$here/host-0 | sed 's/^/netem-test: /' | cut -c 1-120
(
	cd transports/tcp
	TCP_TEST_NETEM=lo \$here/tcp.test -test.timeout 800s -test.run ConformanceOverABadNetwork
)
tc -s qdisc show dev lo | sed 's/^/netem-test: /'
echo "netem-test: passed with $delay of delay and $loss of loss"
EOF2
exec scripts/rdma-guest.sh --seconds 780 --cpus 2 sh bin/netem-test/guest.sh
