#!/bin/bash
# Builds everything that the Python package contains besides Python into a folder, laid out as make install does it:
#   bin/mscclpp-run  lib/libmscclpp.so.1  lib/mscclpp/libnccl.so.2  lib/mscclpp/librccl.so.1  lib/mscclpp/plugins/  include/  doc/
#
#   wheel.sh FOLDER
#
# Machine code for GPUs goes along where make machine-code has made it. Programs and libraries need no newer glibc than 2.28, for which zig links them; where it cannot be fetched, or with
# WHEEL_CC=native, the compiler of this machine does, and the wheel is for systems as new as this one. Environment: GO, VERSION.
set -euo pipefail
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
go=${GO:-go}
export GOFLAGS=${GOFLAGS:--tags=grpcnotrace -trimpath}
VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo devel)}
export VERSION LINKFLAGS='-s -w'
native=$("$go" env CC)
if [ "${WHEEL_CC:-}" != native ]; then
	if CC=$(scripts/zig.sh); then
		export CC
	else
		status=$?
		[ "$status" = 77 ] || exit "$status"
		echo "wheel: linked by $native: the wheel needs a system as new as this one" >&2
	fi
fi
stamp="$LINKFLAGS -X github.com/mscclpp-go/mscclpp/internal/version.Version=$VERSION"
mkdir -p "$out/bin" "$out/lib/mscclpp/plugins" "$out/include/mscclpp/nccl" "$out/doc"
"$go" build -ldflags "$stamp" -o "$out/bin/" ./cmd/mscclpp-run
"$go" build -ldflags "$stamp" -o "$out/lib/mscclpp/plugins/" ./transports/*/cmd/mscclpp-transport-*
scripts/capi.sh "$out/lib"
scripts/nccl.sh "$out/lib/mscclpp"
rm -f "$out/lib/libmscclpp.so" "$out/lib/mscclpp/libnccl.so" "$out/lib/mscclpp/librccl.so" # a wheel has no links
# Kernels for processors: those of all levels, of which the plugin takes the best that the machine can run. Kernels for GPUs are
# in the plugins and the library.
tools=$out.tools
trap 'rm -rf "$tools"' EXIT
CC=$native "$go" build -o "$tools/mscclpp-kernels" ./cmd/mscclpp-kernels
"$tools/mscclpp-kernels" build --store "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/built" --include framework/kernel/include \
	--spec transports/shm/kernels/kernels.json --target x86-64-v2,x86-64-v3,x86-64-v4 --out "$out/lib/mscclpp/plugins/mscclpp-transport-shm.kernels"
for code in bin/plugins/*.cubins; do # of make machine-code, if that was made
	[ ! -e "$code" ] || cp "$code" "$out/lib/mscclpp/plugins"
done
cp framework/kernel/include/mscclpp/* framework/device/native/include/mscclpp/* "$out/include/mscclpp"
cp capi/mscclpp*.h "$out/include"
cp nccl/nccl.h "$out/include/mscclpp/nccl"
cp LICENSE THIRD_PARTY_NOTICES "$out/doc"
