"""Windows of NCCL on the GPUs of a host, one rank each, with this project's libnccl.so.2 preloaded and without:

    LD_PRELOAD=$(mscclpp-run nccl) torchrun --nproc-per-node 2 windows_gpu.py [part…]
    MSCCLPP_NCCL_REGISTER=symmetric LD_PRELOAD=$(mscclpp-run nccl) torchrun --nproc-per-node 2 windows_gpu.py registered
    torchrun --nproc-per-node 2 windows_gpu.py [part…]

Parts: torch (its symmetric memory on the backend NCCL: addresses of peers, put, get and signals), headers (kernels compiled by nvcc with the headers
of NCCL's wheel: windows, barriers, resources), collectives (all_reduce and others in graphs, on windows of a memory pool and on ordinary memory),
registered (the same with ncclCommRegister, to 256 MiB). Without names all run. A line for each part, and a row for each time.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile

# Before NCCL is loaded: multicast must stay off on hosts whose GPUs others share.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")

import torch
import torch.distributed as dist

from common import DEVICE, RANK, SIZE, Nccl, expect, graph_of, median, row, run, time_of

KIB = 1024

KERNELS = r"""
#include <nccl.h>
#include <nccl_device.h>

typedef ncclLsaBarrierSession<ncclCoopCta> Barrier;

