#!/bin/sh
# Packs everything that gpu-test.sh needs into dist/mscclpp-gpu.tar.xz: programs,
# plugins, kernels and test programs, for a machine with NVIDIA GPUs and neither Go
# nor a compiler nor a network. It runs on x86-64 with glibc 2.34 or newer.
#
#   dist-gpu.sh [FOLDER]     default: dist
#
# Environment: GO, VERSION, CXX; STALE=1 packs kernels that are older than their sources;
# MACHINE_CODE=0 packs no machine code, which needs NVIDIA's assembler, fetched by pip.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
cxx=${CXX:-g++}
out=${1:-dist}
name=mscclpp-gpu
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo devel)}
stamp="-s -w -X github.com/mscclpp-go/mscclpp/internal/version.Version=$version"
limit=$((40 << 20)) # bytes: what is easily carried to another machine

top=$out/$name
rm -rf "$top"
mkdir -p "$top/bin/plugins" "$top/tests/actor"

program() { "$go" build -trimpath -ldflags "$stamp" -o "$top/bin/$1" "$2"; }
program mscclpp-run ./cmd/mscclpp-run
program example-allreduce ./examples/allreduce
program example-fused ./examples/fused
if [ -d bench/cmd/gpu-table ]; then program gpu-table ./bench/cmd/gpu-table; fi
for transport in shm cudaipc tcp; do
	plugin=mscclpp-transport-$transport
	program "plugins/$plugin" "./transports/$transport/cmd/$plugin"
done

# The processor there is not known: one level below the newest runs on all of them.
mkdir -p "$out/tools"
"$go" build -o "$out/tools/mscclpp-kernels" ./cmd/mscclpp-kernels
# Kernels for GPUs are those of the tree. Older than their sources they are refused
# over there, which is late.
for owner in collectives/image:collectives/image collectives/internal/scaling/kernels:collectives/internal/scaling/image plan/image:plan/image inference/image:inference/image inference/moe/image:inference/moe/image framework/kernel/actor/kernels:framework/kernel/actor/image; do
	if ! why=$("$out/tools/mscclpp-kernels" check --clang /nonexistent --spec "${owner%:*}/kernels.json" --target sm_80,sm_90 --out "${owner#*:}" 2>&1); then
		printf '%s\n' "$why" | head -n 3 >&2
		echo "dist-gpu: build them: mscclpp-kernels build --spec ${owner%:*}/kernels.json --target gpu --out ${owner#*:}" >&2
		[ -n "${STALE:-}" ] || exit 1
	fi
done
"$out/tools/mscclpp-kernels" build --spec transports/shm/kernels/kernels.json --target x86-64-v3 \
	--out "$top/bin/plugins/mscclpp-transport-shm.kernels"

if [ "${MACHINE_CODE:-1}" != 0 ]; then
	if ! ptxas=$(scripts/ptxas.sh); then
		echo "dist-gpu: MACHINE_CODE=0 packs kernels that the driver over there has to compile" >&2
		exit 1
	fi
	PTXAS=$ptxas KERNELS=$out/tools/mscclpp-kernels OUT=$top/bin/plugins/mscclpp scripts/kernels.sh machine-code
fi

# Test programs, named as the packages. Tests that need sources or a compiler are
# not asked for there.
for package in framework/device/cuda framework/proxy framework/comm transports/cudaipc collectives/devicetest; do
	"$go" test -c -trimpath -ldflags '-s -w' -o "$top/tests/${package##*/}.test" "./$package"
done

# The device primitives: a program without Go, its kernels, and the same in C++.
actor=framework/kernel/actor
"$cxx" -std=c++17 -O2 -s -static-libstdc++ -static-libgcc -Iframework/kernel/include \
	"$actor/devicetest/main.cc" -o "$top/tests/actor/devicetest" -ldl
index=0
for type in f32 f16 bf16 f64 i8 u8 i32 u32 i64 u64 e4m3 e5m2 e4m3b15; do
	"$cxx" -std=c++17 -O3 -s -march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared \
		-static-libstdc++ -static-libgcc -Iframework/kernel/include "-DMSCCLPP_TYPE=$index" \
		"$actor/kernels/reduce.cc" -o "$top/tests/actor/reduce-$type.so"
	index=$((index + 1))
done
for image in "$actor"/image/*.ptx.gz; do
	file=${image##*/}
	gzip -dc "$image" >"$top/tests/actor/${file%.gz}"
done

# The device suite's kernels, and the emulated driver, whose interpreter is compared with GPUs.
mkdir -p "$top/tests/conform" "$top/tests/emulated"
"$out/tools/mscclpp-kernels" build --spec framework/device/conformance/kernels/kernels.json --target sm_80 --out "$out/tools/conform"
gzip -dc "$out/tools/conform/conform-sm_80.ptx.gz" >"$top/tests/conform/conform-sm_80.ptx"
strip --strip-debug -o "$top/tests/emulated/libcuda.so.1" "$("$go" run ./framework/device/cuda/emulated/cmd/emulated-cuda --library)"

# The programs that compute beside collectives.
mkdir -p "$top/tests/fused"
cp examples/fused/image/manifest.json examples/fused/image/*.gz "$top/tests/fused/"

install -m 755 scripts/gpu-test.sh "$top/gpu-test.sh"
printf '%s\n' "$version" >"$top/VERSION"

# Calls are made absolute and the dictionary is as large as everything: the programs
# share most of their code.
archive=$out/$name.tar.xz
tar -C "$out" --sort=name --owner=0 --group=0 --mtime='1970-01-01 00:00Z' -cf - "$name" |
	xz -T1 --x86 --lzma2=preset=6,dict=128MiB >"$archive"
install -m 755 scripts/gpu-test.sh "$out/gpu-test.sh"
size=$(wc -c <"$archive")
echo "$archive: $size bytes, version $version; start it with $out/gpu-test.sh"
if [ "$size" -gt "$limit" ]; then
	echo "dist-gpu: $archive is larger than $limit bytes" >&2
	exit 1
fi
