#!/bin/sh
# Regenerates transport.pb.go and transport_grpc.pb.go from transport.proto, into
# the folder given as argument, or in place. CI generates into an empty folder and
# compares.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$tools:$PATH protoc --proto_path="$here" \
	--go_out="$out" --go_opt=paths=source_relative \
	--go-grpc_out="$out" --go-grpc_opt=paths=source_relative \
	transport.proto
