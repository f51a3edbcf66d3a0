"""A rank that calls the library of the process as torch does, with tensors of torch. The id goes by torch's store."""
import ctypes

import torch
import torch.distributed as dist

FLOAT32, BFLOAT16, SUM, AVG = 7, 9, 0, 4


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


nccl = ctypes.CDLL("libnccl.so.2")
nccl.ncclGetLastError.restype = ctypes.c_char_p


def call(name, *args):
    result = getattr(nccl, name)(*args)
    assert result == 0, f"{name}: {result}: {nccl.ncclGetLastError(None).decode()}"


def at(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
unique, comm = UniqueId(), ctypes.c_void_p()
if rank == 0:
    call("ncclGetUniqueId", ctypes.byref(unique))
ids = [bytes(unique)]
dist.broadcast_object_list(ids)
ctypes.memmove(ctypes.byref(unique), ids[0], 128)
call("ncclCommInitRank", ctypes.byref(comm), size, unique, rank)
for dtype, number in ((torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)):
    for n in (1, 1000, 100_000):
        x = torch.full((n,), rank + 1.0, dtype=dtype)
        ours, gloo = x.clone(), x.clone()
        call("ncclAllReduce", at(ours), at(ours), ctypes.c_size_t(n), number, SUM, comm, None)
        dist.all_reduce(gloo)
        assert torch.equal(ours, gloo), f"all_reduce of {n} {dtype}: {ours} and {gloo}"
        out = torch.empty(size * n, dtype=dtype)
        call("ncclAllGather", at(x), at(out), ctypes.c_size_t(n), number, comm, None)
        assert torch.equal(out, torch.arange(1, size + 1, dtype=dtype).repeat_interleave(n)), f"all_gather of {n} {dtype}"
call("ncclCommDestroy", comm)
print(f"rank {rank} of {size} is right", flush=True)
dist.destroy_process_group()
