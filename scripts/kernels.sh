#!/bin/sh
# Builds or checks kernel images. Each transport with kernels of its own has
# kernels/kernels.json, which says what belongs into its images.
#
#   kernels.sh build [CPU-TARGET]   for this machine, beside the plugin
#   kernels.sh check                committed GPU images against their sources; what was
#                                   equal on this machine is not built again. NVIDIA's
#                                   assembler then says how many registers kernels use
#   kernels.sh machine-code [CHIPS] what the assembler makes of the GPU images, beside the
#                                   plugins, for sm_80,sm_90,… or all that are known
#   kernels.sh registers            writes the tables that check compares with
#
# OUT and KERNELS name other places of the machine code and of the program that makes it.
# Machine code is kept by all that decides its bytes, in the user's cache: for an image that
# has not changed, the assembler is not asked again.
set -eu
cd "$(dirname "$0")/.."
verb=${1:-build}
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/mscclpp-go
folders=
for manifest in collectives/image collectives/internal/*/image plan/image inference/image inference/moe/image framework/kernel/actor/image transports/*/image; do
	[ ! -f "$manifest/manifest.json" ] || folders="$folders --images $manifest"
done

# assemble PTXAS OPTIONS… passes over the kernels that only their own tests load.
assemble() {
	ptxas=$1
	shift
	# shellcheck disable=SC2086 # lists of words
	"${KERNELS:-bin/mscclpp-kernels}" assemble $folders --ptxas "$ptxas" --store "$cache/assembled" "$@"
}

# assemble_too OPTIONS… asks the oldest assembler that takes the images, and one of the next major version: programs load
# PTX where their driver has either. One type stands for all, which have the same instructions.
assemble_too() {
	for other in 12.2.140:sm_80,sm_90,sm_90a 13.5.37:sm_90,sm_100,sm_103,sm_120; do
		if ptxas=$(scripts/ptxas.sh "${other%:*}"); then
			assemble "$ptxas" --types f32 --chips "${other#*:}" --table "registers-${other%:*}.txt" "$@"
		fi
	done
}

if [ "$verb" = machine-code ]; then
	ptxas=$(scripts/ptxas.sh)
	assemble "$ptxas" --except actor_reduce ${2:+--chips "$2"} --out "${OUT:-bin/plugins/mscclpp}"
	exit 0
fi
if [ "$verb" = registers ]; then
	ptxas=$(scripts/ptxas.sh)
	assemble "$ptxas" --images examples/fused/image --record
	assemble_too --record
	exit 0
fi
found=0
for spec in transports/*/kernels/kernels.json collectives/image/kernels.json collectives/internal/scaling/kernels/kernels.json plan/image/kernels.json inference/image/kernels.json inference/moe/image/kernels.json framework/kernel/actor/kernels/kernels.json framework/device/hip/kernels/kernels.json; do
	[ -f "$spec" ] || continue
	# The actor is for tests, which build what they need of it for the CPU. Transports
	# build the collectives for the CPU as part of their own.
	case $verb:$spec in build:framework/* | build:collectives/* | build:plan/* | build:inference/*) continue ;; esac
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
		echo "kernels: $verb: expected build, check, machine-code or registers" >&2
		exit 2
		;;
	esac
done
if [ $found = 0 ]; then
	echo "kernels: no kernels.json was found" >&2
	exit 1
fi
if [ "$verb" = check ]; then
	if ptxas=$(scripts/ptxas.sh); then
		assemble "$ptxas" --images examples/fused/image
		assemble_too
	else
		echo "kernels: without the assembler, nobody has looked at registers and spills" >&2
	fi
fi
