#!/bin/sh
# Compares the tcp transport with a pair of C processes, over loopback and (as root)
# over two network namespaces, and an all-reduce with that of the installed MPI over
# TCP. Writes machine.json, raw output and a summary to docs/results/tcp; exits 1 if a
# target is missed. Arguments go to the program that does it: see
# `go run ./bench/cmd/compare-tcp -h`. Run `make build` first, and keep the machine
# quiet.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
"${CC:-cc}" -O2 -std=gnu11 -Wall -Wextra -Werror -pthread -o bin/tcp-peer bench/tcp/peer.c
"${GO:-go}" build -o bin/compare-tcp ./bench/cmd/compare-tcp
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
	mpicc -O2 -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -o bin/mpi-peer bench/mpi/peer.c
	set -- -mpirun mpirun "$@"
else
	echo "bench-tcp: mpicc is not installed: all-reduce is not compared" >&2
fi

tag=msb$$
work=$(mktemp -d)
clean() {
	ip netns del $tag-a 2>/dev/null || :
	ip netns del $tag-b 2>/dev/null || :
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# spaces makes two namespaces, joined by a pair of virtual interfaces.
spaces() {
	ip netns add $tag-a && ip netns add $tag-b &&
		ip link add ${tag}0 netns $tag-a type veth peer name ${tag}1 netns $tag-b &&
		ip -n $tag-a addr add 10.231.8.1/24 dev ${tag}0 && ip -n $tag-b addr add 10.231.8.2/24 dev ${tag}1 &&
		ip -n $tag-a link set lo up && ip -n $tag-b link set lo up &&
		ip -n $tag-a link set ${tag}0 up && ip -n $tag-b link set ${tag}1 up
}
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && spaces 2>/dev/null; then
	set -- -first $tag-a -second $tag-b -first-address 10.231.8.1 -second-address 10.231.8.2 "$@"
else
	echo "bench-tcp: no network namespaces here: loopback alone" >&2
fi
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret"
chmod 600 "$work/secret"
MSCCLPP_SECRET_FILE=$work/secret bin/compare-tcp "$@"
