#!/bin/sh
# The installed files work in their place, and uninstall removes it all. Needs bin/ from
# `make build kernels`.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 143' HUP INT TERM
cd "$(dirname "$0")/.."
install=$PWD/scripts/install.sh
DESTDIR=$root PREFIX=/opt/m "$install"
test -f "$root/opt/m/include/mscclpp/device.h"
test -f "$root/opt/m/include/mscclpp/device_backend.h"
cmp THIRD_PARTY_NOTICES "$root/opt/m/share/doc/mscclpp/THIRD_PARTY_NOTICES"
cd /
"$root/opt/m/bin/mscclpp-run" plugins shm
"$root/opt/m/bin/mscclpp-run" -n 2 bench allreduce --bytes 1K:4K --iters 10 --check
# A program in C is compiled with what pkg-config says, and its job finds the plugins beside the library.
cc=$("${GO:-go}" env CC)
flags() { sed -n "s/^$1: //p" "$root/opt/m/lib/pkgconfig/mscclpp.pc" | sed "s,\${[a-z]*dir},$root/opt/m/$2,"; }
# shellcheck disable=SC2046,SC2086 # lists of words
$cc -std=c99 $(flags Cflags include) "$OLDPWD/capi/example/allreduce.c" $(flags Libs lib) -Wl,-rpath,"$root/opt/m/lib" -o "$root/allreduce"
"$root/opt/m/bin/mscclpp-run" -n 2 "$root/allreduce"
rm "$root/allreduce"
# A vendor builds kernels from what is installed: a spec of this tree, and one of his own
# whose folders are absolute.
share=$root/opt/m/share/mscclpp
mkdir "$root/vendor"
cat >"$root/vendor/kernels.json" <<END
{"name": "vendor", "include": ["$share/collectives/kernels", "$share/framework/kernel/actor/kernels"],
 "families": [{"name": "actor", "sources": ["actor.cc"]}, {"name": "mine", "sources": ["mine.cc"]}]}
END
cat >"$root/vendor/mine.cc" <<END
#include "args.h"
MSCCLPP_KERNEL(mscclpp_barrier_mine, mscclpp::collectives::Args, args) { (void)args; }
END
"$root/opt/m/bin/mscclpp-kernels" build --spec "$root/vendor/kernels.json" --target x86-64-v2 --out "$root/vendor/images"
grep -q '"mscclpp_barrier_mine"' "$root/vendor/images/manifest.json"
for spec in collectives/image transports/shm/kernels framework/kernel/actor/kernels; do
	for source in $(sed -n 's/.*"sources": \[\([^]]*\)\].*/\1/p' "$share/$spec/kernels.json" | tr -d '",'); do
		test -f "$share/$spec/$source" || { echo "installed-test: $spec/kernels.json names $source, which is not installed" >&2; exit 1; }
	done
	for folder in $(sed -n 's/.*"include": \[\([^]]*\)\].*/\1/p' "$share/$spec/kernels.json" | tr -d '",'); do
		ls "$share/$spec/$folder"/*.h >/dev/null || { echo "installed-test: $spec/kernels.json includes $folder, which has no header where it is installed" >&2; exit 1; }
	done
done
rm -rf "$root/vendor"
DESTDIR=$root PREFIX=/opt/m "$install" --remove
left=$(find "$root" -type f)
[ -z "$left" ] || { echo "installed-test: uninstall has left $left" >&2; exit 1; }
