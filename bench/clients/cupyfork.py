"""CuPy's nccl: the parent makes the id and forks the ranks, which use CUDA first after that."""
import os
import sys

from cupy.cuda import nccl

size = 2
unique = nccl.get_unique_id()
children = []
for rank in range(size):
    child = os.fork()
    if child == 0:
        import cupy

        with cupy.cuda.Device(rank):
            comm = nccl.NcclCommunicator(size, unique, rank)
            x = cupy.full(100_003, rank + 1, dtype=cupy.float32)
            y = cupy.empty_like(x)
            stream = cupy.cuda.Stream(non_blocking=True)
            cupy.cuda.Device(rank).synchronize()
            comm.allReduce(x.data.ptr, y.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
            g = cupy.empty(size * x.size, dtype=cupy.float32)
            comm.allGather(x.data.ptr, g.data.ptr, x.size, nccl.NCCL_FLOAT32, stream.ptr)
            nccl.groupStart()
            comm.send(x.data.ptr, x.size, nccl.NCCL_FLOAT32, rank ^ 1, stream.ptr)
            z = cupy.empty_like(x)
            comm.recv(z.data.ptr, x.size, nccl.NCCL_FLOAT32, rank ^ 1, stream.ptr)
            nccl.groupEnd()
            stream.synchronize()
            right = bool((y == 3).all()) and bool((g[x.size :] == 2).all()) and bool((z == (rank ^ 1) + 1).all())
            right = right and comm.rank_id() == rank and comm.size() == size and comm.check_async_error() is None
            comm.destroy()
        os._exit(0 if right else 3)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
ours = "libmscclpp" in open("/proc/self/maps").read()
if any(codes):
    sys.exit(f"ranks ended with {codes}")
print(f"CLIENT CuPy nccl: version {nccl.get_version()}, id made before a fork of {size} ranks: allReduce, allGather, grouped send and recv right"
      f"{'; the parent loaded more than it needs' if ours else ''}", flush=True)
