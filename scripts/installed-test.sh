#!/bin/sh
# What install puts somewhere works there, and uninstall removes it all. Needs bin/ from
# `make build kernels`.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 143' HUP INT TERM
cd "$(dirname "$0")/.."
install=$PWD/scripts/install.sh
DESTDIR=$root PREFIX=/opt/m "$install"
test -f "$root/opt/m/include/mscclpp/device.h"
cmp THIRD_PARTY_NOTICES "$root/opt/m/share/doc/mscclpp/THIRD_PARTY_NOTICES"
cd /
"$root/opt/m/bin/mscclpp-run" plugins shm
"$root/opt/m/bin/mscclpp-run" -n 2 bench allreduce --bytes 1K:4K --iters 10 --check
DESTDIR=$root PREFIX=/opt/m "$install" --remove
left=$(find "$root" -type f)
[ -z "$left" ] || { echo "installed-test: uninstall has left $left" >&2; exit 1; }
