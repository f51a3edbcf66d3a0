#!/bin/bash
# Prints the folder of a virtual environment that has torch, after it has made it where it is not there: its
# python is bin/python below that folder; other programs of it are run as its modules (python -m torch.distributed.run).
#
#   torch-venv.sh            makes it if need be: 2.1 GB to download and 5 GB on disk, once
#   torch-venv.sh --state    says which one is there, for proofs of stages
#
# scripts/torch/requirements.txt lists its wheels, each with a hash. The folder's name has a hash of that file and of
# the interpreter, so a change of either makes another one; one that nobody has used for two weeks is removed then.
# Status 77: it is not to be had on this machine, and the last line on stderr says why. A wheel with another hash is a
# failure.
set -euo pipefail
cd "$(dirname "$0")/.."
list=scripts/torch/requirements.txt
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go

cannot() {
	echo "torch-venv: $1" >&2
	exit 77
}

python=
for candidate in python3.11 python3; do
	if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
		python=$candidate
		break
	fi
done
none() { echo "none at $(date +%s.%N)"; } # which proves nothing
if [ -z "$python" ]; then
	if [ "${1:-}" = --state ]; then none && exit; fi
	cannot "no Python 3.11 with venv and ensurepip in PATH"
fi
version=$("$python" -c 'import sys; print(sys.version, sys.base_prefix)')
venv=$cache/venv-$({ cat "$list"; echo "$version"; } | sha256sum | cut -c1-16)

# An environment is complete when it has its new name, which it gets last.
if [ "${1:-}" = --state ]; then
	if [ -d "$venv" ]; then echo "$venv"; else none; fi
	exit
fi
[ "$(uname -sm)" = "Linux x86_64" ] || cannot "$(uname -sm): expected Linux x86_64, which the wheels are for"
mkdir -p "$cache"
exec 9>"$cache/venv.lock"
flock 9 # two that want it make one
if [ ! -d "$venv" ]; then
	free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1048576) }')
	[ "$free" -ge 8 ] || cannot "$free GiB are free at $cache: expected 8"
	find "$cache" -maxdepth 1 -name 'venv-*' -mtime +14 -exec rm -rf {} + # of other lists, which nobody has used since
	new=$cache/venv-new.$$
	trap 'rm -rf "$new"' EXIT
	echo "torch-venv: installing torch into $venv; this takes minutes, once" >&2
	"$python" -m venv "$new"
	log=$new/pip.log
	if ! timeout 600 "$new/bin/python" -m pip install -q --retries 1 --timeout 30 --no-cache-dir --no-deps --only-binary :all: --require-hashes -r "$list" >"$log" 2>&1 9>&-; then
		if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
			cat "$log" >&2
			exit 1
		fi
		tail -n 3 "$log" >&2
		cannot "the wheels could not be installed"
	fi
	mv "$new" "$venv"
fi
touch "$venv"
echo "$venv"
