#!/bin/sh
# Prints the path of NVIDIA's compiler as a library, NVRTC, in one version. It is fetched once, from the registry of Python packages by
# pip, into the user's cache: 58 MB, whose checksum is below. NVRTC_LIBRARY names another one. Exit status 3: it cannot be had on this
# machine, and standard error says why.
#
#   nvrtc.sh            fetches it if need be
#   nvrtc.sh --state    says which one is there, for proofs of stages
set -eu
version=13.5.37
package=nvidia-cuda-nvrtc
wheel=86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc

if [ -n "${NVRTC_LIBRARY:-}" ]; then
	printf '%s\n' "$NVRTC_LIBRARY"
	exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "nvrtc: $(uname -sm): it is fetched for Linux on x86-64 alone; NVRTC_LIBRARY=/path/to/libnvrtc.so names one that is there" >&2
	exit 3
fi
dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/nvrtc-$version
if [ "${1:-}" = --state ]; then
	if [ -d "$dir" ]; then echo "$dir"; else echo "none at $(date +%s.%N)"; fi # which proves nothing
	exit
fi
if [ ! -d "$dir" ]; then
	if ! python3 -m pip --version >/dev/null 2>&1; then
		echo "nvrtc: python3 has no pip, which fetches it: install python3-pip, or name one by NVRTC_LIBRARY=/path/to/libnvrtc.so" >&2
		exit 3
	fi
	mkdir -p "${dir%/*}"
	tmp=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	printf '%s==%s --hash=sha256:%s\n' $package $version $wheel >"$tmp/requirements"
	if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$tmp/requirements" -d "$tmp" >"$tmp/messages" 2>&1; then
		echo "nvrtc: $package $version could not be fetched: $(tail -n 1 "$tmp/messages")" >&2
		exit 3
	fi
	python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel"
	[ -e "$tmp/wheel/nvidia/cu13/lib/libnvrtc.so.13" ] || { echo "nvrtc: $package $version has no libnvrtc.so.13" >&2; exit 1; }
	mv -T "$tmp/wheel/nvidia/cu13/lib" "$dir" 2>/dev/null || [ -d "$dir" ] # another one was faster
fi
printf '%s\n' "$dir/libnvrtc.so.13"
