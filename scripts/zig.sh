#!/bin/sh
# Prints the path of a C compiler that links for glibc 2.28, after it has fetched it where it is not there: 100 MB, once.
# It is zig, in the version and with the hash of scripts/zig/requirements.txt. Status 77: it is not to be had on this machine, and
# the last line on stderr says why. A file with another hash is a failure.
set -eu
cd "$(dirname "$0")/.."
list=scripts/zig/requirements.txt
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go
folder=$cache/tools/zig-$(sha256sum <"$list" | cut -c1-16)

cannot() {
	echo "zig: $1" >&2
	exit 77
}

[ "$(uname -sm)" = "Linux x86_64" ] || cannot "$(uname -sm): expected Linux x86_64, which it is for"
if [ ! -d "$folder" ]; then
	python3 -c 'import venv, ensurepip' 2>/dev/null || cannot "no Python with venv and ensurepip in PATH"
	mkdir -p "$cache/tools"
	new=$folder-new.$$
	trap 'rm -rf "$new" "$new-venv"' EXIT
	trap 'exit 143' HUP INT TERM
	echo "zig: fetching it into $folder; this takes a minute, once" >&2
	# A pip of its own: that of the system may refuse, or be missing, as where a build is isolated.
	python3 -m venv "$new-venv"
	if ! why=$(env -u PYTHONPATH "$new-venv/bin/python" -m pip install -q --no-cache-dir --no-deps --only-binary :all: --require-hashes --target "$new" -r "$list" 2>&1); then
		printf '%s\n' "$why" | tail -n 3 >&2
		case $why in *"DO NOT MATCH THE HASHES"*) exit 1 ;; esac
		cannot "it could not be fetched"
	fi
	chmod +x "$new/ziglang/zig"
	mv -T "$new" "$folder" 2>/dev/null || [ -d "$folder" ] # another one was as fast
fi

# The compiler that others call: go build names it in what it keeps, so its path is the same for all copies of this tree. Its own
# cache lies beside it, and goes with it.
cat >"$folder/cc.$$" <<'END'
#!/bin/bash
here=$(dirname "$0")
export ZIG_GLOBAL_CACHE_DIR="$here/cache" ZIG_LOCAL_CACHE_DIR="$here/cache"
# Functions of NVML are bound when they are called, by then NVML was opened where it is there. Zig's linker cannot leave them
# undefined unless the references are weak, and binds all when a file is loaded unless -z lazy is given.
args=() weak=
for a in "$@"; do
	case $a in
	-Wl,--unresolved-symbols=ignore-in-object-files) weak=1 ;;
	*) args+=("${a//,-z,noseparate-code/}") ;; # its linker does not have that
	esac
done
if [ -n "$weak" ]; then
	for a in "${args[@]}"; do
		case $a in *.o) objcopy --wildcard --weaken-symbol='nvml*' "$a" ;; esac
	done
	args+=(-Wl,-z,lazy)
fi
exec "$here/ziglang/zig" cc -target x86_64-linux-gnu.2.28 -Wno-deprecated-declarations "${args[@]}"
END
chmod +x "$folder/cc.$$"
mv "$folder/cc.$$" "$folder/cc"
echo "$folder/cc"
