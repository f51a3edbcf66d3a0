#!/bin/bash
# Programs that use NCCL, unchanged, on RANKS GPUs of this machine (default: 2), with libnccl.so.2 of this project preloaded and without.
#
#   clients.sh LIBRARY [NAME…]
#
# LIBRARY is the path of libnccl.so.2. Each client has a time limit and prints a line that begins with CLIENT; measurements
# are lines of JSON after ROW. All goes to $OUT/clients.txt as well (OUT: default /tmp/clients), logs of failures to
# $OUT/clients.log. No client begins after SECONDS_IN_ALL (470). With names, only these run:
# tests ddp fallback cupy jax hosttime start memory decode collectives.
set -uo pipefail
[ $# -ge 1 ] && [ -e "$1" ] || { echo "usage: clients.sh libnccl.so.2 [NAME…]" >&2; exit 2; }
library=$(realpath "$1")
shift
wanted=" $* "
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-/tmp/clients}
tmp=$(mktemp -d)
mkdir -p "$out"
: >"$out/clients.txt"
: >"$out/clients.log"
begun=$SECONDS
all=${SECONDS_IN_ALL:-470}
python=${PYTHON:-python3}
export RANKS=${RANKS:-2}
export CLIENTS_RUN=$$ PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4 MASTER_ADDR=127.0.0.1 NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export TORCH_NCCL_TRACE_BUFFER_SIZE=0 PYTHONDONTWRITEBYTECODE=1
port=$((20000 + $$ % 20000))
nccl=$("$python" -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null || true)

# sweep kills what a client has left, by the variable that all have.
sweep() {
	local p
	for p in $(grep -lszx "CLIENT_NOW=$1" /proc/[0-9]*/environ); do
		p=${p#/proc/}
		kill -9 "${p%/environ}" 2>/dev/null
	done
}
trap 'sweep "$$.main"; sweep "$$.tests"; rm -rf "$tmp"' EXIT

is_wanted() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }
left() { echo $((all - (SECONDS - begun))); }

# ranks LIBRARY COMMAND… runs a command as so many ranks; an empty LIBRARY is what the program finds by itself.
ranks() {
	local preload=$1 r pids=() status=0
	shift
	port=$((port + 11))
	for ((r = 0; r < RANKS; r++)); do
		RANK=$r LOCAL_RANK=$r WORLD_SIZE=$RANKS MASTER_PORT=$port ID_FILE=$tmp/id.$port LD_PRELOAD=$preload "$@" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || status=$?; done
	return $status
}
alone() { # LIBRARY COMMAND…
	local preload=$1
	shift
	LD_PRELOAD=$preload "$@"
}
export -f ranks alone
export tmp port

# client TAG NAME LIMIT COMMAND…
client() {
	local tag=$1 name=$2 limit=$3 rest status=0
	shift 3
	rest=$(left)
	if [ "$rest" -lt 10 ]; then
		echo "CLIENT $name: NOT run: no time left" | tee -a "$out/clients.txt"
		return
	fi
	[ "$limit" -lt "$rest" ] || limit=$rest
	port=$((port + 101))
	local t=$SECONDS
	CLIENT_NOW=$$.$tag port=$port timeout -k 3 "$limit" bash -c '"$@"' - "$@" >"$tmp/$tag.out" 2>"$tmp/$tag.err" || status=$?
	sweep "$$.$tag"
	grep -hE '^(CLIENT|ROW) ' "$tmp/$tag.out" | tee -a "$out/clients.txt"
	if [ $status != 0 ]; then
		[ $status != 124 ] && [ $status != 137 ] || status="not done after $limit s"
		echo "CLIENT $name: FAILED ($status): $(grep -vE '^\s*$|Warning|W[0-9]{4} ' "$tmp/$tag.err" | tail -n 2 | cut -c1-300 | tr '\n' '|')" | tee -a "$out/clients.txt"
		{ echo "==== $name: $status"; tail -c 6000 "$tmp/$tag.out"; tail -c 12000 "$tmp/$tag.err"; } >>"$out/clients.log"
	fi
	echo "     ($name: $((SECONDS - t)) s)"
}

