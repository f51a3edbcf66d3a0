#!/bin/sh
# Runs a command on a machine with RDMA: a virtual one, whose kernel has soft-RoCE.
#
#   rdma-guest.sh [--seconds N] [--boot N] [--cpus N] [--count] [--memory MIB]
#                 [--join SOCKET --host N] [--pid FILE] [--] CMD ARGS…
#   rdma-guest.sh --kernel
#
# The guest sees the root of this machine, and may write to it, but only what it
# writes below the working folder is kept. It has one RDMA device, rxe0, on a dummy
# network device, dummy0. CMD runs as root in the working folder, with the variables of
# this environment; its output comes out here, and its exit status is that of the script.
# Everything is emulated, so no rights are needed, and nothing is installed: the kernel
# is downloaded once, by apt, and unpacked into the cache. 124: CMD did not end in time.
# 125: the machine did not start CMD within --boot seconds, or its kernel gave up: after an
# oops, or when a processor has been held for a minute. The stacks of the processors stand above.
# With --pid the number of the emulator's process is in FILE while it runs: to kill it.
# With --count the guest's clock goes a nanosecond further with each instruction, and no
# otherwise; it should have one processor then. --kernel prints which kernel is in the
# cache, with a sum of it and its modules, and fails where none is.
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/mscclpp-go/rdma-guest
# A cache that works is kept: the newest kernel is asked for only where there is none.
cached() { find "$cache" -mindepth 1 -maxdepth 1 -type d -name 'linux-image-*' 2>/dev/null | sort | tail -n 1; }
if [ "${1:-}" = --kernel ]; then
	kernel=$(cached)
	[ -n "$kernel" ] || { echo "rdma-guest: no kernel in $cache" >&2; exit 1; }
	echo "${kernel##*/}"
	cd "$kernel"
	find . -type f | sort | xargs cat | sha256sum
	exit
fi

seconds=300 boot=120 cpus=4 accel='-accel tcg,thread=multi,tb-size=512' memory=2048 join='' host=1 pid='' count=
while [ $# -gt 0 ]; do
	case $1 in
	--seconds) seconds=$2; shift 2 ;;
	--boot) boot=$2; shift 2 ;;
	--cpus) cpus=$2; shift 2 ;;
	--count) accel='-accel tcg,tb-size=512 -icount shift=0,sleep=off,align=off' count=yes; shift ;;
	--memory) memory=$2; shift 2 ;;
	--join) join=$2; shift 2 ;;
	--host) host=$2; shift 2 ;;
	--pid) pid=$2; shift 2 ;;
	--) shift; break ;;
	-*) echo "rdma-guest: $1: expected --seconds, --boot, --cpus, --count, --memory, --join, --host, --pid or a command" >&2; exit 2 ;;
	*) break ;;
	esac
