#!/bin/sh
# Runs golangci-lint with .golangci.yml, in the version given: the one in PATH if it
# is that, otherwise one that is fetched through the module proxy into bin/tools and
# kept there. It is no dependency of the module. Where it cannot be fetched this says
# so and passes: vet and internal/lint have run by then, and need no network.
set -eu
cd "$(dirname "$0")/.."
version=${1:?expected a version, such as 2.15.0}
module=github.com/golangci/golangci-lint/v2/cmd/golangci-lint
tools=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/tools

is_wanted() { # PROGRAM
	case $("$1" version 2>/dev/null) in
	*" $version "* | *" v$version "*) true ;;
	*) false ;;
	esac
}

lint=
for candidate in golangci-lint "$tools/golangci-lint"; do
	if command -v "$candidate" >/dev/null && is_wanted "$candidate"; then
		lint=$candidate
		break
	fi
done
if [ -z "$lint" ]; then
	echo "lint: golangci-lint $version is not installed; fetching it takes minutes, once" >&2
	if ! why=$(GOBIN=$tools GOFLAGS=-mod=mod ${GO:-go} install "$module@v$version" 2>&1); then
		printf '%s\n' "$why" | tail -n 3 >&2
		echo "lint: golangci-lint $version could not be fetched: NOT run. Install it from $module@v$version" >&2
		exit 0
	fi
	lint=$tools/golangci-lint
fi
# Its cache, and what cgo writes without -trimpath, name files by their paths. So all copies of this tree are looked at in one
# place, one at a time: a new clone finds what the last one left, and takes a quarter of the time. A copy that comes
# meanwhile, or that is not in git, is looked at where it is.
kept=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/linted
export GOFLAGS=-tags=grpcnotrace
mkdir -p "$kept"
exec 9>"$kept/lock"
if [ -e .git ] && flock -n 9; then
	export GOLANGCI_LINT_CACHE=$kept/cache
	rm -rf "$kept/tree"
	mkdir "$kept/tree"
	git ls-files -z -co --exclude-standard |
		xargs -0 sh -c 'for f; do if [ -e "$f" ] || [ -L "$f" ]; then printf "%s\0" "$f"; fi; done' sh |
		tar -c --null -T - | tar -x -C "$kept/tree"
	cd "$kept/tree"
else
	export GOLANGCI_LINT_CACHE=$PWD/bin/golangci-cache
fi
# The lock of golangci-lint is one of the machine: another copy of this tree may be looked at meanwhile.
"$lint" run --allow-parallel-runners ./... 9>&-
