"""Messages of GPUs around a ring, where every rank sends first. gpu_standin.py stands for the GPUs. Three ranks."""

import datetime
import sys

import torch
import torch.distributed as dist

import gpu_standin as gpu
import mscclpp._torch_cuda
import mscclpp.torch

mscclpp._torch_cuda.Streams = gpu.Streams
dist.init_process_group("mscclpp", timeout=datetime.timedelta(minutes=5))
rank, size = dist.get_rank(), dist.get_world_size()
for n in (5, 1 << 18, 1):
    x, y = gpu.put(torch.full((n,), float(rank))), gpu.put(torch.full((n,), 9.0))
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, y, (rank - 1) % size)]):
        work.wait()
        assert work.get_future().wait()
    if not (gpu.host(y) == (rank - 1) % size).all():
        sys.exit(f"rank {rank}: {y}")
dist.destroy_process_group()
print(f"rank {rank} is done")
