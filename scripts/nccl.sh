#!/bin/bash
# Builds the NCCL-compatible library into a folder: libnccl.so.2, and libnccl.so for linkers.
#
#   nccl.sh FOLDER
#
# It opens the libmscclpp.so.1 beside it, which has to be of the same VERSION. It exports what
# nccl/names.txt lists, twice each, and holds no Go. Processes that never communicate have it preloaded: few segments, no
# other library than libc, and symbols that are looked up when they are used make that cost them 0.03 ms instead of 0.1.
set -euo pipefail
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
version=${VERSION:-devel}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
{
	echo '{ global:'
	sed -n 's/^\([A-Z][A-Za-z0-9]*\)$/  nccl\1; pnccl\1;/p' nccl/names.txt
	echo '  local: *; };'
} >"$tmp/exports.map"
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -DLIBRARY_VERSION="\"$version\"" \
	-Wl,-soname,libnccl.so.2 -Wl,--version-script="$tmp/exports.map" -Wl,-Bsymbolic -Wl,-z,nodelete,-z,defs,-z,norelro,-z,lazy,-z,noseparate-code \
	-o "$tmp/libnccl.so.2" nccl/src/*.c -lpthread -ldl
mv "$tmp/libnccl.so.2" "$out/libnccl.so.2"
ln -sf libnccl.so.2 "$out/libnccl.so"
