#!/bin/sh
# Measures small collectives over two "hosts" with two ranks each: in a virtual machine with
# soft-RoCE over the transports over InfiniBand, and on this machine over tcp. Prints JSON
# lines; docs/results/hosts has those of one run. Run `make build kernels` before.
#
#   hosts-bench.sh [tcp | ib-host | ib-nonatomic]... -- COLLECTIVE [ARGUMENTS OF BENCH]
#
# Each algorithm is measured in turns, so that what else the machine does meets all of them.
# ROUNDS is how often, 3 by default; ALGORITHMS are those measured. Behind the times comes
# how many packets the adapter has sent, unless TIMES_ONLY is set.
set -eu
cd "$(dirname "$0")/.."

out=bin/hosts-bench
mkdir -p "$out"
transports=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	transports="$transports $1"
	shift
done
[ $# = 0 ] || shift
[ -n "$transports" ] || transports='tcp ib-host ib-nonatomic'
rounds=${ROUNDS:-3}
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$out/secret"
chmod 600 "$out/secret"
trap 'rm -f "$out/secret"' EXIT
trap 'exit 130' HUP INT TERM
export MSCCLPP_SECRET_FILE="$PWD/$out/secret"

# all.sh TRANSPORT ADDRESS ROUNDS ALGORITHMS ARGUMENTS…: one line of JSON for each size of each.
cat >"$out/all.sh" <<'JOB'
set -eu
transport=$1 address=$2 rounds=$3 algorithms=$4
shift 4
port=29600
# half NUMBER PORT ARGUMENTS…: the ranks of one host
half() {
	n=$1 p=$2
	shift 2
	MSCCLPP_BOOTSTRAP__HOST_ID=host-$n timeout 300 bin/mscclpp-run -N 2 --node-rank "$n" --master-addr "$address" \
		--master-port "$p" --transports "shm,$transport" -n 2 bench "$@" --format json
}
# both ARGUMENTS…: the ranks of both
both() {
	port=$((port + 1))
	half 1 $port "$@" >bin/hosts-bench/other 2>&1 &
	half 0 $port "$@" 2>bin/hosts-bench/errors | grep -o '{"collective".*' | sed 's/"transport_source":"[^"]*"/"transport_source":""/' >bin/hosts-bench/lines || :
	wait $! && [ -s bin/hosts-bench/lines ] || { cat bin/hosts-bench/errors bin/hosts-bench/other >&2; exit 1; }
}
for round in $(seq "$rounds"); do
	for algorithm in $algorithms; do
		both "$@" --algorithm "$algorithm"
		cat bin/hosts-bench/lines
	done
done
# How many packets the adapter sends, answers included: the difference of two runs, so that
# only the calls count.
counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
[ -r $counter ] && [ -z "${TIMES_ONLY:-}" ] || exit 0
for algorithm in $algorithms; do
	for bytes in 8 4096 32768; do
		sent=0
		for calls in 100 600; do
			before=$(cat $counter)
			both "$1" --bytes $bytes --iters 1 --warmup 0 --calls $calls --algorithm "$algorithm"
			sent=$(($(cat $counter) - before - sent))
		done
		echo "{\"counted\":\"packets of the adapter\",\"transport\":\"$transport\",\"collective\":\"$1\",\"bytes\":$bytes,\"algorithm\":\"$algorithm\",\"calls\":500,\"packets\":$sent}"
	done
done
JOB

for t in $transports; do
	if [ "$t" = tcp ]; then
		sh "$out/all.sh" tcp 127.0.0.1 "$rounds" "${ALGORITHMS:-hierarchical_small hierarchical_large}" "$@"
		continue
	fi
	[ "$(id -u)" != 0 ] || scripts/deps.sh rdma >&2
	# Kernels for the emulated processor, which has no AVX-512.
	mkdir -p "$out/plugins"
	ln -f bin/plugins/mscclpp-transport-* "$out/plugins/" 2>/dev/null || true # the folders that it leaves out are kernels
	bin/mscclpp-kernels build --spec transports/shm/kernels/kernels.json --target x86-64-v3 --out "$out/plugins/mscclpp-transport-shm.kernels" >&2
	MSCCLPP_PLUGINS__DIRS="$PWD/$out/plugins" MSCCLPP_PLUGINS__START_TIMEOUT=120s MSCCLPP_BOOTSTRAP__TIMEOUT=240s \
		scripts/rdma-guest.sh --seconds 1500 sh "$out/all.sh" "$t" 192.0.2.1 "$rounds" "${ALGORITHMS:-hierarchical_packets hierarchical_small hierarchical_large}" "$@"
done
