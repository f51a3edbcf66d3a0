#!/bin/sh
# Lists the packages that the race detector runs, the longest first, so that none runs alone
# in the end: those that start goroutines, or share what they have between some, in their own
# files or tests. In the others it finds nothing. Packages that run compilers or programs alone
# are not among them either: it sees goroutines of one process. The interpreter of AMD's code
# runs kernels in one goroutine, and would take minutes.
set -eu
cd "$(dirname "$0")/.."
all=$(${GO:-go} list -f '{{.Dir}} {{.ImportPath}}' ./collectives/... . ./framework/... ./plugins/... ./launch/... ./transports/... \
	./bench/... ./cmd/... ./internal/outputpump ./internal/supervise)
printf '%s\n' "$all" |
	grep -v -E '/(framework/kernel/(check|image)|collectives/(image|gfxtest)|launch/enginetest|cmd/mscclpp-kernels)$' |
	while read -r dir package; do
		if grep -qE '(^|[^[:alnum:]_."])go (func|[[:alnum:]_.]+\()|\.Go\(|\.Parallel\(\)|"sync(/atomic)?"' "$dir"/*.go; then
			echo "$package"
		fi
	done
