#!/bin/sh
# Runs the conformance suite against plugins as separate processes: those given, or
# all in bin/plugins.
set -eu
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
	set -- bin/plugins/mscclpp-transport-*
fi
failed=0
for plugin; do
	case $plugin in *.kernels) continue ;; esac
	echo "== $plugin"
	bin/mscclpp-run conform --plugin "$plugin" || failed=1
done
exit $failed
