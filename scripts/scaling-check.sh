#!/bin/sh
# Measures collectives over 2, 3 and 4 "hosts", network namespaces of this machine with two
# ranks each, whose interfaces let 100 Mbit/s through: so slow that nothing else counts,
# and that a few processors do for all hosts. docs/scaling.md compares the times with
# what `mscclpp-run simulate` predicts. Needs root, ip and tc; `make build kernels` before.
# Where it cannot run it says what is missing and ends with code 77.
#
#   scripts/scaling-check.sh >docs/results/scaling/namespaces.jsonl
set -eu
cd "$(dirname "$0")/.."

skip() { echo "scaling-check: skipped: $*" >&2; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root, to make network namespaces"
for tool in ip tc; do
	command -v $tool >/dev/null || skip "$tool is not installed (Debian: iproute2)"
done
[ -x bin/mscclpp-run ] && [ -x bin/plugins/mscclpp-transport-tcp ] || { echo "scaling-check: run make build first" >&2; exit 1; }

tag=msd$$
work=$(mktemp -d)
pids=
clean() {
	for p in $pids; do kill -KILL "$p" 2>/dev/null || :; done
	for n in 0 1 2 3 switch; do ip netns del $tag-$n 2>/dev/null || :; done
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

ip netns add $tag-switch 2>/dev/null || skip "no permission to make network namespaces here"
ip -n $tag-switch link add name bridge type bridge 2>/dev/null || skip "no bridges in this kernel"
ip -n $tag-switch link set bridge up
for n in 0 1 2 3; do
	ip netns add $tag-$n
	ip link add name net netns $tag-$n type veth peer name port$n netns $tag-switch || skip "no virtual interfaces (veth) in this kernel"
	ip -n $tag-switch link set port$n master bridge
	ip -n $tag-switch link set port$n up
	ip -n $tag-$n addr add 10.231.8.$((n + 1))/24 dev net
	ip -n $tag-$n link set lo up
	ip -n $tag-$n link set net up
	ip netns exec $tag-$n tc qdisc add dev net root tbf rate 100mbit burst 16k latency 400ms 2>/dev/null || skip "no tbf in this kernel"
done
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret"
chmod 600 "$work/secret"

# job HOSTS ARGUMENTS…: bench on so many hosts.
port=29571
job() {
	hosts=$1
	shift
	port=$((port + 1)) pids= n=0
	while [ $n -lt "$hosts" ]; do
		MSCCLPP_SECRET_FILE=$work/secret MSCCLPP_BOOTSTRAP__HOST_ID=host-$n ip netns exec $tag-$n timeout 120 \
			bin/mscclpp-run -N "$hosts" --node-rank $n --master-addr 10.231.8.1 --master-port $port --transports shm,tcp -n 2 \
			bench "$@" --bytes 2M --iters 5 --calls 1 --warmup 1 --format json >"$work/$n" 2>&1 &
		pids="$pids $!" n=$((n + 1))
	done
	for p in $pids; do
		wait "$p" || { echo "scaling-check: $* over $hosts hosts failed" >&2; cat "$work"/[0-3] >&2; exit 1; }
	done
	pids=
	sed 's/"transport_source":"[^"]*"/"transport_source":""/' "$work/0"
}

for hosts in 2 3 4; do
	job $hosts allreduce allgather reducescatter broadcast --algorithm hierarchical_large
	job $hosts allreduce allgather reducescatter alltoall --algorithm ports
done
