"""Says which NCCL torch got."""
import ctypes

import torch

version = ctypes.c_int()
assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version)) == 0
assert torch.distributed.is_nccl_available()
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
nccl = sorted(f for f in mapped if "libnccl.so" in f)
assert not any("libmscclpp" in f for f in mapped), "libmscclpp is loaded without a communicator"
print("torch", torch.__version__, "uses", version.value, "of", *nccl)
