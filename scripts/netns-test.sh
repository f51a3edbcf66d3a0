#!/bin/sh
# A job over two "hosts": two network namespaces of this machine, joined by a pair of
# virtual interfaces. The ranks of a host share memory (shm), the hosts a network
# (tcp), by configuration alone. In the end the cable is pulled, and the job has to
# end with an error that names the rank that is gone. Needs root; `make build kernels` before.
# Where it cannot run it says what is missing and ends with code 77.
#
# With --delay MS and --loss PERCENT the network is made bad by netem.
set -eu
cd "$(dirname "$0")/.."

delay= loss=
while [ $# -gt 0 ]; do
	case $1 in
	--delay) delay=$2; shift 2 ;;
	--loss) loss=$2; shift 2 ;;
	*) echo "netns-test: unknown argument $1: expected --delay MS, --loss PERCENT" >&2; exit 2 ;;
	esac
done

skip() { echo "netns-test: skipped: $*" >&2; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root, to make network namespaces"
command -v ip >/dev/null || skip "ip is not installed (Debian: iproute2)"
[ -x bin/mscclpp-run ] && [ -x bin/plugins/mscclpp-transport-tcp ] || { echo "netns-test: run make build first" >&2; exit 1; }

tag=msc$$
a=$tag-a b=$tag-b
work=$(mktemp -d)
pids=
clean() {
	for p in $pids; do kill -KILL "$p" 2>/dev/null || :; done
	ip netns del $a 2>/dev/null || :
	ip netns del $b 2>/dev/null || :
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

ip netns add $a 2>/dev/null || skip "no permission to make network namespaces here"
ip netns add $b
ip link add ${tag}0 netns $a type veth peer name ${tag}1 netns $b || skip "no virtual interfaces (veth) in this kernel"
ip -n $a addr add 10.231.7.1/24 dev ${tag}0
ip -n $b addr add 10.231.7.2/24 dev ${tag}1
for n in "$a ${tag}0" "$b ${tag}1"; do
	set -- $n
	ip -n "$1" link set lo up
	ip -n "$1" link set "$2" up
	if [ -n "$delay$loss" ]; then
		ip netns exec "$1" tc qdisc add dev "$2" root netem ${delay:+delay ${delay}ms} ${loss:+loss $loss%} 2>/dev/null ||
			skip "no netem in this kernel"
	fi
done

go=${GO:-go}
for e in pingpong allreduce; do $go build -o "$work/$e" ./examples/$e; done
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret"
chmod 600 "$work/secret"

# host NAMESPACE INDEX RANKS PROGRAM…: one host's part of a job.
port=29471
host() {
	ns=$1 index=$2 ranks=$3
	shift 3
	MSCCLPP_SECRET_FILE=$work/secret MSCCLPP_BOOTSTRAP__HOST_ID=host-$index MSCCLPP_TRANSPORT__TCP__PEER_TIMEOUT=4s \
		exec ip netns exec $ns bin/mscclpp-run -N 2 --node-rank "$index" --master-addr 10.231.7.1 --master-port $port \
		--transports shm,tcp --log-level debug -n "$ranks" "$@"
}

# job RANKS PROGRAM…: both parts. Their output is in $work/0 and $work/1.
start() {
	port=$((port + 1))
	(host $a 0 "$@") >"$work/0" 2>&1 &
	first=$!
	(host $b 1 "$@") >"$work/1" 2>&1 &
	second=$!
	pids="$first $second"
}

job() {
	start "$@"
	failed=0
	wait $first || failed=1
	wait $second || failed=1
	pids=
	if [ $failed = 1 ]; then
		echo "netns-test: $* failed" >&2
		cat "$work/0" "$work/1" >&2
		exit 1
	fi
}

# driven NAMESPACE: how many connections to the other host ranks there have. Their plugins
# have them as well, to watch them.
driven() {
	ip netns exec $1 ss -Htnp state established | grep '10\.231\.7\.1.*10\.231\.7\.2\|10\.231\.7\.2.*10\.231\.7\.1' |
		grep '"mscclpp-run"' | grep -c '"mscclpp-transpo"' || :
}

# linked HOST KIND TRANSPORT: lines that say so.
linked() { grep -c "kind=$2 transport=$3\$" "$work/$1" || :; }

job 1 "$work/pingpong"
[ "$(linked 0 port tcp)" = 1 ] || { echo "netns-test: the ping-pong did not go over tcp" >&2; exit 1; }
grep 'there and back' "$work/0" "$work/1" | sed 's/^[^:]*:/tcp, two hosts: /'

job 2 "$work/allreduce"
[ "$(linked 1 memory shm)" -ge 2 ] && [ "$(linked 0 port tcp)" = 4 ] ||
	{ echo "netns-test: expected shm within hosts and tcp between them" >&2; grep linked "$work/0" "$work/1" >&2; exit 1; }
[ "$(cat "$work/0" "$work/1" | grep -c 'of 4: 6 … 4002')" = 4 ] || { echo "netns-test: wrong results" >&2; cat "$work/0" "$work/1" >&2; exit 1; }
echo "all-reduce of 2 hosts with 2 ranks each: shm within, tcp between"

# Every collective in the cases of the quick tier, over the streams that ranks drive. Cases
# are few: what is tested here is the way of the bytes.
job 2 check --at-most 60
for h in 0 1; do
	[ "$(linked $h port tcp)" -ge 4 ] || { echo "netns-test: check: host $h did not use tcp" >&2; exit 1; }
done
grep -h -E '[0-9]+ passed, 0 failed' "$work/0" | sed 's/^/check, 2 hosts with 2 ranks each: /' | grep . ||
	{ echo "netns-test: check does not say that 0 failed" >&2; cat "$work/0" >&2; exit 1; }

# The cable is pulled while all ranks talk.
start 2 bench allreduce --bytes 4M:4M --iters 1000000
for try in $(seq 300); do
	[ "$(linked 0 port tcp)" = 4 ] && break
	sleep 0.1
done
if command -v ss >/dev/null; then
	streams=$(driven $b)
	[ "$streams" -ge 16 ] || { echo "netns-test: ranks of one host have $streams streams, expected 4 for each of 4 pairs" >&2; ip netns exec $b ss -Htnp >&2; exit 1; }
	echo "ranks of one host drive $streams streams"
fi
ip -n $a link set ${tag}0 down
began=$(date +%s)
for try in $(seq 300); do
	kill -0 $first 2>/dev/null || kill -0 $second 2>/dev/null || break
	sleep 0.1
done
took=$(($(date +%s) - began))
if kill -0 $first 2>/dev/null || kill -0 $second 2>/dev/null; then
	echo "netns-test: the job still runs ${took} s after the cable was pulled" >&2
	exit 1
fi
pids=
for h in 0 1; do
	others='[23]' # ranks of the other host
	[ $h = 0 ] || others='[01]'
	grep -E -m 1 "communicator failed.*rank $others: .*(peer failed|silent|unreachable|timed out|no route)" "$work/$h" >"$work/why-$h" ||
		{ echo "netns-test: host $h does not say which rank of the other one it lost, and why" >&2; cat "$work/$h" >&2; exit 1; }
done
[ $took -le 10 ] || { echo "netns-test: the job ended ${took} s after the cable was pulled, expected 10 at most" >&2; exit 1; }
echo "cable pulled: both hosts ended within ${took} s: $(grep -oE "cause=.*" "$work/why-0" | cut -c 1-200)"
echo "netns-test: passed"