echo "library $library, NCCL ${nccl:-not found}, $(date -u +%FT%TZ)" | tee -a "$out/clients.txt"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | tee -a "$out/clients.txt"
cd "$here" || exit

# torch's own tests start many processes: they run beside the others that measure nothing.
if is_wanted tests; then
	(
		export SECONDS_FOR_TESTS=${SECONDS_FOR_TESTS:-120}
		client tests "torch's distributed_test" 220 alone "$library" "$python" torchtests.py
		# Those that fail there may fail with NCCL, too.
		failed=$(sed -n 's/^FAILED //p' "$tmp/tests.out")
		# shellcheck disable=SC2086 # a list of words
		[ -z "$failed" ] || client tests "the same with NCCL" 120 alone "" "$python" torchtests.py $failed
	) &
	tests=$!
fi
if is_wanted ddp; then
	client main "torch DDP" 60 alone "$library" "$python" -m torch.distributed.run --standalone --nproc-per-node "$RANKS" ddp.py
	client main "torch DDP with NCCL" 60 ranks "" "$python" ddp.py
fi
if is_wanted fallback && [ -n "$nccl" ]; then
	export MSCCLPP_NCCL_LIB_PATH=$nccl
	MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=allreduce,broadcast client main "torch DDP, allreduce and broadcast by NCCL" 60 ranks "$library" "$python" ddp.py
	MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=allgather,send client main "collectives in graphs, allgather and messages by NCCL" 60 ranks "$library" "$python" collectives.py 65536
	unset MSCCLPP_NCCL_LIB_PATH
fi
! is_wanted cupy || client main "CuPy nccl" 45 alone "$library" "$python" cupyfork.py
if is_wanted jax; then
	client main "JAX, one process" 60 alone "$library" "$python" jaxsum.py
	client main "JAX, two processes" 60 ranks "$library" "$python" jaxsum.py
fi
[ -z "${tests:-}" ] || wait "$tests"

# Measurements run alone, this library and NCCL by turns.
if is_wanted hosttime; then
	if gcc -O2 -o "$tmp/hosttime" hosttime.c -I"$(dirname "$library")/../include" -I"$here" -I"$here/../../nccl" -L"$(dirname "$library")" -l:libnccl.so.2 -ldl 2>>"$out/clients.log"; then
		for turn in 1 2; do
			client main "host time" 40 ranks "$library" "$tmp/hosttime"
			[ -z "$nccl" ] || client main "host time with NCCL" 40 ranks "$nccl" "$tmp/hosttime"
		done
	else
		echo "CLIENT host time: FAILED: does not compile" | tee -a "$out/clients.txt"
	fi
fi
if is_wanted start; then
	for turn in 1 2; do
		for which in "$library" ""; do
			export CUDA_CACHE_PATH=$tmp/cache.$turn.${#which}
			client main "start ${which:+on ours}" 40 ranks "$which" "$python" start.py
		done
	done
	unset CUDA_CACHE_PATH
fi
if is_wanted memory; then
	client main "memory on ours" 60 ranks "$library" "$python" memory.py
	client main "memory on NCCL" 60 ranks "" "$python" memory.py
fi
if is_wanted decode; then
	for turn in 1 2; do
		client main "decode on ours" 60 ranks "$library" "$python" decode.py
		client main "decode on NCCL" 60 ranks "" "$python" decode.py
	done
fi
if is_wanted collectives; then
	client main "torch collectives on ours" 100 ranks "$library" "$python" collectives.py
	client main "torch collectives on NCCL" 100 ranks "" "$python" collectives.py
fi
echo "all: $((SECONDS - begun)) s" | tee -a "$out/clients.txt"