// gather writes this rank's part to all ranks: part r of the window is that of rank r. All have come before, and have everything after.
__global__ void gather(ncclWindow_t window, ncclDevComm comm, const float4* part, size_t count) {
  Barrier barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  ncclTeam team = ncclTeamLsa(comm);
  for (int i = 0; i < team.nRanks; i++) {
    int peer = (team.rank + i) % team.nRanks;
    float4* to = (float4*)ncclGetLsaPointer(window, team.rank * count * sizeof(float4), peer);
    for (size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x) to[at] = part[at];
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

__global__ void meet(ncclDevComm comm, int times) {
  Barrier barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  for (int i = 0; i < times; i++) barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

// look says where a window is by an address in it, and the addresses of a resource and of the window on all ranks.
__global__ void look(ncclDevComm comm, const void* at, ncclDevResourceHandle resource, ncclWindow_t window, void** out) {
  ncclWindow_t found = ncclFindWindow(ncclCoopThread(), comm, at);
  out[0] = found;
  for (int peer = 0; peer < comm.nRanks; peer++) {
    out[1 + 2 * peer] = ncclGetPeerPointer(window, 64, peer);
    out[2 + 2 * peer] = ncclGetResourceBufferLsaPointer(comm, resource, peer);
  }
}

static ncclDevResourceHandle resource;

extern "C" size_t devcomm_bytes() { return sizeof(ncclDevComm); }

extern "C" int devcomm_make(ncclComm_t comm, int barriers, ncclDevComm* out) {
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
  ncclDevCommRequirements wishes = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
  ncclDevCommRequirements wishes = {};
#endif
  ncclDevResourceRequirements extra = {};
  extra.bufferSize = 4096;
  extra.bufferAlign = 256;
  extra.outBufferHandle = &resource;
  wishes.resourceRequirementsList = &extra;
  wishes.lsaBarrierCount = barriers;
  wishes.railGinBarrierCount = barriers; // as PyTorch asks
  return ncclDevCommCreate(comm, &wishes, out);
}

extern "C" int run_gather(ncclWindow_t window, const ncclDevComm* comm, const void* part, size_t count, int blocks, cudaStream_t stream) {
  gather<<<blocks, 512, 0, stream>>>(window, *comm, (const float4*)part, count);
  return cudaGetLastError();
}

extern "C" int run_meet(const ncclDevComm* comm, int times, cudaStream_t stream) {
  meet<<<1, 32, 0, stream>>>(*comm, times);
  return cudaGetLastError();
}

extern "C" int run_look(const ncclDevComm* comm, const void* at, ncclWindow_t window, void** out, cudaStream_t stream) {
  look<<<1, 1, 0, stream>>>(*comm, at, resource, window, out);
  return cudaGetLastError();
}
"""


class Memory:
    """Memory of a GPU that torch did not allocate, as a tensor of bytes."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}

    def tensor(self, dtype):
        return torch.as_tensor(self, device=DEVICE).view(dtype)


def symmetric():
    import torch.distributed._symmetric_memory as symm_mem
    symm_mem.set_backend("NCCL")
    group, n = dist.group.WORLD.group_name, 1 << 20
    mine = symm_mem.empty(n, dtype=torch.float32, device=DEVICE).fill_(RANK)
    handle = symm_mem.rendezvous(mine, group)
    expect((handle.rank, handle.world_size) == (RANK, SIZE), "the ranks of the group")
    expect(len(set(handle.buffer_ptrs)) == SIZE and all(handle.buffer_ptrs), f"addresses of all ranks: {handle.buffer_ptrs}")
    expect(all(handle.signal_pad_ptrs), f"signal pads of all ranks: {handle.signal_pad_ptrs}")

    def together():
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()

    together()
    for peer in range(SIZE):
        view = handle.get_buffer(peer, (n,), torch.float32)
        expect(bool((view == peer).all()), f"memory of rank {peer}: {view[:4]}")
    together()
    for peer in range(SIZE):
        handle.get_buffer(peer, (n,), torch.float32)[RANK * 1000:(RANK + 1) * 1000] = 100 + RANK
    together()
    for peer in range(SIZE):
        expect(bool((mine[peer * 1000:(peer + 1) * 1000] == 100 + peer).all()), f"what rank {peer} has written")
    done, ops = ["buffers"], torch.ops.symm_mem
    together()
    if hasattr(ops, "nccl_put_with_signal"):
        mine.fill_(RANK)
        together()
        if RANK == 1:
            ops.nccl_put_with_signal(mine, 7, 0)
        elif RANK == 0:
            ops.nccl_wait_for_signal(mine, 7)
            expect(bool((mine == 1).all()), "what rank 1 has put with a signal")
        together()
        done.append("put with signal")
    if hasattr(ops, "nccl_put"):
        if RANK == 1:
            ops.nccl_put(mine.fill_(5), 0)
        together()
        expect(RANK != 0 or bool((mine == 5).all()), "what rank 1 has put")
        done.append("put")
    if hasattr(ops, "nccl_get"):
        mine.fill_(RANK + 20)
        together()
        if RANK == 0:
            ops.nccl_get(mine, 1)
            torch.cuda.synchronize()
            expect(bool((mine == 21).all()), "what rank 0 has got")
        together()
        done.append("get")
    return f"symmetric memory of torch {torch.__version__}: {', '.join(done)} right"


def compiled():
    """Compiles the kernels on rank 0, with the headers that belong to torch's NCCL."""
    nvcc = shutil.which("nvcc") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    if not os.path.exists(nvcc):
        return None
    import nvidia.nccl
    include = os.path.join(list(nvidia.nccl.__path__)[0], "include")
    paths = [None]
    if RANK == 0:
        folder = tempfile.mkdtemp()
        source, library = os.path.join(folder, "kernels.cu"), os.path.join(folder, "kernels.so")
        with open(source, "w") as file:
            file.write(KERNELS)
        major, minor = torch.cuda.get_device_capability(DEVICE)
        command = [nvcc, "-std=c++17", "-O3", f"-arch=sm_{major}{minor}", "-shared", "-Xcompiler", "-fPIC", "-I", include, "-o", library, source]
        result = subprocess.run(command, capture_output=True, text=True)
        expect(result.returncode == 0, f"nvcc to compile: {result.stderr[-2000:]}")
        paths = [library]
    dist.broadcast_object_list(paths, src=0)
    return paths[0]


def headers():
    path = compiled()
    if path is None:
        return "NOT run: no nvcc"
    nccl = Nccl()
    kernels = ctypes.CDLL(path, mode=os.RTLD_NOW)
    kernels.devcomm_bytes.restype = ctypes.c_size_t
    most, blocks = 64 << 20, 32
    memory, window = nccl.memory(most * SIZE), None
    window = nccl.window(memory, most * SIZE)
    expect(window.value, "a window, and not NULL")
    comm = ctypes.create_string_buffer(kernels.devcomm_bytes())
    result = kernels.devcomm_make(nccl.comm, blocks, comm)
    expect(result == 0, f"ncclDevCommCreate: {result}: {nccl.lib.ncclGetLastError(None).decode(errors='replace')}")
    stream = lambda: ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def ok(result):
        expect(result == 0, f"a launch: CUDA error {result}")

    seen = torch.zeros(1 + 2 * SIZE, dtype=torch.int64, device=DEVICE)
    ok(kernels.run_look(comm, ctypes.c_void_p(memory.value + 4096), window, ctypes.c_void_p(seen.data_ptr()), stream()))
    seen = seen.tolist()
    expect(seen[0] == window.value, f"to find the window: {seen[0]:x}, {window.value:x}")
    for which_of in (1, 2):
        steps = {b - a for a, b in zip(seen[which_of::2], seen[which_of + 2::2])}
        expect(SIZE == 1 or len(steps) == 1 and steps.pop() % (4 << 30) == 0, f"one stride: {seen}")
    whole = Memory(memory.value, most * SIZE).tensor(torch.float32)
    for size in (16, 16 * KIB, 1024 * KIB, most):
        count = size // 4
        part = torch.arange(count, device=DEVICE, dtype=torch.float32) % 1000 + RANK * 1000
        whole.zero_()
        torch.cuda.synchronize()
        dist.barrier()
        step = lambda: ok(kernels.run_gather(window, comm, ctypes.c_void_p(part.data_ptr()), ctypes.c_size_t(size // 16), blocks, stream()))
        graph = graph_of(step, times=10)
        graph.replay()
        torch.cuda.synchronize()
        for rank in range(SIZE):
            want = torch.arange(count, device=DEVICE, dtype=torch.float32) % 1000 + rank * 1000
            expect(bool((whole[rank * count:(rank + 1) * count] == want).all()), f"the part of rank {rank} of {size} bytes")
        dist.barrier()
        micros = median(time_of(graph, 7)) / 10
        row(what="gather by a kernel with NCCL's headers", bytes=size, us=round(micros, 2), gbs=round(size * (SIZE - 1) / micros / 1000, 1))
    graph = graph_of(lambda: ok(kernels.run_meet(comm, 100, stream())))
    row(what="barrier of loads and stores", us=round(median(time_of(graph, 7)) / 100, 2))
    torch.cuda.synchronize()
    dist.barrier()
    nccl.call("DevCommDestroy", nccl.comm, comm)
    nccl.call("CommWindowDeregister", nccl.comm, window)
    nccl.call("MemFree", memory)
    nccl.call("CommDestroy", nccl.comm)
    version = ctypes.c_int()
    nccl.call("GetVersion", ctypes.byref(version))
    return f"kernels compiled with the headers of NCCL's wheel, library {version.value}: windows, barriers and resources right"


CALLS = {
    "all_reduce": lambda x, y, n: dist.all_reduce(x[:n]),
    "all_gather": lambda x, y, n: dist.all_gather_into_tensor(y[:n], x[:n // SIZE]),
    "reduce_scatter": lambda x, y, n: dist.reduce_scatter_tensor(y[:n // SIZE], x[:n]),
    "all_to_all": lambda x, y, n: dist.all_to_all_single(y[:n], x[:n]),
    "broadcast": lambda x, y, n: dist.broadcast(x[:n], 0),
}


def compare(what, names, sizes, **how):
    """Compares collectives on memory that a pool has registered with those on ordinary memory: results, and times in graphs."""
    backend = dist.group.WORLD._get_backend(DEVICE)
    pool, most = torch.cuda.MemPool(backend.mem_allocator), max(sizes)
    with torch.cuda.use_mem_pool(pool):
        whole = torch.empty(2 * most, dtype=torch.uint8, device=DEVICE)
    try:
        backend.register_mem_pool(pool, **how)
    except TypeError:
        return "NOT run: this torch registers no windows"
    places = {what: (whole[:most], whole[most:]), "ordinary": [torch.empty(most, dtype=torch.uint8, device=DEVICE) for _ in range(2)]}
    for size in sizes:
        for name in names:
            times, results, n = {}, {}, size // 2
            for where, (a, b) in places.items():
                x, y = a.view(torch.float16), b.view(torch.float16)
                fill = lambda: (x[:n].copy_(torch.arange(n, device=DEVICE) % 7 + RANK), y[:n].zero_())
                fill()
                CALLS[name](x, y, n)
                torch.cuda.synchronize()
                results[where] = (x if name in ("all_reduce", "broadcast") else y)[:n].clone()
                fill()
                graph = graph_of(lambda: CALLS[name](x, y, n), times=10)
                times[where] = median(time_of(graph, 7)) / 10
            expect(torch.equal(results[what], results["ordinary"]), f"{name} of {size} bytes as on ordinary memory")
            row(what=name, bytes=size, **{f"{where}_us": round(t, 2) for where, t in times.items()})
    backend.deregister_mem_pool(pool)
    return f"{len(sizes) * len(names)} collectives on memory of a pool ({what}) are equal to those on ordinary memory"


def collectives():
    return compare("window", list(CALLS)[:3], [KIB, 64 * KIB, 1024 * KIB, 16384 * KIB, 65536 * KIB], symm=True)


def registered():
    return compare("registered", list(CALLS), [1024 * KIB, 16384 * KIB, 65536 * KIB, 262144 * KIB])


run("windows", {"torch": symmetric, "headers": headers, "collectives": collectives, "registered": registered})