done
if [ $# -eq 0 ]; then
	echo "rdma-guest: expected a command" >&2
	exit 2
fi

missing=
need() { # need PROGRAM PACKAGE
	PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null || missing="$missing $2"
}
need qemu-system-x86_64 qemu-system-x86
need cpio cpio
need busybox busybox-static
need ip iproute2
need rdma iproute2
need xz xz-utils
need "${CC:-cc}" gcc
if [ -n "$missing" ]; then
	echo "rdma-guest: not installed:$missing; run scripts/deps.sh rdma" >&2
	exit 1
fi

mkdir -p "$cache"
run=$(mktemp -d "${TMPDIR:-/tmp}/rdma-guest.XXXXXX")
watcher=
trap '[ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true; rm -rf "$run"' EXIT
trap 'exit 143' HUP INT TERM # or the trap above is not run
marker=status-${run##*.} # on the guest's console, where the command cannot know it

# The modules in an order in which they load. crc32_generic is what rxe finds by name
# when it starts, so no dependency leads to it.
modules="virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio virtio_pci
 netfs fscache 9pnet 9pnet_virtio 9p overlay dummy failover net_failover virtio_net
 crc32_generic ib_core ib_uverbs udp_tunnel ip6_udp_tunnel rdma_rxe sch_netem"

# unpack PACKAGE DIR puts the kernel, as the ELF file that boots fastest, and the
# modules into DIR.
unpack() {
	mkdir "$run/deb" "$run/root"
	if ! (cd "$run/deb" && apt-get download -q "$1") >"$run/log" 2>&1; then
		cat "$run/log" >&2
		echo "rdma-guest: apt-get download $1 failed: expected a package source with it; apt-get update may help" >&2
		exit 1
	fi
	dpkg-deb -x "$run"/deb/*.deb "$run/root"
	mkdir "$run/new" "$run/new/modules"
	image=$(echo "$run"/root/boot/vmlinuz-*)
	at=$(LC_ALL=C grep -abo "$(printf '\3757zXZ')" "$image" | head -n 1 | cut -d: -f1)
	if [ -z "$at" ]; then
		echo "rdma-guest: $1: the kernel is not packed with xz" >&2
		exit 1
	fi
	# The bytes behind the packed kernel make xz complain once it is done.
	tail -c "+$((at + 1))" "$image" | xz -dcq --single-stream >"$run/new/vmlinux" 2>/dev/null || true
	for m in $modules; do
		file=$(find "$run/root/lib/modules" -name "$(echo "$m" | tr _ '?').ko*" | head -n 1)
		case $file in
		*.xz) xz -dc "$file" >"$run/new/modules/$m.ko" ;;
		*.ko) cp "$file" "$run/new/modules/$m.ko" ;;
		esac # a missing module is built into the kernel
	done
	rm -rf "$run/root" "$run/deb"
	mv -T "$run/new" "$2" 2>/dev/null || [ -s "$2/vmlinux" ] # someone else may have been faster
}

kernel=$(cached)
if [ -z "$kernel" ]; then
	package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
	if [ -z "$package" ]; then
		echo "rdma-guest: apt knows no package linux-image-amd64: run apt-get update as root" >&2
		exit 1
	fi
	kernel=$cache/$package
	unpack "$package" "$kernel"
fi

# The part that runs in the guest: first from the initial file system, then from the host's root.
here=$(pwd -P)
mkdir -p "$run/init/bin" "$run/init/modules" "$run/init/root" "$run/init/proc" "$run/init/dev"
cp "$(command -v busybox)" "$run/init/bin/busybox"
cp "$kernel"/modules/*.ko "$run/init/modules/"
cat >"$run/init/init" <<INIT
#!/bin/busybox sh
b=/bin/busybox
\$b mount -t proc proc /proc
\$b mount -t devtmpfs dev /dev
for m in $(echo $modules); do
	[ ! -f /modules/\$m.ko ] || \$b insmod /modules/\$m.ko || echo "rdma-guest: module \$m does not load"
done
\$b mkdir /low /up
\$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro hostroot /low
\$b mount -t tmpfs tmpfs /up
\$b mkdir /up/new /up/work
\$b mount -t overlay -o lowerdir=/low,upperdir=/up/new,workdir=/up/work overlay /root
\$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,access=any work "/root$here"
\$b mount --move /dev /root/dev
\$b mkdir -p /root/dev/shm /root/dev/pts
\$b mount -t tmpfs tmpfs /root/dev/shm
\$b mount -t devpts devpts /root/dev/pts
\$b mount --move /proc /root/proc
\$b mount -t sysfs sys /root/sys
\$b mount -t tmpfs tmpfs /root/run
exec \$b chroot /root /bin/sh "$run/job"
INIT
chmod +x "$run/init/init"
(cd "$run/init" && find . | cpio -o -H newc --quiet) >"$run/initrd"
rm -rf "$run/init"

# The second serial line says that the command begins. The console would not do: words of the
# kernel come between its bytes.
{
	export -p
	cat <<JOB
echo up >/dev/ttyS1
PATH=\$PATH:/usr/sbin:/sbin
ulimit -l unlimited
ulimit -n 65536
hostname guest$host
ip link set lo up
[ -e /sys/class/net/dummy0 ] || ip link add dummy0 type dummy
dev=dummy0
[ -z "$join" ] || dev=eth0
ip link set \$dev mtu 4200 up
ip address add 192.0.2.$host/24 dev \$dev
if ! rdma link add rxe0 type rxe netdev \$dev; then echo "rdma-guest: no soft-RoCE in this kernel"; fi
JOB
	printf 'cd '
	quote() { printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
	quote "$here"
	echo
	for a; do quote "$a"; done
	# Switched off at once: nothing is kept, so nothing has to be shut down. But not before the
	# console has sent the status, which stty waits for: the kernel's own words of the end do
	# not queue behind it, they come between its bytes.
	cat <<JOB
</dev/null
status=\$?
sync
printf '\\n$marker %d\\n' \$status
stty sane </dev/console
echo o >/proc/sysrq-trigger
sleep 60
JOB
} >"$run/job"

# The line with the status is the last one; all others are the command's.
status_of() {
	sed -un -e 's/\r$//' -e "/^$marker [0-9]*\$/{s/.* //;w $run/status" -e 'q;}' -e '/sysrq: Power Off$/!p'
	cat >/dev/null
}
# rate prints the rate of the time-stamp counter in kHz. A guest has that of this machine, and
# its kernel measures it with the emulated timer: an emulator that has to wait for a processor
# meanwhile makes the result too low, three to fourteen times in one boot of twenty on a busy
# machine. Then the guest's clock is as much too fast, and everything in it runs into its bounds.
rate() {
	cat >"$run/rate.c" <<'C'
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct point {
	uint64_t ns, ticks;
};

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The reading of the counter that took least of a thousand, with the time in its middle. */
static struct point read_both(void) {
	struct point best = {0, 0};
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < 1000; i++) {
		uint64_t before = now(), ticks = __rdtsc(), took = now() - before;
		if (took < least) {
			least = took;
			best = (struct point){before + took / 2, ticks};
		}
	}
	return best;
}

int main(void) {
	struct point a = read_both();
	nanosleep(&(struct timespec){0, 50000000}, NULL);
	struct point b = read_both();
	printf("%.0f\n", (double)(b.ticks - a.ticks) * 1e6 / (double)(b.ns - a.ns));
	return 0;
}
C
	"${CC:-cc}" -O2 -std=c11 -D_GNU_SOURCE -o "$run/rate" "$run/rate.c"
	"$run/rate"
}
# Counted instructions are a clock that nothing disturbs.
clock=
[ -n "$count" ] || clock=tsc_early_khz=$(rate)

# watch ends an emulator whose guest does not come up, after it has said where its processors are.
# The interrupt that cannot be masked makes a kernel panic that handles no other any more.
watch() {
	tries=0
	while [ ! -s "$run/up" ] && [ $tries -lt $((boot * 5)) ]; do
		tries=$((tries + 1))
		sleep 0.2
	done
	[ ! -s "$run/up" ] || return 0
	printf 'info registers -a\ninfo version\n' >"$run/monitor.in"
	echo "rdma-guest: the machine has not started the command within $boot s; where its processors are:" >&2
	timeout 30 sed -un 's/\r//; /^CPU#/p; /[RE]IP=/p; /[RE]SP=/p; /^[0-9]*\.[0-9]*\.[0-9]/q' "$run/monitor.out" >&2 || true
	echo nmi >"$run/monitor.in"
	tries=0
	while [ $tries -lt 100 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	echo quit >"$run/monitor.in"
}
mkfifo "$run/monitor.in" "$run/monitor.out"

# The first host waits for the second one at the socket.
net=
if [ -n "$join" ]; then
	server=off
	[ "$host" != 1 ] || server=on
	net="-netdev stream,id=net,addr.type=unix,addr.path=$join,server=$server -device virtio-net-pci,netdev=net,host_mtu=4200,mac=02:00:00:00:00:0$host"
fi
[ -z "$pid" ] || net="$net -pidfile $pid"
# A kernel that cannot go on panics, with the stacks of all processors, and the emulator ends. The
# crypto code is not tested at each boot.
watch &
watcher=$!
# In the foreground: in a process group of its own the emulator would outlive the caller that stops us.
# shellcheck disable=SC2086 # net, accel and clock are lists of words
{
	status=0
	timeout --foreground -k 5 "$seconds" qemu-system-x86_64 -M q35 $accel -cpu max -smp "$cpus" -m "$memory" \
		-nodefaults -no-user-config -display none -no-reboot -serial stdio -serial "file:$run/up" \
		-chardev "pipe,id=monitor,path=$run/monitor" -mon chardev=monitor \
		-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
		-device virtio-9p-pci,fsdev=root,mount_tag=hostroot \
		-fsdev "local,id=work,path=$here,security_model=none,multidevs=remap" \
		-device virtio-9p-pci,fsdev=work,mount_tag=work \
		$net -kernel "$kernel/vmlinux" -initrd "$run/initrd" \
		-append "console=ttyS0 quiet loglevel=4 mitigations=off tsc=reliable $clock no_timer_check clearcpuid=rep_good,erms,fsrm cryptomgr.notests panic=-1 panic_print=0x40 oops=panic softlockup_panic=1 watchdog_thresh=30 unknown_nmi_panic rdinit=/init" \
		</dev/null 2>"$run/errors" || status=$?
	echo $status >"$run/emulator"
} | status_of
if [ -s "$run/status" ]; then exit "$(cat "$run/status")"; fi
cat "$run/errors" >&2
if [ "$(cat "$run/emulator")" = 124 ]; then
	echo "rdma-guest: the guest ended without a status within $seconds s" >&2
	exit 124
fi
echo "rdma-guest: the guest ended without a status, before its time: expected no end of its kernel or the emulator" >&2
exit 125
