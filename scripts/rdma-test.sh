#!/bin/sh
# Tests the transports over InfiniBand on real verbs, in virtual machines with soft-RoCE:
# the conformance suite and a job, in one; a short comparison with perftest, whose ratios
# are printed and not judged; then jobs over two, also ones of which one is lost.
#
#   rdma-test.sh [guest|quick]     guest: the suite embedded and the job, in one; quick: some of each,
#                                  and no comparison
#
# As root it installs what it needs, else it says what is missing. Needs bin/ from make build.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
scripts/deps.sh rdma

out=bin/rdma-test
mkdir -p "$out"

# Says where it ended, if it did so early: what has failed stands above.
step="preparation"
trap 'status=$?; rm -rf "$out/secret" "$out/ratios"; [ $status = 0 ] || echo "rdma-test: failed with status $status: $step" >&2' EXIT
trap 'exit 143' HUP INT TERM
for t in ib-host ib-nonatomic; do
	"$go" test -c -o "$out/$t.test" "./transports/$t"
done
"$go" build -o "$out/pingpong" ./examples/pingpong
"$go" test -c -o "$out/metrics.test" ./cmd/mscclpp-run/internal/metrics

# The plugins beside kernels for the emulated processor, which has no AVX-512.
mkdir -p "$out/plugins"
ln -f bin/plugins/mscclpp-transport-* "$out/plugins/" 2>/dev/null || true # the folders that it leaves out are kernels
bin/mscclpp-kernels build --store "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/built" --spec transports/shm/kernels/kernels.json --target x86-64-v3 --out "$out/plugins/mscclpp-transport-shm.kernels"
export MSCCLPP_PLUGINS__DIRS="$PWD/$out/plugins"

# Emulated machines are slow, and those that emulate them may be busy.
export MSCCLPP_PLUGINS__START_TIMEOUT=120s MSCCLPP_BOOTSTRAP__TIMEOUT=240s

# The suite at its distances, or groups of it. A pattern that matches nothing is no error to
# the test program, so it is one here: before a guest is started, and by what has run.
suites='TestConformanceEmbedded TestConformanceOverTheWire TestConformanceAsPlugin'
# The bounds of one guest, and of one check over two, are several times what they take, and together
# less than that of the stage of CI, so that a machine that hangs is named.
seconds=1800 check=400
case ${1:-} in
guest) suites=TestConformanceEmbedded ;;
quick) suites='TestConformanceEmbedded TestConformanceAsPlugin/port' seconds=700 check=200 ;;
esac
for t in ib-host ib-nonatomic; do
	for suite in $suites; do
		name=${suite%%/*}
		if ! "$out/$t.test" -test.list "^$name\$" | grep -qx "$name"; then
			echo "rdma-test: transports/$t has no test $name" >&2
			exit 1
		fi
	done
done
cat >"$out/one.sh" <<'EOT'
set -e
out=$1 suites=$2
for t in ib-host ib-nonatomic; do
	echo "== $t: conformance, in one guest"
	for suite in $suites; do
		name=${suite%%/*} group=${suite#"${suite%%/*}"}
		"$out/$t.test" -test.timeout 900s -test.run "^$name\$$group" -test.v >"$out/suite.log" 2>&1 || { cat "$out/suite.log"; exit 1; }
		cases=$(grep -c -e "--- PASS: $name/.*/" "$out/suite.log" || true)
		if [ "$cases" = 0 ] || ! grep -q -e "^--- PASS: $name " "$out/suite.log"; then
			cat "$out/suite.log"
			echo "rdma-test: $t: nothing of $suite has run"
			exit 1
		fi
		echo "$suite: $cases cases passed, $(sed -n "s/^--- PASS: $name (\(.*\))$/\1/p" "$out/suite.log")"
	done
	echo "== $t: two ranks that leave one by one, in one guest"
	"$out/$t.test" -test.timeout 120s -test.run '^TestLeaveOneByOne$' -test.v >"$out/leave.log" 2>&1 || { cat "$out/leave.log"; exit 1; }
	grep -e '^--- PASS: TestLeaveOneByOne ' "$out/leave.log" || { cat "$out/leave.log"; exit 1; }
	echo "== $t: a job of 2 ranks, in one guest"
	timeout 150 bin/mscclpp-run --standalone -n 2 --transports $t "$out/pingpong"
done
echo "== metrics: retransmits of the adapter, in one guest"
"$out/metrics.test" -test.timeout 60s -test.run '^TestRetransmitsOfThisHost$' -test.v >"$out/metrics.log" 2>&1 || { cat "$out/metrics.log"; exit 1; }
grep -e '^--- PASS: TestRetransmitsOfThisHost ' "$out/metrics.log" || { cat "$out/metrics.log"; exit 1; }
# The kernel takes a second measurement of its clock only if it is within one percent of the first.
dmesg | grep -o 'tsc: Refined .*' || { dmesg | grep 'tsc: '; echo "rdma-test: the guest's clock is wrong"; exit 1; }
EOT
# A guest that hangs ends soon, and says where.
step="a guest that does not come up"
echo "== $step"
status=0
scripts/rdma-guest.sh --boot 0 sleep 60 >"$out/boot.log" 2>&1 || status=$?
if [ $status != 125 ] || ! grep -q '^[RE]IP=' "$out/boot.log"; then
	cat "$out/boot.log"
	echo "rdma-test: status $status: expected 125, and the registers of the processors" >&2
	exit 1
fi

step="conformance and jobs in one guest"
RDMA_REQUIRED=1 scripts/rdma-guest.sh --seconds $seconds sh "$out/one.sh" "$out" "$suites"

# Instructions are as many on a busy machine, so these are judged.
step="a signal with its completion, in instructions"
echo "== $step"
scripts/rdma-bench.sh --seconds 300 --count

# As information: few runs say little, and those on a busy machine nothing. `make rdma-bench`
# measures what has a target.
ratios() {
	step="a short comparison with programs without us"
	echo "== $step (ours over theirs; times: less is better)"
	status=0
	scripts/rdma-bench.sh --seconds 300 --repetitions 2 --iterations 60 --out "$out/ratios" >"$out/ratios.log" 2>&1 || status=$?
	if [ $status = 0 ]; then
		grep '^| ' "$out/ratios/README.md" | cut -d'|' -f2-10
	elif ! grep 'comparison refused' "$out/ratios.log"; then
		cat "$out/ratios.log"
		exit 1
	fi
}
case ${1:-} in
guest | quick) ;; # other stages of CI run beside this one
*) ratios ;;
esac

