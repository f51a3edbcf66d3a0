#!/bin/bash
# Runs the actor's committed PTX on the NVIDIA GPU of this machine and compares with
# the CPU. Needs a driver and a C++ compiler; exit code 77: there is no driver.
#
#   run.sh [ARCH…]      default: sm_80 sm_90
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
include=../../include
cxx=${CXX:-g++}
flags="-std=c++17 -O2 -Wall -I$include"
cpu="$flags -O3 -march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared"
"$cxx" $flags main.cc -o "$work/devicetest" -ldl
types=(f32 f16 bf16 f64 i8 u8 i32 u32 i64 u64 e4m3 e5m2 e4m3b15)
for i in "${!types[@]}"; do
	"$cxx" $cpu "-DMSCCLPP_TYPE=$i" ../kernels/reduce.cc -o "$work/reduce-${types[$i]}.so" &
done
wait
for f in ../image/*.ptx.gz; do
	name=${f##*/}
	gzip -dc "$f" >"$work/${name%.gz}"
done
for arch in "${@:-sm_80 sm_90}"; do
	for a in $arch; do
		echo "== $a"
		"$work/devicetest" "$work" "$a" "$work"
	done
done
