#!/bin/sh
# Fails when a generated file in the tree is not what its generator writes now.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin/mscclpp-run config --docs >"$work/config.md"
diff -u docs/config.md "$work/config.md"
if command -v protoc >/dev/null; then
	plugins/proto/generate.sh "$work"
	for f in plugins/proto/*.pb.go; do
		# The version of protoc in the second comment is that of the machine.
		diff -u -I 'protoc  *v' "$f" "$work/${f##*/}"
	done
else
	echo "generated: protoc is not installed; plugins/proto was not compared" >&2
fi
