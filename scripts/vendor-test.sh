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
