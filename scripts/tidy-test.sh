#!/bin/sh
# Nothing was left behind: no process of a job, and no change to a file in version
# control since `tidy-test.sh --before FILE`.
set -eu
cd "$(dirname "$0")/.."
state() { git status --porcelain && git diff | cksum; }
if [ "${1:-}" = --before ]; then
	state >"$2"
	exit 0
fi
if pgrep -af "^$PWD/bin/"; then
	echo "tidy-test: these processes were left" >&2
	exit 1
fi
before=bin/state-before
[ -f "$before" ] || { echo "tidy-test: expected $before: tidy-test.sh --before $before writes it" >&2; exit 1; }
state | cmp -s - "$before" || { git status --short; echo "tidy-test: files have changed" >&2; exit 1; }
