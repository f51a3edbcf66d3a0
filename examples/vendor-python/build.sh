#!/bin/sh
# Puts the plugin and the messages of the protocol into a folder: build.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}
proto=${MSCCLPP_PROTO:-$here/../../plugins/proto}
mkdir -p "$out"
protoc --proto_path="$proto" --python_out="$out" transport.proto
cp "$here"/mscclpp-transport-pymem "$here"/*.py "$out"
