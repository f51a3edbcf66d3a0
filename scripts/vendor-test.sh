#!/bin/sh
# A plugin from a module of its own, and then a device: built, conforming, used by a config file alone. Needs
# bin/ from `make build kernels`.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
out=$PWD/bin/vendor
"$go" build -o "$out/pingpong" ./examples/pingpong
(
	cd examples/vendor-transport
	"$go" vet ./...
	"$go" test ./...
	"$go" build -o "$out/" ./cmd/mscclpp-transport-loopnet
)
bin/mscclpp-run conform --plugin "$out/mscclpp-transport-loopnet"
cat >"$out/job.yaml" <<END
transports: [loopnet]
plugins: {path: {loopnet: {file: "$out/mscclpp-transport-loopnet"}}}
END
bin/mscclpp-run -n 2 --config "$out/job.yaml" "$out/pingpong"

# A device from a module of its own, with transport and kernels: it keeps the rules, and is used by a config file alone.
toy=$out/toy
(
	cd examples/vendor-device
	"$go" vet ./...
	"$go" test ./...
	make GO="$go" OUT="$toy" STORE="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go/built"
)
bin/mscclpp-run conform --device "$toy/libtoy.so" --kernels "$toy/mscclpp-transport-toylink.kernels/conform-toy1.so" --option memory=67108864
bin/mscclpp-run --config "$toy/job.yaml" -n 2 check
bin/mscclpp-run --config "$toy/job.yaml" doctor | grep -E '^ok +toy devices +4 of .*; links join 6 of 6 pairs'
ranks=$(bin/mscclpp-run --config "$toy/job.yaml" --nproc-per-node gpu -- echo rank | grep -c '^rank$')
[ "$ranks" = 4 ] || { echo "--nproc-per-node gpu: $ranks ranks, expected one for each of four toys"; exit 1; }
bin/mscclpp-run --config "$toy/job.yaml" topo | grep -E '^toy:0 +X +L2 +L2 +L2 '

# Links that join pairs of devices alone: the transport for toys serves these, and tcp the others.
sed -e 's/options: \[/options: [links=pairs, /' "$toy/job.yaml" >"$toy/pairs.yaml"
bin/mscclpp-run --config "$toy/pairs.yaml" -n 4 --log-level debug check --at-most 20 >"$toy/pairs.log" 2>&1 || { cat "$toy/pairs.log"; exit 1; }
linked() { grep "msg=linked rank=$1 comm=world comm_rank=$1 peer=$2 " "$toy/pairs.log" | grep -q "transport=toylink"; }
if ! linked 0 1 || ! linked 2 3 || linked 0 2 || linked 1 3 || ! grep -q "transport=tcp" "$toy/pairs.log"; then
	echo "links=pairs: expected toylink between ranks 0 and 1, and 2 and 3, and tcp between the others:"
	grep "msg=linked" "$toy/pairs.log"
	exit 1
fi
