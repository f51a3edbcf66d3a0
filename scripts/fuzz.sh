#!/bin/sh
# Fuzzes what reads bytes of other processes, hosts and users. Seed corpora run with all
# tests; this looks for new inputs.
#
#   fuzz.sh [--targets N] [--seconds S] [--turn T]
#
# N targets for S seconds each; without --targets all of them. Which ones is decided by
# T, by default the number of commits: so each is reached in turn. An input that fails is
# kept below testdata/fuzz of the package, where it becomes a test once it is committed.
set -eu
cd "$(dirname "$0")/.."
count=0 seconds=5 turn=$(git rev-list --count HEAD 2>/dev/null || echo 0)
while [ $# -gt 0 ]; do
	case $1 in
	--targets) count=$2; shift 2 ;;
	--seconds) seconds=$2; shift 2 ;;
	--turn) turn=$2; shift 2 ;;
	*) echo "fuzz: $1: expected --targets N, --seconds S, --turn T" >&2; exit 2 ;;
	esac
done
targets=$(grep -ro --include=*_test.go '^func Fuzz[A-Za-z0-9_]*' . | sed 's|^\./||; s|/[^/]*:func | |' | LC_ALL=C sort)
all=$(printf '%s\n' "$targets" | wc -l)
if [ "$count" = 0 ] || [ "$count" -gt "$all" ]; then
	count=$all
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
i=0
while [ $i -lt "$count" ]; do
	n=$(((turn * count + i) % all + 1))
	line=$(printf '%s\n' "$targets" | sed -n "${n}p")
	package=${line% *} target=${line#* }
	echo "== $package $target"
	# Where the time ends while an input runs, go test may report the deadline as a failure. An input that fails is
	# written down, so one that is not did not.
	if ! (cd "$package" && ${GO:-go} test -run "^$" -fuzz "^$target\$" -fuzztime "${seconds}s" .) >"$log" 2>&1; then
		cat "$log"
		if grep -q '^Failing input\|Failing input written' "$log" || ! grep -q '^ *context deadline exceeded$' "$log"; then
			exit 1
		fi
		echo "fuzz: $target: the time ended within an input: nothing found"
	else
		cat "$log"
	fi
	i=$((i + 1))
done
echo "fuzz: $count of $all targets, $seconds s each: nothing found"
