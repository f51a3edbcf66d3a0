#!/bin/sh
# A job of 4 ranks on this machine's CPUs. Their only link is the plugin shm, a
# process of its own beside each rank. `make demo` builds what it needs.
set -eu
cd "$(dirname "$0")/.."
run=bin/mscclpp-run
go build -o bin/example-allreduce ./examples/allreduce

say() { printf '\n$ %s\n' "$*"; }

say "$run -n 4 bin/example-allreduce"
"$run" -n 4 bin/example-allreduce

say "$run -n 4 bench allreduce --bytes 1K:16M --factor 4 --check"
"$run" -n 4 bench allreduce --bytes 1K:16M --factor 4 --check

say "$run -n 4 check"
"$run" -n 4 check
