#!/bin/bash
# The package compiles, and its parts that need no library work, on CPython 3.14, which no registry has for this system: Pyodide's package
# has it, compiled to WebAssembly, and node runs that. Where one of the two cannot be had this says so and passes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=314.0.7
checksum=66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0
not() {
	echo "wheel-314: NOT run: $1" >&2
	exit 0
}
for program in node npm; do
	command -v $program >/dev/null || not "no $program in PATH"
done
dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/pyodide-$version
if [ ! -d "$dir" ]; then
	mkdir -p "${dir%/*}"
	tmp=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	(cd "$tmp" && npm pack --silent --ignore-scripts pyodide@$version) >"$tmp/messages" 2>&1 || not "pyodide $version could not be fetched: $(tail -n 1 "$tmp/messages")"
	echo "$checksum  $tmp/pyodide-$version.tgz" | sha256sum --check --quiet
	tar -xzf "$tmp/pyodide-$version.tgz" -C "$tmp"
	mv -T "$tmp/package" "$dir" 2>/dev/null || [ -d "$dir" ] # another one was faster
fi
for program in versions importing; do
	node scripts/wheel-314.mjs "$dir" "$PWD" python/tests/$program.py
done
