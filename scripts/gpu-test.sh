#!/bin/bash
# Tests and measures on a machine with NVIDIA GPUs what `make dist-gpu` packed. It
# needs the driver, and builds nothing. Where NCCL is installed it is measured too.
#
#   gpu-test.sh [--tier smoke|check|hosts|bench|costs|interpret|sanitize|soak|all] [--ranks N] [--out DIR] [--budget SECONDS]
#               [--sanitizer FILE]
#
#   --tier    smoke: tests of the driver's use, one small job. check: every collective in
#             every combination of values, also over two "hosts" of this machine, conformance,
#             killed ranks, memory. hosts: of these, what is about "hosts". bench: the tables
#             of docs/performance-h200.md. costs: what a call costs the host, the kernels before
#             and behind it, and a multiplication beside it; what the abort check costs.
#             interpret: the device suite with its kernels, and each algorithm for each type and
#             operation on two GPUs and in the interpreter, whose bits are compared.
#             sanitize: compute-sanitizer over device primitives and a small check. soak: a
#             million calls. all: every tier but hosts, which is part of check. Several with
#             commas. Default: smoke
#   --ranks   default: one for each GPU
#   --out     where results.jsonl, summary.txt, steps.json, machine.txt and logs.tar.gz go.
#             Default: gpu-results
#   --budget  steps that would start later are skipped, and said to be. Default: 240
#   --sanitizer  where compute-sanitizer is; then it has to be there. Default:
#             /usr/local/cuda/bin, or on the path; where it is not, the tier is skipped
#
# Environment: MSCCLPP_NCCL_LIBRARY, the NCCL to measure; GPU_TEST_BYTES, the sizes of
# the tables (1K:1G); GPU_TEST_PROCESSES, whose median they hold (3).
# The exit code is 1 when a step failed.
set -uo pipefail

tier=smoke ranks= out=gpu-results budget=240 sanitizer= sanitizer_named=
usage() {
	echo "gpu-test: $1; expected [--tier smoke|check|hosts|bench|costs|interpret|sanitize|soak|all] [--ranks N] [--out DIR] [--budget SECONDS] [--sanitizer FILE]" >&2
	exit 2
}
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage "$1 without a value"
	case $1 in
	--tier) tier=$2 ;;
	--ranks) ranks=$2 ;;
	--out) out=$2 ;;
	--budget) budget=$2 ;;
	--sanitizer) sanitizer=$2 sanitizer_named=yes ;;
	*) usage "$1 is unknown" ;;
	esac
	shift 2
done
case $budget in '' | *[!0-9]*) usage "--budget $budget" ;; esac
case $ranks in *[!0-9]* | 0) usage "--ranks $ranks" ;; esac
[ "$tier" = all ] && tier=smoke,check,bench,costs,interpret,sanitize,soak
for t in ${tier//,/ }; do
	case $t in smoke | check | hosts | bench | costs | interpret | sanitize | soak) ;; *) usage "--tier $t" ;; esac
done

now() { date +%s%N; }
begin=$(now)
left() { echo $((budget - ($(now) - begin) / 1000000000)); } # seconds
at_most() { # SECONDS, or what is left
	local room
	room=$(left)
	echo $((room < $1 ? room : $1))
}

# Find the programs: around this script, or in the archive beside it.
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/bin/mscclpp-run" ] && [ -d "$here/tests" ]; then
	top=$here
