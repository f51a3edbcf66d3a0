#!/bin/sh
# Checks traces by Perfetto's own protobuf definitions: perfetto.sh FILE…, or perfetto.sh --self-test FILE, which breaks a good
# trace in ten ways and expects the checker to find each. The definitions come from the registry of Python packages, once, in the
# version and with the hash of scripts/perfetto/requirements.txt. Status 77: they are not to be had on this machine.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
list=$top/scripts/perfetto/requirements.txt
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go
folder=$cache/tools/perfetto-$(sha256sum <"$list" | cut -c1-16)

cannot() {
	echo "perfetto: NOT run: $1" >&2
	exit 77
}

if [ ! -d "$folder" ]; then
	python3 -c 'import venv, ensurepip' 2>/dev/null || cannot "no Python with venv and ensurepip in PATH"
	mkdir -p "$cache/tools"
	exec 9>"$cache/tools/perfetto.lock"
	flock 9 # several tests may want it at once
fi
if [ ! -d "$folder" ]; then
	new=$folder-new.$$
	trap 'rm -rf "$new" "$new-venv"' EXIT
	trap 'exit 143' HUP INT TERM
	python3 -m venv "$new-venv"
	if ! why=$(env -u PYTHONPATH timeout 120 "$new-venv/bin/python" -m pip install -q --retries 1 --no-cache-dir --no-deps --only-binary :all: --require-hashes --target "$new" -r "$list" 2>&1); then
		printf '%s\n' "$why" | tail -n 3 >&2
		case $why in *"DO NOT MATCH THE HASHES"*) exit 1 ;; esac
		cannot "the definitions could not be fetched"
	fi
	mv -T "$new" "$folder"
	rm -rf "$new-venv"
	trap - EXIT
fi
exec 9>&-
PYTHONPATH=$folder exec python3 "$top/scripts/perfetto/check.py" "$@"
