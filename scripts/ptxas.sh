#!/bin/sh
# Prints the path of NVIDIA's assembler, in the one version that machine code is made with, or in that of the argument:
# those that kernels.sh check asks besides. It is fetched once, from the registry of Python packages by pip, into the user's cache;
# the checksums of package and program are below. PTXAS names another one. Exit status 3:
# it cannot be had on this machine, and standard error says why.
#
# It is the last of CUDA 12: drivers load machine code of assemblers of their own major
# version, and those of CUDA 13 also load what is older.
set -eu
version=${1:-12.9.86}
package=nvidia-cuda-nvcc-cu12
folder=cuda_nvcc
case $version in
12.9.86)
	wheel=5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0
	program=983b0e9283855979f42cebfd80d43f9b6e786eb84f03f7570bf941c4d3a3c461
	;;
12.2.140)
	wheel=c6ff4ae7a636eb6cab7621191e19ac3779690686bbcf52c04d8b1ca2944e1e27
	program=879f3cb12b0b0417fba9bf4cfc77df94cdf55502f9fa59a08313a12fdbfc03ce
	;;
13.5.37)
	package=nvidia-cuda-nvcc
	folder=cu13
	wheel=f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7
	program=b3e295413e9628ee261a63ea3f70ec5af20988c9809214c064661662206574a3
	;;
*)
	echo "ptxas: $version: expected 12.2.140, 12.9.86 or 13.5.37" >&2
	exit 2
	;;
esac

if [ -n "${PTXAS:-}" ] && [ $# = 0 ]; then
	printf '%s\n' "$PTXAS"
	exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "ptxas: $(uname -sm): the assembler is fetched for Linux on x86-64 alone; PTXAS=/path/to/ptxas names one that is there" >&2
	exit 3
fi
dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/ptxas-$version
is() { [ "$(sha256sum "$1" 2>/dev/null | cut -d ' ' -f 1)" = "$2" ]; }
if is "$dir/ptxas" $program; then
	printf '%s\n' "$dir/ptxas"
	exit 0
fi
if ! python3 -m pip --version >/dev/null 2>&1; then
	echo "ptxas: python3 has no pip, which fetches it: install python3-pip, or name an assembler by PTXAS=/path/to/ptxas" >&2
	exit 3
fi
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
printf '%s==%s --hash=sha256:%s\n' $package $version $wheel >"$tmp/requirements"
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$tmp/requirements" -d "$tmp" >"$tmp/messages" 2>&1; then
	echo "ptxas: $package $version could not be fetched: $(tail -n 1 "$tmp/messages"); PTXAS=/path/to/ptxas names one that is there" >&2
	exit 3
fi
python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel"
mv "$tmp/wheel/nvidia/$folder/bin/ptxas" "$tmp/ptxas"
if ! is "$tmp/ptxas" $program; then
	echo "ptxas: $package $version has another ptxas than expected: sha256 $(sha256sum "$tmp/ptxas")" >&2
	exit 3
fi
chmod 755 "$tmp/ptxas"
mv "$tmp/ptxas" "$dir/ptxas"
printf '%s\n' "$dir/ptxas"
