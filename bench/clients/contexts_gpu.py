"""Streams of green contexts, and memory that is freed while a stream is captured, on the GPUs of a host, one rank each, with this project's
libnccl.so.2 preloaded and without:

    LD_PRELOAD=$(mscclpp-run nccl) torchrun --nproc-per-node 2 contexts_gpu.py [part…]
    torchrun --nproc-per-node 2 contexts_gpu.py [part…]

Parts: green (collectives on a stream of a context that has few of the GPU's processors), captures (ncclMemFree beside a capture, and what
the driver's own calls do there), waits (whether they wait for kernels that run), asks (questions about a stream that is captured). Without
names all run.
"""

import ctypes
import os
import threading
import time

os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")  # multicast must stay off on hosts whose GPUs others share

import torch
import torch.distributed as dist

from common import DEVICE, RANK, SIZE, Nccl, expect, row, run

KIB = 1024
FLOAT32, SUM = 7, 0
SPOILED = "the capture is spoiled"
cuda = ctypes.CDLL("libcuda.so.1")


def driver(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    expect(result == 0, f"{name}: CUDA error {result}")


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def green_stream(processors):
    """Returns a stream of a new green context with so many processors or a few more."""
    room = lambda: ctypes.create_string_buffer(1024)  # larger than a CUdevResource of any version
    every, some, rest, count = room(), room(), room(), ctypes.c_uint(1)
    description, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuDeviceGetDevResource", RANK, every, 1)
    driver("cuDevSmResourceSplitByCount", some, ctypes.byref(count), every, rest, 0, processors)
    driver("cuDevResourceGenerateDesc", ctypes.byref(description), some, 1)
    driver("cuGreenCtxCreate", ctypes.byref(context), description, RANK, 1)
    driver("cuGreenCtxStreamCreate", ctypes.byref(stream), context, 1, 0)
    return stream


def green():
    """Every collective and messages, from few bytes to many: kernels must get along with the processors that there are."""
    nccl, stream, done = Nccl(), green_stream(8), 0
    for size in (4, KIB, 64 * KIB, 1024 * KIB, 16384 * KIB, 65536 * KIB):
        n = size // 4
        mine = torch.arange(n, device=DEVICE, dtype=torch.float32) % 7 + RANK
        every = [torch.arange(n, device=DEVICE, dtype=torch.float32) % 7 + r for r in range(SIZE)]
        whole, total = torch.cat(every), sum(every)
        count, comm = ctypes.c_size_t(n), nccl.comm
        for name, source, elements, arguments, want in (
            ("AllReduce", mine, n, (FLOAT32, SUM), total),
            ("AllGather", mine, n * SIZE, (FLOAT32,), whole),
            ("ReduceScatter", whole, n, (FLOAT32, SUM), whole[RANK * n:(RANK + 1) * n] * SIZE),
            ("Broadcast", mine, n, (FLOAT32, SIZE - 1), every[-1]),
            ("Reduce", mine, n, (FLOAT32, SUM, 0), total if RANK == 0 else None),
            ("AlltoAll", whole, n * SIZE, (FLOAT32,), every[RANK].repeat(SIZE)),
        ):
            out = torch.zeros(elements, device=DEVICE)
            torch.cuda.synchronize()
            for _ in range(3):
                nccl.call(name, address(source), address(out), count, *arguments, comm, stream)
            driver("cuStreamSynchronize", stream)
            expect(want is None or torch.equal(out, want), f"{name} of {size} bytes on a green context's stream: {out[:8]}")
            done += 1
        out = torch.zeros(n, device=DEVICE)
        torch.cuda.synchronize()
        nccl.call("GroupStart")
        nccl.call("Send", address(mine), count, FLOAT32, (RANK + 1) % SIZE, comm, stream)
        nccl.call("Recv", address(out), count, FLOAT32, (RANK - 1) % SIZE, comm, stream)
        nccl.call("GroupEnd")
        driver("cuStreamSynchronize", stream)
        expect(torch.equal(out, every[(RANK - 1) % SIZE]), f"a message of {size} bytes on a green context's stream")
        if RANK == 0:
            print(f"green context: {size} bytes right", flush=True)
    nccl.call("CommDestroy", nccl.comm)
    return f"{done} collectives, and messages, on the stream of a green context with 8 processors: right"


def beside_capture(mode, call, elsewhere):
    """Makes a call while a stream is captured, and says what came of both."""
    stream, graph = torch.cuda.Stream(), ctypes.c_void_p()
    torch.cuda.synchronize()
    driver("cuStreamBeginCapture_v2", ctypes.c_void_p(stream.cuda_stream), mode)
    result = []
    if elsewhere:
        def run():
            torch.cuda.set_device(DEVICE)
            result.append(call())
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        result.append(call())
    ended = cuda.cuStreamEndCapture(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(graph))
    if graph.value:
        driver("cuGraphDestroy", graph)
    return f"{result[0]}" + ("" if ended == 0 else f", {SPOILED} ({ended})")


def relaxed(call):
    """Makes a call of the driver that a capture of this thread would forbid."""
    def run():
        mode = ctypes.c_int(2)
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        result = call()
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        return result
    return run


def captures():
    nccl = Nccl()
    lib = nccl.lib

    def mem_free():
        memory = nccl.memory(1 << 20)
        return lambda: lib.ncclMemFree(memory)

    def mem_alloc():
        def run():
            at = ctypes.c_void_p()
            return lib.ncclMemAlloc(ctypes.byref(at), ctypes.c_size_t(1 << 20))
        return run

    def cu_free():
        at = ctypes.c_void_p()
        driver("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20))
        return lambda: cuda.cuMemFree_v2(at)

    for name, make in (
        ("ncclMemFree", mem_free), ("ncclMemAlloc", mem_alloc),
        ("cuCtxSynchronize", lambda: cuda.cuCtxSynchronize), ("cuCtxSynchronize, relaxed", lambda: relaxed(cuda.cuCtxSynchronize)),
        ("cuMemFree", cu_free), ("cuMemFree, relaxed", lambda: relaxed(cu_free())),
    ):
        for elsewhere in (False, True):
            row(what=name, of="another thread" if elsewhere else "the capturing thread",
                **{m: beside_capture(i, make(), elsewhere) for i, m in enumerate(("global", "thread_local", "relaxed"))})
    nccl.call("CommDestroy", nccl.comm)
    return "calls beside captures: see rows (results of calls, 0 is a success)"


def waits():
    """Frees memory while a kernel runs for a quarter of a second, without a capture and beside one."""
    nccl, busy, captured, graph = Nccl(), torch.cuda.Stream(), torch.cuda.Stream(), ctypes.c_void_p()

    def of_driver(size):
        at = ctypes.c_void_p()
        driver("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return relaxed(lambda: cuda.cuMemFree_v2(at))

    def of_nccl():
        memory = nccl.memory(1 << 20)
        return lambda: nccl.lib.ncclMemFree(memory)

    for name, make in (("ncclMemFree", of_nccl), ("cuMemFree of a byte, relaxed", lambda: of_driver(1)), ("cuMemFree of 8 MiB, relaxed", lambda: of_driver(8 << 20))):
        seen = {}
        for mode in (None, 0, 1, 2):
            call, ended = make(), 0
            torch.cuda.synchronize()
            with torch.cuda.stream(busy):
                torch.cuda._sleep(500_000_000)
            if mode is not None:
                driver("cuStreamBeginCapture_v2", ctypes.c_void_p(captured.cuda_stream), mode)
            begin = time.monotonic()
            result = call()
            took = time.monotonic() - begin
            if mode is not None:
                ended = cuda.cuStreamEndCapture(ctypes.c_void_p(captured.cuda_stream), ctypes.byref(graph))
            waited = busy.query()
            seen[("alone", "global", "thread_local", "relaxed")[0 if mode is None else mode + 1]] = \
                f"{result}, {'waits' if waited else 'does not wait'}, {took * 1e3:.1f} ms" + (f", {SPOILED} ({ended})" if ended else "")
        row(what=name, **seen)
    nccl.call("CommDestroy", nccl.comm)
    return "what waits for a kernel of 0.25 s: see rows"


def asks():
    """Asks the driver about streams that are captured."""
    for kind, stream in (("a stream", ctypes.c_void_p(torch.cuda.Stream().cuda_stream)), ("a stream of a green context", green_stream(8))):
        for name in ("cuStreamGetGreenCtx", "cuStreamGetCtx_v2", "cuStreamGetId"):
            if not hasattr(cuda, name):
                continue
            first, second, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
            driver("cuStreamBeginCapture_v2", stream, 0)
            result = getattr(cuda, name)(stream, ctypes.byref(first), *([ctypes.byref(second)] if name == "cuStreamGetCtx_v2" else []))
            ended = cuda.cuStreamEndCapture(stream, ctypes.byref(graph))
            row(what=name, of=kind, result=result, answer=[bool(first.value), bool(second.value)], capture=SPOILED if ended else "as before")
    return "questions about captured streams: see rows"


run("contexts", {"green": green, "captures": captures, "waits": waits, "asks": asks})
