#!/bin/sh
# Installs the Debian packages that are missing, as root; as an ordinary user it
# prints what to install and fails.
#
# With an argument it stops at what that purpose needs:
#   deps.sh build      compilers for C and C++ from anywhere, else g++; silent if there
#   deps.sh kernels    compilers for device code
#   deps.sh mpi        the MPI that we compare with
#   deps.sh proto      the protocol compiler, and gRPC for the plugin in Python
#   deps.sh engines    what starts jobs elsewhere: Slurm, MPICH and sshd; only installed when
#                      asked for, because Debian starts daemons among them (not sshd, here)
#   deps.sh rdma       what makes a virtual machine with RDMA; only installed when asked for
set -eu

kernels="g++ clang-19 lld-19 libclang-rt-19-dev llvm-19"
mpi="openmpi-bin libopenmpi-dev"
proto="protobuf-compiler python3-grpcio python3-protobuf"
engines="slurmctld slurmd slurm-client munge mpich openmpi-bin openssh-client openssh-server iproute2"
rdma="qemu-system-x86 cpio busybox-static iproute2 xz-utils libibverbs1 ibverbs-providers libibverbs-dev perftest"

has() { # one of these programs
	for program; do
		if [ -n "$program" ] && command -v "$program" >/dev/null; then return 0; fi
	done
	return 1
}

case "${1:-all}" in
all) wanted="$kernels $mpi $proto" ;;
build)
	go=${GO:-go}
	if ! has "$go"; then
		echo "deps: $go is not in PATH: expected Go 1.26 or newer, see https://go.dev/dl" >&2
		exit 1
	fi
	# Without the first Go leaves out all files with C; the second makes the kernels.
	cc=$("$go" env CC)
	if has "${cc%% *}" && has "${CXX:-}" g++ clang++-19 clang++; then exit 0; fi
	wanted=g++
	;;
kernels) wanted=$kernels ;;
mpi) wanted=$mpi ;;
proto) wanted=$proto ;;
engines) wanted=$engines ;;
rdma) wanted=$rdma ;;
*)
	echo "deps: $1: expected build, kernels, mpi, proto, engines, rdma or nothing" >&2
	exit 2
	;;
esac

if ! has dpkg-query; then
	echo "deps: not a Debian system; install the counterparts of: $wanted" >&2
	exit 1
fi

# missing_of PACKAGES… prints those that are not installed. One that is there for two
# architectures has two lines.
missing_of() {
	for p; do
		dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || printf ' %s' "$p"
	done
}

# shellcheck disable=SC2086 # lists of words, here and below
missing=$(missing_of $wanted)
if [ -z "$missing" ]; then
	if [ "${1:-all}" = build ]; then
		echo "deps: g++ is installed, but not in PATH, or CC names something else: $cc" >&2
		exit 1
	fi
	echo "deps: all installed"
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "deps: missing:$missing" >&2
	echo "deps: as root: apt-get install --no-install-recommends$missing" >&2
	exit 1
fi

# Tests start an SSH server of their own. That of the system is to listen only where it
# did before.
policy=/usr/sbin/policy-rc.d
case $missing in
*openssh-server*)
	if [ ! -e $policy ]; then
		trap 'rm -f $policy' EXIT
		printf '#!/bin/sh\n[ "$1" != ssh ] || exit 101\n' >$policy
		chmod 755 $policy
	fi
	;;
esac

export DEBIAN_FRONTEND=noninteractive
wait="-o DPkg::Lock::Timeout=120" # for another apt, which a fresh machine may be running
apt-get update -q $wait || echo "deps: apt-get update failed: trying with the lists that are here" >&2
if ! apt-get install -q -y --no-install-recommends $wait $missing; then
	unknown=
	for p in $missing; do
		apt-cache show "$p" >/dev/null 2>&1 || unknown="$unknown $p"
	done
	echo "deps: could not be installed:$missing" >&2
	[ -z "$unknown" ] || echo "deps: not among the package sources of this system:$unknown" >&2
	exit 1
fi
case $missing in
*openssh-server*) systemctl disable --quiet ssh.service ssh.socket 2>/dev/null || : ;; # nor at the next start
esac
missing=$(missing_of $wanted)
if [ -n "$missing" ]; then
	echo "deps: apt-get succeeded, but still missing:$missing" >&2
	exit 1
fi
