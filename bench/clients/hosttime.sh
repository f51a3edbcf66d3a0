#!/bin/bash
# Host time of an eager call where launches do nothing, on the emulated driver, three times: for machines without a GPU.
#
#   hosttime.sh LIB    # the folder of libnccl.so.2 and libmscclpp.so.1
#
# At the top of the tree; `make build` before.
set -euo pipefail
lib=$(cd "$1" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
eval "$(go run ./framework/device/cuda/emulated/cmd/emulated-cuda f32)"
emulated=$(dirname "$MSCCLPP_CUDA_LIBRARY")
cc -O2 -shared -fPIC bench/clients/nolaunch.c -o "$tmp/libnolaunch.so" -Wl,--no-as-needed "$MSCCLPP_CUDA_LIBRARY" "-Wl,-rpath,$emulated"
cc -O2 bench/clients/hosttime.c -Inccl -o "$tmp/hosttime" -L"$lib" -lnccl -ldl "-Wl,-rpath,$lib"
export MSCCLPP_CUDA_LIBRARY=$tmp/libnolaunch.so NO_KERNEL=1 WORLD_SIZE=2
for run in 1 2 3; do
	export ID_FILE=$tmp/id$run
	RANK=1 "$tmp/hosttime" 2>/dev/null &
	RANK=0 "$tmp/hosttime"
	wait
done