# Two hosts with two ranks in each: shared memory inside, and between them what is named.
# The second host finds the first by its address.
cases=24
[ "${1:-}" = quick ] || cases=0 # all of them
cat >"$out/two.sh" <<EOT
set -e
for t in ib-host ib-nonatomic tcp; do
	echo "\$t between two hosts"
	timeout $check bin/mscclpp-run -n 2 --nnodes 2 --node-rank "\$1" --master-addr 192.0.2.1 --transports shm,\$t check --at-most $cases
done
EOT
umask 077
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$out/secret"
export MSCCLPP_SECRET_FILE="$PWD/$out/secret"

# A host that is lost in the middle of a job: by its network, or because it is killed, which
# pair does. The ranks on the other one end with an error, within the bound of the heartbeat.
# The network loses all that the second host sends, and the host takes nothing any more: from
# an Ethernet device that is down the emulator reads nothing, and so blocks the other one's.
# The job's words are taken apart by the shell of the guest.
cat >"$out/lost.sh" <<'EOT'
counter=/sys/class/net/eth0/statistics/rx_packets
timeout 200 bin/mscclpp-run -n "$LOST_RANKS" --nnodes 2 --node-rank "$1" --master-addr 192.0.2.1 \
	--timestamp --transports "$LOST_TRANSPORTS" $LOST_JOB &
job=$!
if [ "$1" = 1 ]; then
	while kill -0 $job 2>/dev/null && [ "$(cat $counter)" -lt 2000 ]; do sleep 0.1; done
	echo "$(date +%T) host 2 is lost after $(cat $counter) packets"
	if [ "$LOST_HOW" = network ]; then
		tc qdisc replace dev eth0 root netem loss 100%
		ip address flush dev eth0
	fi
fi
last=0 at=$(cut -d. -f1 /proc/uptime)
while kill -0 $job 2>/dev/null; do
	now=$(cat $counter)
	[ "$now" = $last ] || { last=$now; at=$(cut -d. -f1 /proc/uptime); }
	sleep 0.2
done
took=$(($(cut -d. -f1 /proc/uptime) - at))
if wait $job; then
	echo "the job ended well, though a host was lost"
	exit 1
fi
echo "$(date +%T) the job ended with an error $took s after the last packet"
# The promise is 10 s. As in internal/promise, 20 more may be those in which the host was busy with
# other things. A rank that is cut off waits for all others, and then for goodbyes without an answer.
most=30
[ "$1" = 0 ] || most=50
[ $took -le $most ]
EOT

