#!/bin/bash
# Tests with PyTorch, unchanged, on the libraries of bin/lib. Where torch or NVRTC cannot be had (torch-venv.sh and nvrtc.sh say why) this
# says so and passes: a machine that cannot download 2 GB is no worse for that. TORCH_REQUIRED=1 makes it a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
venv=$(scripts/torch-venv.sh) || status=$?
if [ $status = 77 ] && [ -z "${TORCH_REQUIRED:-}" ]; then
	echo "torch-test: NOT run: there is no torch on this machine" >&2
	exit 0
fi
[ $status = 0 ] || exit $status
status=0
NVRTC_LIBRARY=$(scripts/nvrtc.sh) || status=$?
tests='Torch|NumPy|Tutorial'
if [ $status = 0 ]; then
	tests="$tests|NVRTC"
elif [ $status = 3 ] && [ -z "${TORCH_REQUIRED:-}" ]; then
	echo "torch-test: TestNVRTC is NOT run: there is no NVRTC on this machine" >&2
else
	exit $status
fi
export NVRTC_LIBRARY
TORCH_TEST_PYTHON=$venv/bin/python ${GO:-go} test -vet=off -count=1 -timeout 15m ./nccl/torchtest
# The backend in Python, arrays of NumPy, which comes with torch, and kernels that NVIDIA's compiler makes. A named Python has to have what tests need.
MSCCLPP_TEST_PYTHON=$venv/bin/python ${GO:-go} test -vet=off -count=1 -timeout 20m -run "$tests" ./python