elif [ -f "$here/mscclpp-gpu.tar.xz" ]; then
	top=${TMPDIR:-/tmp}/mscclpp-gpu-$(id -u)/mscclpp-gpu
	rm -rf "$top"
	mkdir -p "${top%/*}"
	tar -C "${top%/*}" -xJf "$here/mscclpp-gpu.tar.xz" 2>/dev/null ||
		python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/mscclpp-gpu.tar.xz" "${top%/*}" || {
		echo "gpu-test: $here/mscclpp-gpu.tar.xz cannot be unpacked: expected tar with xz, or python3" >&2
		exit 1
	}
else
	echo "gpu-test: expected bin/ and tests/, or mscclpp-gpu.tar.xz, beside $0: see make dist-gpu" >&2
	exit 1
fi
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
logs=$(mktemp -d)
run=$top/bin/mscclpp-run
results=$out/results.jsonl
: >"$results"
: >"$logs/steps"
trap 'rm -rf "$logs"' EXIT
cd "$top/tests" || exit 1

# The machine and its tools.
nccl_library() {
	python3 - 2>/dev/null <<'PYTHON' && return
import glob, os, sys, sysconfig, site
places = [sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *site.getsitepackages(), site.getusersitepackages()]
for place in places:
    for file in glob.glob(os.path.join(place, "nvidia", "nccl", "lib", "libnccl.so.2")):
        print(file)
        sys.exit(0)
sys.exit(1)
PYTHON
	ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2/ {print $NF; found = 1; exit} END {exit !found}'
}
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off where it is off
if [ -z "${MSCCLPP_NCCL_LIBRARY:-}" ]; then
	MSCCLPP_NCCL_LIBRARY=$(nccl_library) || MSCCLPP_NCCL_LIBRARY=
fi
versus=()
if [ -n "$MSCCLPP_NCCL_LIBRARY" ]; then
	export MSCCLPP_NCCL_LIBRARY
	versus=(--vs nccl)
	nccl=$MSCCLPP_NCCL_LIBRARY
else
	unset MSCCLPP_NCCL_LIBRARY
	nccl="not installed: nothing is compared with it"
fi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" = 0 ]; then gpus=${CUDA_EMULATED_GPUS:-0}; fi
: "${ranks:=$((gpus > 1 ? gpus : 2))}"
if [ ${#versus[@]} -gt 0 ] && [ "$ranks" -gt "$gpus" ]; then
	versus=()
	nccl="$nccl, which wants a GPU for each rank: nothing is compared with it"
fi
{
	echo "version  $(cat "$top/VERSION" 2>/dev/null)"
	echo "date     $(date -u +%Y-%m-%dT%H:%M:%SZ)"
	echo "kernel   $(uname -sr), $(nproc) processors"
	echo "nccl     $nccl; NCCL_NVLS_ENABLE=$NCCL_NVLS_ENABLE"
	nvidia-smi --query-gpu=index,name,driver_version,memory.used,memory.total,clocks.sm,clocks.max.sm,power.limit --format=csv 2>&1
	nvidia-smi topo -m 2>&1
} >"$out/machine.txt"
head -n 4 "$out/machine.txt"
echo "gpus     $gpus, $ranks ranks; tiers ${tier//,/ }, at most $budget s"

failed=0
# record NAME MILLISECONDS OUTCOME adds a line to the report.
record() {
	printf '%-28s %7d.%d s  %s\n' "$1" $(($2 / 1000)) $(($2 % 1000 / 100)) "$3"
	printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$logs/steps"
}

# step NAME LIMIT COMMAND… runs a command for at most LIMIT seconds, and no longer than
# the budget: a command that the budget ends has not failed. Standard output goes to
# $logs/NAME.out as well as to the log.
step() {
	local name=$1 limit=$2 room start code wanted=$2
	shift 2
	room=$(left)
	if [ "$room" -lt 3 ]; then
		record "$name" 0 "skipped: the budget of $budget s is used up"
		return 1
	fi
	limit=$(at_most "$limit")
	start=$(now)
	timeout -k 12 "$limit" "$@" >"$logs/$name.out" 2>"$logs/$name.err" </dev/null
	code=$?
	local took=$((($(now) - start) / 1000000))
	case $code in
	0) record "$name" $took ok ;;
	124 | 137)
		if [ "$limit" -lt "$wanted" ]; then
			record "$name" $took "skipped: ended after $limit of at most $wanted s, as the budget of $budget s is used up"
		else
			failed=$((failed + 1))
			record "$name" $took "FAIL: ended after $limit s"
			relevant "$name"
		fi
		;;
	77) record "$name" $took "skipped: $(tail -n 1 "$logs/$name.err" | cut -c1-160)" ;;
	*)
		failed=$((failed + 1))
		record "$name" $took "FAIL: exit code $code"
		relevant "$name"
		;;
	esac
	return $code
}

# relevant NAME prints what explains a failure.
relevant() {
	{
		grep -hE -- '^ *--- FAIL|FAIL|panic:| [Ee]rror|wrong|_test.go:|expected' "$logs/$1.out" "$logs/$1.err" | grep -vE '^ok |^time=|--- PASS|=== RUN' | tail -n 8
		grep -v '^time=' "$logs/$1.err" | tail -n 3
	} 2>/dev/null | awk '!seen[$0]++' | cut -c1-500 | sed 's/^/    | /'
}

# gotest NAME LIMIT PROGRAM PATTERN runs tests of a package.
gotest() {
	step "$1" "$2" "./$3" -test.v -test.count=1 -test.timeout "$2s" -test.run "$4"
	local code=$?
	if [ -f "$logs/$1.out" ]; then
		local passed skipped
		passed=$(grep -c '^--- PASS' "$logs/$1.out")
		skipped=$(grep -c '^--- SKIP' "$logs/$1.out")
		echo "    $passed passed, $skipped skipped"
		grep -hB1 -- '^--- SKIP' "$logs/$1.out" | grep '_test.go:' | sed 's/^ *[^ ]*: //' | cut -c1-160 | sort | uniq -c | sort -rn | head -n 4
	fi
	return $code
}

smoke() {
	step topo 20 "$run" topo
	gotest cuda 60 cuda.test .
	gotest proxy 40 proxy.test 'Copier|Lane|Forwarder|Settle'
	step primitives 60 actor/devicetest actor sm_90 actor
	step conform-quick 150 "$run" conform --plugin "$top/bin/plugins/mscclpp-transport-cudaipc"
	step example 30 "$run" -n "$ranks" "$top/bin/example-allreduce"
	step allreduce-2 60 "$run" -n 2 bench allreduce --device cuda --dtype f16 --bytes 1K:1M --factor 4 --iters 20 --check
	step allreduce-graph 60 "$run" -n "$ranks" bench allreduce --device cuda --dtype f16 --bytes 1K:1M --factor 4 --iters 20 \
		--graph 20 --registered --check "${versus[@]}"
	tail -n 12 "$logs/allreduce-graph.out" 2>/dev/null | cut -c1-150
}

# ranks_alone N ARGUMENTS… starts ranks as an engine would, with no launcher that could
# end them: what ends them is their own doing. Sets pids. With $hosts the ranks are on as
# many "hosts".
ranks_alone() {
	local n=$1 port=$((20000 + RANDOM % 12000)) r local_ranks place=()
	shift
	pids=()
	local_ranks=$((n / ${hosts:-1}))
	for ((r = 0; r < n; r++)); do
		if [ -n "${hosts:-}" ]; then
			place=(MSCCLPP_SECRET_FILE="$secret" MSCCLPP_BOOTSTRAP__HOST_ID="host-$((r / local_ranks))"
				CUDA_VISIBLE_DEVICES="$(gpus_of "$((r / local_ranks))" "$hosts")")
		fi
		env RANK=$r WORLD_SIZE="$n" LOCAL_RANK=$((r % local_ranks)) LOCAL_WORLD_SIZE=$local_ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${place[@]}" \
			"$run" "$@" >"$logs/alone-$r.out" 2>"$logs/alone-$r.err" </dev/null &
		pids+=($!)
		disown # or the shell would tell of each that is killed
	done
}

# gpus_of INDEX HOSTS lists the GPUs of a "host": an even share of all, or the one that
# there is.
gpus_of() {
	local each=$((gpus / $2)) g list=
	[ $each -gt 0 ] || { echo 0 && return; }
	for ((g = $1 * each; g < ($1 + 1) * each; g++)); do list=$list,$g; done
	echo "${list#,}"
}

# over_hosts RANKS ARGUMENTS… runs a job of two "hosts" with so many ranks each: two
# launchers, memory inside each, tcp between them.
over_hosts() {
	local n=$1 port=$((20000 + RANDOM % 12000)) other code
	shift
	host() {
		MSCCLPP_SECRET_FILE=$secret MSCCLPP_BOOTSTRAP__HOST_ID=host-$1 CUDA_VISIBLE_DEVICES=$(gpus_of "$1" 2) \
			exec "$run" -n "$n" --nnodes 2 --node-rank "$1" --master-addr 127.0.0.1 --master-port "$port" --transports cudaipc,tcp "${@:2}"
	}
	(host 1 "$@") >&2 &
	other=$!
	(host 0 "$@")
	code=$?
	wait $other || code=$?
	return $code
}
secret=$(mktemp)
trap 'rm -rf "$logs" "$secret"' EXIT
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$secret"
export -f over_hosts gpus_of
export run gpus secret

# hosts: GPUs of two "hosts", which share no memory as far as they know. Ranks that share
# a GPU take turns of milliseconds: few cases.
hosts() {
	if [ ! -x "$top/bin/plugins/mscclpp-transport-tcp" ]; then
		record hosts 0 "skipped: there is no plugin for tcp"
		return
	fi
	local each=$((gpus / 2)) few=() job=(bash -c 'over_hosts "$@"' over_hosts)
	gotest hosts-tests 120 devicetest.test 'Hosts|EndWhileStreams|ByCopyEngines'
	[ "$gpus" -ge 2 ] || few=(--at-most 40)
	step hosts-2x1 120 "${job[@]}" 1 check --device cuda "${few[@]}"
	tail -n 1 "$logs/hosts-2x1.out" 2>/dev/null | sed 's/^/    /'
	few=()
	if [ $each -lt 2 ]; then each=2 few=(--at-most 40); fi
	step "hosts-2x$each" 180 "${job[@]}" $each check --device cuda "${few[@]}"
	tail -n 1 "$logs/hosts-2x$each.out" 2>/dev/null | sed 's/^/    /'
	[ "$gpus" -ge 4 ] || each=1
	step hosts-bench 90 "${job[@]}" $each bench allreduce allgather --device cuda --dtype f16 --bytes 1K:16M --factor 16 --iters 5 --calls 4 --check
	grep -E '^ +[0-9]' "$logs/hosts-bench.out" 2>/dev/null | cut -c1-100
	hosts=2 iters=20 killed hosts-kill $((2 * each)) --transports cudaipc,tcp
}

# until_true SECONDS COMMAND… polls.
until_true() {
	local end=$(($(now) + $1 * 1000000000))
	shift
	until "$@" 2>/dev/null; do
		[ "$(now)" -lt "$end" ] || return 1
		sleep 0.01
	done
}

all_ended() { # PIDS…
	local p
	for p; do
		if kill -0 "$p" 2>/dev/null; then return 1; fi
	done
}

# started_or_ended PIDS… says whether there is a first result, or never will be.
started_or_ended() {
	local p
	test -s "$logs/alone-0.out" && return
	for p; do kill -0 "$p" 2>/dev/null || return 0; done
	return 1
}

# killed NAME N FLAGS… kills rank 1 of a running job. The others must end within 2 s and
# name it, although their kernels wait for it; and nothing may be left behind.
killed() {
	local name=$1 n=$2 start died took why='' p r others=() iters=${iters:-2000}
	shift 2
	[ "$gpus" -ge "$n" ] || iters=20 # ranks that share a GPU take turns of milliseconds
	if [ "$(left)" -lt 20 ]; then
		record "$name" 0 "skipped: the budget of $budget s is used up"
		return
	fi
	start=$(now)
	ranks_alone "$n" "$@" bench allreduce --device cuda --dtype f16 --bytes 1K:256M --factor 2 --iters "$iters" --format json
	for ((r = 0; r < n; r++)); do
		[ $r = 1 ] || others+=("${pids[$r]}")
	done
	if ! until_true "$(at_most 60)" started_or_ended "${pids[@]}" || ! test -s "$logs/alone-0.out"; then
		why="no result in time, or a rank ended before"
	else
		kill -STOP "${pids[1]}"
		sleep 0.3 # by now every other kernel waits for the rank that stands still
		died=$(now)
		kill -KILL "${pids[1]}"
		until_true 10 all_ended "${others[@]}" || why="ranks that had not ended after 10 s"
		took=$((($(now) - died) / 1000000))
		if [ -z "$why" ] && [ $took -gt 2000 ]; then why="the others ended after $took ms, expected 2000 at most"; fi
		for ((r = 0; r < n; r++)); do
			[ $r = 1 ] || grep -q 'rank 1' "$logs/alone-$r.err" || why="${why:+$why; }rank $r did not name rank 1"
		done
		until_true 3 no_plugins || why="${why:+$why; }plugins were left"
	fi
	for p in "${pids[@]}"; do kill -KILL "$p" 2>/dev/null; done
	wait "${pids[@]}" 2>/dev/null
	if [ -z "$why" ]; then
		record "$name" $((($(now) - start) / 1000000)) "ok: $n ranks, the others ended $took ms after the kill"
		return
	fi
	failed=$((failed + 1))
	record "$name" $((($(now) - start) / 1000000)) "FAIL: $why"
	grep -hv '^time=' "$logs"/alone-*.err | tail -n 6 | cut -c1-400 | sed 's/^/    | /'
}

no_plugins() { ! pgrep -f "^$top/bin/plugins/" >/dev/null; }

# memory says what a job takes of the GPUs, and whose contexts are on them.
memory() {
	if ! command -v nvidia-smi >/dev/null; then
		record memory 0 "skipped: nvidia-smi is not installed"
		return
	fi
	if [ "$(left)" -lt 20 ]; then
		record memory 0 "skipped: the budget of $budget s is used up"
		return
	fi
	local start before during processes p
	start=$(now)
	used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | tr '\n' ' '; }
	before=$(used)
	ranks_alone "$ranks" bench allreduce --device cuda --dtype f16 --bytes 1K:1G --factor 2 --iters 2000 --calls 1 --format json
	until_true "$(at_most 60)" started_or_ended "${pids[@]}"
	during=$(used)
	processes=$(nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader | tee "$logs/contexts.out" | grep -c '[0-9]')
	for p in "${pids[@]}"; do kill -TERM "$p" 2>/dev/null; done
	until_true 5 all_ended "${pids[@]}"
	for p in "${pids[@]}"; do kill -KILL "$p" 2>/dev/null; done
	wait "${pids[@]}" 2>/dev/null
	local outcome=ok
	if [ "$processes" -gt "$ranks" ]; then
		outcome="FAIL: contexts of $processes processes, expected those of $ranks ranks"
		failed=$((failed + 1))
	fi
	record memory $((($(now) - start) / 1000000)) "$outcome: MiB before: $before; with buffers of 1 GiB twice: $during; processes on GPUs: $processes"
}

check() {
	gotest comm 120 comm.test 'CUDA|Device|CopyProxySpeed|CopyEngine|KernelsOf|HostAndKernels'
	gotest cudaipc 180 cudaipc.test .
	gotest queue 120 devicetest.test TestQueueBehindAnAbort
	step conform 180 "$run" conform --device cuda --plugin "$top/bin/plugins/mscclpp-transport-cudaipc"
	tail -n 1 "$logs/conform.out" 2>/dev/null | sed 's/^/    /'
	step "check-$ranks" 240 "$run" -n "$ranks" check --device cuda
	tail -n 1 "$logs/check-$ranks.out" 2>/dev/null | sed 's/^/    /'
	if [ "$ranks" -gt 2 ]; then step check-2 120 "$run" -n 2 check --device cuda; fi
	# Two processes of one GPU take turns of milliseconds: few cases.
	if [ "$gpus" -gt 1 ]; then
		step conform-1 120 env CUDA_VISIBLE_DEVICES=0 "$run" conform --device cuda --plugin "$top/bin/plugins/mscclpp-transport-cudaipc"
		tail -n 1 "$logs/conform-1.out" 2>/dev/null | sed 's/^/    /'
		step check-1 120 env CUDA_VISIBLE_DEVICES=0 "$run" -n 2 check --device cuda --at-most 40
		tail -n 1 "$logs/check-1.out" 2>/dev/null | sed 's/^/    /'
	fi
	step one-gpu 90 env CUDA_VISIBLE_DEVICES=0 "$run" -n 2 bench allreduce allgather reducescatter alltoall broadcast reduce sendrecv \
		--device cuda --dtype f16 --bytes 1K:1M --factor 32 --iters 3 --calls 1 --warmup 0 --check
	killed "kill-$ranks" "$ranks"
	step after-kill 30 "$run" -n "$ranks" bench allreduce --device cuda --dtype f16 --bytes 1K:1M --factor 32 --iters 20 --calls 1 --check
	if [ "$ranks" -gt 2 ]; then killed kill-2 2; fi
	hosts
	memory
	local tiny=(bench allreduce --device cuda --dtype f16 --bytes 4 --iters 1 --calls 1 --warmup 0)
	step start-cold 60 env CUDA_CACHE_DISABLE=1 "$run" -n "$ranks" "${tiny[@]}"
	step start-warm 30 "$run" -n "$ranks" "${tiny[@]}"
	step start-host 30 "$run" -n "$ranks" "${tiny[@]/cuda/host}"
}

seven=(allreduce allgather reducescatter alltoall broadcast reduce sendrecv)
# NCCL 2.28.9 may wait for ever in a broadcast of 4 MiB after collectives in windows: those
# that have symmetric kernels there, and the others, have processes of their own.
windowed=(allreduce allgather reducescatter alltoall) rooted=(broadcast reduce sendrecv)

bench() {
	local sizes=${GPU_TEST_BYTES:-1K:1G} process kind flags common
	common=(--device cuda --dtype f16 --in-place=both)
	for ((process = 1; process <= ${GPU_TEST_PROCESSES:-3}; process++)); do
		for kind in registered rooted plain; do
			local which=("${windowed[@]}")
			flags=(--registered)
			[ $kind != rooted ] || which=("${rooted[@]}")
			[ $kind != plain ] || flags=() which=("${seven[@]}")
			step "bench-$kind-$process" 150 "$run" -n "$ranks" bench "${which[@]}" "${common[@]}" "${flags[@]}" \
				--bytes "$sizes" --factor 4 --graph 50,1 "${versus[@]}" --format json
			cat "$logs/bench-$kind-$process.out" >>"$results" 2>/dev/null
		done
	done
	step bench-eager 60 "$run" -n "$ranks" bench "${windowed[@]}" "${common[@]}" --registered \
		--bytes "${GPU_TEST_BYTES:-1K:4M}" --factor 4 "${versus[@]}" --format json
	step bench-eager-rooted 60 "$run" -n "$ranks" bench "${rooted[@]}" "${common[@]}" --registered \
		--bytes "${GPU_TEST_BYTES:-1K:4M}" --factor 4 "${versus[@]}" --format json
	cat "$logs/bench-eager.out" "$logs/bench-eager-rooted.out" >>"$results" 2>/dev/null
	# Times of wrong results are worth nothing. Verification is the host's work, and slow.
	local verified=${GPU_TEST_BYTES:-1K:16M}
	for kind in registered plain; do
		flags=()
		[ $kind = plain ] || flags=(--registered)
		step "verify-$kind" 90 "$run" -n "$ranks" bench "${seven[@]}" "${common[@]}" "${flags[@]}" \
			--bytes "$verified" --factor 4 --graph 3 --iters 1 --check
	done
	[ -z "${GPU_TEST_BYTES:-}" ] || return
	local copied=(--device cuda --dtype f16 --bytes 32M --graph 2 --iters 1 --check)
	step verify-copies 90 "$run" -n "$ranks" bench allreduce allgather reducescatter alltoall "${copied[@]}" --registered --algorithm copy
	step verify-staged 90 "$run" -n "$ranks" bench allreduce allgather alltoall "${copied[@]}" --algorithm copy_staged
}

soak() {
	if [ "$ranks" -gt "$gpus" ]; then
		record soak 0 "skipped: $ranks ranks on $gpus GPUs take turns of milliseconds, and a million calls too long"
		return
	fi
	# 16 sizes, each 640 graphs of 100 calls: a million, and the results right before and after.
	step soak-graphs 240 "$run" -n "$ranks" bench allreduce --device cuda --dtype f16 --registered --bytes 4:128K --factor 2 \
		--graph 100 --iters "${GPU_TEST_SOAK:-640}" --check
	step soak-eager 120 "$run" -n "$ranks" bench allreduce --device cuda --dtype f16 --bytes 4:128K --factor 2 \
		--calls 100 --iters "$((${GPU_TEST_SOAK:-640} / 10))" --check
}

# find_sanitizer sets sanitizer, or says that there is none.
find_sanitizer() {
	if [ -z "$sanitizer" ]; then
		for sanitizer in /usr/local/cuda/bin/compute-sanitizer "$(command -v compute-sanitizer)"; do
			if [ -x "$sanitizer" ]; then return; fi
		done
	elif [ -x "$sanitizer" ]; then
		return
	fi
	if [ -n "$sanitizer_named" ]; then
		failed=$((failed + 1))
		record sanitize 0 "FAIL: $sanitizer is not there, or no program"
	else
		record sanitize 0 "skipped: compute-sanitizer is not installed: see --sanitizer"
	fi
	return 1
}

# sanitized NAME TOOL LIMIT COMMAND… runs a command with a tool in it, and prints the
# tool's own verdict: a program that fails by itself is no mistake that the tool has found.
sanitized() {
	local name=$1 tool=$2 limit=$3 code found
	shift 3
	step "$tool-$name" "$limit" "$@"
	code=$?
	found=$(grep -hoE '(ERROR|RACECHECK) SUMMARY: .*' "$logs/$tool-$name".* 2>/dev/null | sort | uniq -c | tr -s ' \n' ' ')
	case $code in
	0)
		if [ -z "$found" ]; then
			failed=$((failed + 1))
			found="NOT CHECKED: it printed no summary"
		else
			found="clean:$found"
		fi
		;;
	9) found="MISTAKES:$found" ;;
	*) found="not finished (exit code $code):${found:- it printed no summary}" ;;
	esac
	printf '%-10s %-12s %s\n' "$tool" "$name" "$found" >>"$logs/verdicts"
}

# sanitized_ranks NAME TOOL LIMIT ARGUMENTS… has a tool for each of two ranks. It takes a
# process that uses no GPU, as the launcher and the plugins are, for one that has failed.
sanitized_ranks() {
	sanitized "$1" "$2" "$3" "$run" -n 2 "$sanitizer" --tool "$2" --target-processes application-only --error-exitcode 9 "$run" "${@:4}"
}

# sanitized_test NAME TOOL LIMIT TEST has a tool for each rank of a test, whose ranks are
# processes.
sanitized_test() {
	local program=$logs/$2-$1.sh
	printf '#!/bin/bash\nunset RANK_PROGRAM\nexec "%s" --tool %s --target-processes application-only --log-file "%s" --error-exitcode 9 "%s" "$@"\n' \
		"$sanitizer" "$2" "$logs/$2-$1.%p.log" "$PWD/devicetest.test" >"$program"
	chmod +x "$program"
	export RANK_PROGRAM=$program
	sanitized "$1" "$2" "$3" ./devicetest.test -test.v -test.count=1 -test.run "$4"
	unset RANK_PROGRAM
}

sanitize() {
	find_sanitizer || return
	echo "    $sanitizer"
	: >"$logs/verdicts"
	local tool few=24
	[ "$gpus" -ge 2 ] || few=8 # ranks of one GPU take turns of milliseconds
	for tool in memcheck synccheck racecheck; do
		sanitized primitives "$tool" 40 "$sanitizer" --tool "$tool" --error-exitcode 9 actor/devicetest actor sm_90 actor f16,e4m3
		sanitized_ranks check "$tool" 60 bench "${seven[@]}" --device cuda --dtype f16 --bytes 1K:1M --factor 32 \
			--iters 1 --calls 1 --warmup 0 --check
		sanitized_test hosts "$tool" 60 '^TestDirectByCopyEnginesInProcesses$'
	done
	sanitized_ranks matrix memcheck 60 check --device cuda --at-most $few
	echo "    verdicts"
	sed 's/^/    /' "$logs/verdicts"
}

# costs: times that the tables of bench do not have. One process with a rank for each GPU,
# up to four, or two for the only one.
costs() {
	local lines=$logs/costs.jsonl
	: >"$lines"
	export GPU_TEST_COSTS=$lines
	gotest cost-host 60 devicetest.test 'TestCostOfACallForTheHost|TestUnlooked'
	gotest cost-abort 60 devicetest.test 'TestCostOfTheAbortCheck'
	gotest cost-between 60 devicetest.test 'TestCostBetweenKernels'
	gotest cost-data 60 devicetest.test 'TestCostOfData'
	gotest cost-beside 150 devicetest.test 'TestCostForAMultiplication'
	unset GPU_TEST_COSTS
	if [ "$ranks" -gt "$gpus" ]; then
		record cost-graphs 0 "skipped: $ranks ranks on $gpus GPUs take turns of milliseconds"
	else
		step cost-graphs 60 "$run" -n "$ranks" bench allreduce allgather --device cuda --dtype f16 --registered \
			--bytes "${GPU_TEST_BYTES:-1K:1M}" --factor 32 --graph 50,1 "${versus[@]}" --format json
	fi
	cat "$lines" >>"$out/costs.jsonl"
	cat "$logs/cost-graphs.out" >>"$results" 2>/dev/null
	# A line of JSON a row: names and values, in the order in which they are written.
	awk -F '[:,{}]' 'function of(name, i) {for (i = 1; i < NF; i++) if ($i == "\"" name "\"") {gsub(/"/, "", $(i + 1)); return $(i + 1)} return "-"}
		BEGIN {printf "%-38s %5s %10s %-16s %9s %9s %9s %9s  %s\n", "cost", "ranks", "bytes", "beside", "us", "without", "costs", "call", "goal, or what was asked for"}
		{printf "%-38s %5s %10s %-16s %9.3f %9.3f %9.3f %9s  %s\n", of("cost"), of("ranks"), of("bytes"), of("beside"), of("time_us"), of("alone_us"), of("cost_us"), of("call_us"),
			of("with") != "-" ? of("with") : of("goal_us") == "-" ? "" : (of("goal_kept") == "true" ? "kept: " : "MISSED: ") of("goal_us")}' "$lines" >"$logs/costs.txt"
	sed 's/^/    /' "$logs/costs.txt"
}

# interpret: the interpreter is the emulated driver, in processes of its own beside those on GPUs.
interpret() {
	step conform-device 120 "$run" conform --device cuda --kernels conform/conform-sm_80.ptx
	tail -n 1 "$logs/conform-device.out" 2>/dev/null | sed 's/^/    /'
	DEVICETEST_EMULATED_DRIVER=$top/tests/emulated/libcuda.so.1 gotest interpreter 540 devicetest.test '^TestBitsOfTheInterpreter$'
	grep -h 'with other bits' "$logs/interpreter.out" 2>/dev/null | sed 's/^ *[^ ]*: /    /'
}

for t in ${tier//,/ }; do
	echo "== $t"
	$t
done

# The results: a few files, however many steps there were.
awk -F '\t' 'BEGIN {print "["} {gsub(/[\\"]/, "\\\\&", $3); printf "%s  {\"step\": \"%s\", \"ms\": %s, \"outcome\": \"%s\"}", (NR > 1 ? ",\n" : ""), $1, $2, $3} END {print "\n]"}' \
	"$logs/steps" >"$out/steps.json"
tar -C "$logs" -czf "$out/logs.tar.gz" .
if [ -s "$results" ] && [ -x "$top/bin/gpu-table" ]; then
	kind=()
	if nvidia-smi -L 2>/dev/null | grep -q H200; then kind=(-h200); fi
	"$top/bin/gpu-table" "${kind[@]}" -format text "$results" >"$out/summary.txt" 2>&1
	cat "$out/summary.txt"
fi
skipped=$(grep -c 'skipped' "$logs/steps")
echo "$(wc -l <"$logs/steps") steps, $failed failed, $skipped skipped, $((budget - $(left))) s; results in $out"
[ "$failed" = 0 ]
