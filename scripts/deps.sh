#!/bin/sh
# Installs the Debian packages that are missing, as root; as an ordinary user it
# prints what to install and fails.
#
# With an argument it stops at what that purpose needs:
#   deps.sh kernels    compilers for device code
#   deps.sh mpi        the MPI that we compare with
#   deps.sh proto      the protocol compiler, and gRPC for the plugin in Python
set -eu

kernels="g++ clang-19 lld-19 libclang-rt-19-dev llvm-19"
mpi="openmpi-bin libopenmpi-dev"
proto="protobuf-compiler python3-grpcio python3-protobuf"

case "${1:-all}" in
all) wanted="$kernels $mpi $proto" ;;
kernels) wanted=$kernels ;;
mpi) wanted=$mpi ;;
proto) wanted=$proto ;;
*)
	echo "deps: $1: expected kernels, mpi, proto or nothing" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "deps: not a Debian system; install the counterparts of: $wanted" >&2
	exit 1
fi

missing=
for p in $wanted; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) || state=none
	[ "$state" = installed ] || missing="$missing $p"
done
if [ -z "$missing" ]; then
	echo "deps: all installed"
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "deps: missing:$missing" >&2
	echo "deps: as root: apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # a list of words
apt-get install -q -y --no-install-recommends $missing
