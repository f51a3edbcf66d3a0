#!/bin/sh
# Builds or checks kernel images. Each transport with kernels of its own has
# kernels/kernels.json, which says what belongs into its images.
#
#   kernels.sh build [CPU-TARGET]   for this machine, beside the plugin
#   kernels.sh check                committed GPU images against their sources; what was
#                                   equal on this machine is not built again
set -eu
cd "$(dirname "$0")/.."
verb=${1:-build}
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go
found=0
for spec in transports/*/kernels/kernels.json collectives/image/kernels.json framework/kernel/actor/kernels/kernels.json; do
	[ -f "$spec" ] || continue
	# The actor is for tests, which build what they need of it for the CPU. Transports
	# build the collectives for the CPU as part of their own.
	case $verb:$spec in build:framework/* | build:collectives/*) continue ;; esac
	found=1
	owner=${spec%/kernels.json}
	owner=${owner%/kernels} # of a transport…
	owner=${owner%/image} # …or of the collectives
	name=${owner##*/}
	case $verb in
	build)
		bin/mscclpp-kernels build --store "$cache/built" --spec "$spec" --target "${2:-native}" --out "bin/plugins/mscclpp-transport-$name.kernels"
		;;
	check)
		if [ -f "$owner/image/manifest.json" ]; then
			proven=$cache/proven
			[ -z "${CHECKS_ALL:-}" ] || proven=
			bin/mscclpp-kernels check ${proven:+--proven "$proven"} --spec "$spec" --target gpu --out "$owner/image"
		fi
		;;
	*)
		echo "kernels: $verb: expected build or check" >&2
		exit 2
		;;
	esac
done
if [ $found = 0 ]; then
	echo "kernels: no kernels.json was found" >&2
	exit 1
fi
