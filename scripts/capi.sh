#!/bin/sh
# Builds the C library into a folder: libmscclpp.so.1, and libmscclpp.so for linkers.
#
#   capi.sh FOLDER
#
# LINKFLAGS are more flags for the linker of Go. It exports what capi/libmscclpp/exports.map lists, and is never unloaded: Go's runtime cannot be.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"
"${GO:-go}" build -buildmode=c-shared -o "$out/libmscclpp.so.1" -ldflags "\
	${LINKFLAGS:-} -X github.com/mscclpp-go/mscclpp/internal/version.Version=${VERSION:-devel} \
	-extldflags '-Wl,-soname,libmscclpp.so.1 -Wl,-z,nodelete -Wl,--version-script=$here/capi/libmscclpp/exports.map'" ./capi/libmscclpp
rm -f "$out/libmscclpp.so.h" # by cgo; ours is capi/mscclpp.h
ln -sf libmscclpp.so.1 "$out/libmscclpp.so"
