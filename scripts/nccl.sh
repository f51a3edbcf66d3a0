#!/bin/bash
# Builds the NCCL-compatible libraries into a folder: libnccl.so.2, and librccl.so.1 for AMD's GPUs; and the names without
# numbers for linkers.
#
#   nccl.sh FOLDER
#
# They open the libmscclpp.so.1 beside them, which has to be of the same VERSION. They export what
# nccl/names.txt lists, librccl.so.1 what nccl/rccl-names.txt lists too, twice each, and hold no Go. Processes that never
# communicate have them preloaded: few segments, no other library than libc, and symbols that are looked up when they are used
# make that cost them 0.03 ms instead of 0.1.
set -euo pipefail
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
version=${VERSION:-devel}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

build() { # NAME NUMBER NAMES… -- ARGUMENTS…
	local name=$1 number=$2
	shift 2
	{
		echo '{ global:'
		while [ "$1" != -- ]; do
			echo "  $1; p$1;"
			shift
		done
		echo '  local: *; };'
	} >"$tmp/exports.map"
	shift
	${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -DLIBRARY_VERSION="\"$version\"" \
		-Wl,-soname,"$name.so.$number" -Wl,--version-script="$tmp/exports.map" -Wl,-Bsymbolic -Wl,-z,nodelete,-z,defs,-z,norelro,-z,lazy,-z,noseparate-code \
		-o "$tmp/$name.so.$number" "$@" -lpthread -ldl
	mv "$tmp/$name.so.$number" "$out/$name.so.$number"
	ln -sf "$name.so.$number" "$out/$name.so"
}

mapfile -t names < <(sed -n 's/^\([A-Z][A-Za-z0-9]*\)$/nccl\1/p' nccl/names.txt)
mapfile -t more < <(sed -n 's/^\([a-z][A-Za-z0-9]*\)$/\1/p' nccl/rccl-names.txt)
shared=()
for file in nccl/src/*.c; do
	[ "$file" = nccl/src/cuda.c ] || shared+=("$file")
done
build libnccl 2 "${names[@]}" -- nccl/src/cuda.c "${shared[@]}"
build librccl 1 "${names[@]}" "${more[@]}" -- -DMSCCLPP_RCCL nccl/src/rccl/*.c "${shared[@]}"
