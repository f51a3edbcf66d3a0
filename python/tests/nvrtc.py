"""The compiler NVRTC, and the example of a kernel: it runs on emulated GPUs, which interpret PTX. Two ranks."""

import os
import runpy
import sys

import mscclpp
from mscclpp import utils

assert mscclpp.utils.compile_source('extern "C" __global__ void nothing() {}', arch="sm_90")[:4] == b"\x7fELF"
try:
    utils.compile_source("no C++", arch="sm_90", name="wrong.cu")
except mscclpp.InvalidUsage as problem:
    assert "wrong.cu(1)" in str(problem) and "sm_90" in str(problem), problem
else:
    sys.exit("a source that is no C++ was compiled")

to_machine_code = utils.compile_source


def to_ptx(source, *, device):
    """Compile for machine code as the example does, and return PTX, which emulated GPUs can run."""
    assert to_machine_code(source, arch="sm_90")[:4] == b"\x7fELF"
    return to_machine_code(source, device=device, ptx=True)


utils.compile_source = to_ptx
example = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python", "kernel.py")
runpy.run_path(example, run_name="__main__")
print(f"rank {os.environ['RANK']} is done")
