#!/bin/sh
# Installs under $DESTDIR$PREFIX, or removes it again with --remove:
#   bin/mscclpp-*                      programs
#   lib/mscclpp/plugins/               plugins, each beside its kernel images; machine code for GPUs
#   lib/libmscclpp.so.1                the C library, which finds the plugins beside itself
#   lib/mscclpp/libnccl.so.2           the NCCL-compatible library, where no loader finds it by chance
#   lib/mscclpp/librccl.so.1           the same with RCCL's names, for AMD's GPUs
#   lib/pkgconfig/mscclpp.pc           how to compile and link with it
#   include/mscclpp.h, mscclpp_*.h     its headers
#   include/mscclpp/                   headers for device code
#   include/mscclpp/nccl/nccl.h        NCCL's interface
#   share/doc/mscclpp/                 licenses, of this project and of what it contains
#   share/mscclpp/                     sources and specs of the kernels, for vendors who build
#                                      them for hardware of their own; folders as in the tree
set -eu
cd "$(dirname "$0")/.."
root=${DESTDIR:-}${PREFIX:-/usr/local}
lib=$root/lib/mscclpp
if [ "${1:-}" = --remove ]; then
	for p in bin/mscclpp-*; do rm -f "$root/bin/${p##*/}"; done
	rm -f "$root/lib/libmscclpp.so.1" "$root/lib/libmscclpp.so" "$root/lib/pkgconfig/mscclpp.pc" "$root"/include/mscclpp.h "$root"/include/mscclpp_*.h
	rm -rf "$lib" "$root/include/mscclpp" "$root/share/doc/mscclpp" "$root/share/mscclpp"
	exit 0
fi
install -d "$root/bin" "$lib/plugins" "$root/include/mscclpp"
install -m 755 bin/mscclpp-* "$root/bin"
for p in bin/plugins/*.cubins; do # of make machine-code, if that was made
	[ ! -e "$p" ] || install -m 644 "$p" "$lib/plugins"
done
for p in bin/plugins/mscclpp-transport-*; do
	case $p in
	*.kernels)
		install -d "$lib/plugins/${p##*/}"
		install -m 644 "$p"/* "$lib/plugins/${p##*/}"
		;;
	*) install -m 755 "$p" "$lib/plugins" ;;
	esac
done
install -m 644 framework/kernel/include/mscclpp/* framework/device/native/include/mscclpp/* "$root/include/mscclpp"
install -m 644 bin/lib/libmscclpp.so.1 "$root/lib"
ln -sf libmscclpp.so.1 "$root/lib/libmscclpp.so"
install -m 644 capi/mscclpp*.h "$root/include"
install -m 644 bin/lib/libnccl.so.2 "$lib"
ln -sf libnccl.so.2 "$lib/libnccl.so"
install -m 644 bin/lib/librccl.so.1 "$lib"
ln -sf librccl.so.1 "$lib/librccl.so"
install -d "$root/include/mscclpp/nccl"
install -m 644 nccl/nccl.h "$root/include/mscclpp/nccl"
install -d "$root/lib/pkgconfig" "$root/share/doc/mscclpp"
cat >"$root/lib/pkgconfig/mscclpp.pc" <<END
prefix=${PREFIX:-/usr/local}
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: mscclpp
Description: Communication between GPUs: collectives, channels and proxies
Version: $(sed -n 's/^#define MSCCLPP_VERSION "\(.*\)"$/\1/p' capi/mscclpp.h)
Libs: -L\${libdir} -lmscclpp
Cflags: -I\${includedir}
END
install -m 644 LICENSE THIRD_PARTY_NOTICES "$root/share/doc/mscclpp"
for d in collectives/kernels plan/kernels inference/kernels inference/moe/kernels collectives/image transports/shm/kernels framework/kernel/actor/kernels framework/device/conformance/kernels; do
	install -d "$root/share/mscclpp/$d"
	for f in "$d"/*.h "$d"/*.cc "$d"/kernels.json; do
		[ ! -e "$f" ] || install -m 644 "$f" "$root/share/mscclpp/$d"
	done
done
echo "installed under $root"