# end_after_other PID FILE: a host whose peer has failed gets a minute to say what it saw of that;
# then its emulator, whose number is in FILE, is killed.
end_after_other() {
	tries=0
	while kill -0 "$1" 2>/dev/null && [ $tries -lt 300 ]; do
		tries=$((tries + 1))
		sleep 0.2
	done
	[ $tries -lt 300 ] || kill -9 "$(cat "$2")" 2>/dev/null || true
}

# pair SCRIPT [killed] runs it on two hosts that share an Ethernet; killed: the second one is
# killed when it says that it is lost.
pair() {
	ether=$(mktemp -d "${TMPDIR:-/tmp}/rdma-test.XXXXXX")
	scripts/rdma-guest.sh --seconds $((3 * check + 100)) --join "$ether/socket" --host 1 --pid "$ether/pid1" sh "$1" 0 >"$out/host1.log" 2>&1 &
	first=$!
	tries=0
	while [ ! -S "$ether/socket" ] && [ $tries -lt 600 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	status=0 second=0
	: >"$out/host2.log"
	scripts/rdma-guest.sh --seconds $((3 * check + 100)) --join "$ether/socket" --host 2 --pid "$ether/pid2" sh "$1" 1 >"$out/host2.log" 2>&1 &
	other=$!
	if [ -n "${2:-}" ]; then
		while kill -0 $first 2>/dev/null && kill -0 $other 2>/dev/null && ! grep -q 'host 2 is lost' "$out/host2.log"; do sleep 0.1; done
		kill -9 "$(cat "$ether/pid2")" || second=$?
		wait $other || true
		wait $first || status=$?
	else
		while kill -0 $first 2>/dev/null && kill -0 $other 2>/dev/null; do sleep 0.2; done
		if ! kill -0 $first 2>/dev/null; then
			wait $first || status=$?
			[ $status = 0 ] || end_after_other $other "$ether/pid2"
			wait $other || second=$?
		else
			wait $other || second=$?
			[ $second = 0 ] || end_after_other $first "$ether/pid1"
			wait $first || status=$?
		fi
	fi
	rm -rf "$ether"
	cat "$out/host2.log" "$out/host1.log" | tr '\r' '\n' | grep -v ' failed: ' # that is progress
	if [ $status != 0 ] || [ $second != 0 ]; then
		echo "rdma-test: $1 failed: status $status on the first host, $second on the second" >&2
		exit 1
	fi
}

# lost HOW TRANSPORTS RANKS JOB PATTERN: an error on the first host has to look like the
# pattern; what of it does is printed.
lost() {
	step="one of two guests is lost: $1, $2, $3 ranks on each"
	echo "== $step"
	export LOST_HOW="$1" LOST_TRANSPORTS="$2" LOST_RANKS="$3" LOST_JOB="$4"
	if [ "$1" = killed ]; then pair "$out/lost.sh" killed; else pair "$out/lost.sh"; fi
	if ! grep -m 1 -o "$5" "$out/host1.log"; then
		echo "rdma-test: no error like '$5' on the first host" >&2
		exit 1
	fi
}

[ "${1:-}" != guest ] || exit 0
step="check on 4 ranks over two guests"
echo "== $step"
pair "$out/two.sh"
# Rank 0 puts without end, so that its adapter is the one that says that nobody answers, long before the
# heartbeat. Puts are small: an adapter repeats all that is under way, which takes an emulated
# one long.
puts="bin/compare-verbs rank bandwidth:8:1000000000"
unanswered='communicator failed.*rank 1: peer failed: device rxe0 port 1: request [0-9].* ended with status 12 (retries exceeded'
# Ranks of a check also meet over the bootstrap: then no adapter has anything to say, and the
# silence of the other host is what is heard of.
collectives="check --tier full"
gone='communicator failed.*rank [23]: .*peer failed.*\(device rxe0 port 1: request [0-9].* ended with status 12 (retries exceeded\|host has been silent for\)'
lost network ib-host 1 "$puts" "$unanswered"
lost network ib-nonatomic 1 "$puts" "$unanswered"
lost killed shm,ib-host 2 "$collectives" "$gone"
[ "${1:-}" != quick ] || exit 0
lost killed shm,ib-nonatomic 2 "$collectives" "$gone"
lost killed shm,tcp 2 "$collectives" 'communicator failed.*rank [23]: .*peer failed'
lost killed ib-host 1 "$puts" "$unanswered"
lost killed ib-nonatomic 1 "$puts" "$unanswered"
