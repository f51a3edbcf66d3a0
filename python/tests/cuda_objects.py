"""Memory of GPUs in collectives, by the protocols of other packages: two ranks on the emulated driver. No package is needed."""

import ctypes
import gc
import gzip
import os
import sys
import threading
import time

import mscclpp
from mscclpp import _buffers, _dlpack, _driver, utils

comm = mscclpp.Communicator(device="cuda")
rank, number = comm.rank, int(comm.device.rpartition(":")[2])
driver = _driver.driver()
raw = ctypes.CDLL(os.environ["MSCCLPP_CUDA_LIBRARY"])
raw.cuMemcpyHtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
raw.cuMemcpyDtoHAsync_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
raw.cuStreamWaitValue64_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint]
raw.cuStreamCreateWithPriority.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint, ctypes.c_int]
raw.cuMemHostAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
N = 1000
Floats = ctypes.c_float * N


def new_stream():
    stream = ctypes.c_void_p()
    with driver.on(number):
        assert raw.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
    return stream.value


def write(memory, value, stream=None):
    """Fill memory, or what is at an address."""
    with driver.on(number):
        host = Floats(*[value] * N)
        kept.append(host)
        assert raw.cuMemcpyHtoDAsync_v2(memory if isinstance(memory, int) else memory.data(), host, 4 * N, stream) == 0


def read(memory, stream=None):
    host = Floats()
    with driver.on(number):
        assert raw.cuMemcpyDtoHAsync_v2(host, memory.data(), 4 * N, stream) == 0
        driver.cuStreamSynchronize(stream)
    return set(host)


kept, gate, gates = [], ctypes.c_void_p(), 0
with driver.on(number):
    assert raw.cuMemHostAlloc(ctypes.byref(gate), 8, 3) == 0
gate_word = ctypes.c_uint64.from_address(gate.value)


def late(memory, value, stream):
    """Let a stream write a value when open_gate() was called."""
    with driver.on(number):
        assert raw.cuStreamWaitValue64_v2(stream, gate.value, gates + 1, 0) == 0
    write(memory, value, stream)


def open_gate():
    global gates
    gates += 1
    gate_word.value = gates


class Interface:
    """An array of another package."""

    def __init__(self, memory, stream=None, **other):
        self.__cuda_array_interface__ = {"shape": (N,), "typestr": "<f4", "data": (memory.data(), False), "version": 3, "stream": stream, **other}


class Tensor:
    """An array that has DLPack alone, and knows for which stream it was asked."""

    def __init__(self, memory, kind=2, old=False):
        self.memory, self.kind, self.streams, self.old = memory, kind, [], old

    def __dlpack_device__(self):
        return self.kind, number

    def __dlpack__(self, **named):
        if self.old and "max_version" in named:
            raise TypeError("an older protocol")
        self.streams.append(named.get("stream"))
        return self.memory.to_dlpack("float32", (N,))


class Device:
    id, local_hardware_id = 70 + number, number


class OfJax(Interface):
    """An array whose contents are made on a stream that it does not name."""

    __module__, device = "jaxlib.stand_in", Device()

    def block_until_ready(self):
        open_gate()
        with driver.on(number):
            driver.cuStreamSynchronize(one)


def refused(text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except mscclpp.InvalidUsage as problem:
        assert text in str(problem), problem
        return
    sys.exit(f"{text}: nothing was raised")


class Fast(Interface):
    """An array that refers to the memory, as arrays by __cuda_array_interface__ do."""

    def __init__(self, memory):
        super().__init__(memory, data=memory.__cuda_array_interface__["data"])
        self.memory = memory


def contents(address):
    """Return the first float of memory of the GPU, None if nothing is there."""
    value = ctypes.c_float()
    with driver.on(number):
        code = raw.cuMemcpyDtoHAsync_v2(ctypes.byref(value), address, 4, None)
        driver.cuStreamSynchronize(None)
    return None if code else value.value


def outlives():
    """What others have of memory keeps it, whatever has become of the memory and of its communicator, and nothing is left in the end."""
    ends = {"memory": lambda own, memory: memory.close(), "communicator": lambda own, memory: own.close(), "abort": lambda own, memory: own.abort()}
    takes = {"DLPack": lambda memory: _buffers.resolve(Tensor(memory), "x"), "versions of DLPack": lambda memory: _buffers.resolve(Tensor(memory, old=True), "x"),
             "interface": Fast}
    for end, close in ends.items():
        for name, take in takes.items():
            for _ in range(3):
                own = mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1, device=comm.device)
                memory = own.alloc(256 << 20)  # of 1 GiB that there is
                address, seen = memory.data(), take(memory)
                write(memory, 7.0)
                close(own, memory)
                del memory
                gc.collect()
                assert contents(address) == 7.0, (end, name, contents(address))
                before = gates
                late(address, 8.0, one)  # which the end waits for
                threading.Timer(0.05, open_gate).start()
                del seen
                gc.collect()
                assert gates > before, (end, name)
                until = time.monotonic() + 300  # an abort returns before all is freed
                while contents(address) is not None:
                    assert time.monotonic() < until, (end, name)
                own.close()
    memory = comm.alloc(64)
    memory.close()
    for use in (lambda: memory.__cuda_array_interface__, lambda: memory.to_dlpack(), lambda: memory.data(), lambda: comm.all_reduce(memory)):
        try:
            use()
        except mscclpp.ClosedError:
            continue
        sys.exit("closed memory was given away")


def captured(own):
    """A call that is captured runs with what is in its memory whenever the graph is launched."""
    stream, graph, made = ctypes.c_void_p(one), ctypes.c_void_p(), ctypes.c_void_p()
    own.prepare("allreduce", "float32")
    with driver.on(number):
        assert raw.cuStreamBeginCapture_v2(stream, 1) == 0
        own.all_reduce(Interface(a, one), Interface(b, one))
        assert raw.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
        assert raw.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_ulonglong(0)) == 0
    for value in (1.0, 5.0):
        write(a, value * (rank + 1), one)
        with driver.on(number):
            assert raw.cuGraphLaunch(made, stream) == 0
        assert read(b, one) == {3 * value}, value
    assert raw.cuGraphExecDestroy(made) == raw.cuGraphDestroy(graph) == 0


with comm:
    a, b = comm.alloc(4 * N), comm.alloc(4 * N)
    one, two = new_stream(), new_stream()

    # The call goes on the stream on which the array is made, or waits for it.
    for streams, named in (((one, None), {}), ((one, one), {}), ((None, one), {}), ((one, two), {}), ((one, None), {"stream": two})):
        write(a, 0), write(b, 0), read(b)
        late(a, rank + 1.0, streams[0] or streams[1])
        comm.all_reduce(Interface(a, streams[0]), Interface(b, streams[1]), **named)
        open_gate()
        comm.settle()
        assert read(b) == {3.0}, (streams, named, list(read(b))[:5])
    write(a, rank + 1.0)
    comm.all_reduce(Interface(a, 1))  # the default stream
    comm.settle()
    assert read(a) == {3.0}
    refused("stream 0", comm.all_reduce, Interface(a, 0))
    refused("read-only", comm.all_reduce, Interface(a, data=(a.data(), True)))
    refused("not contiguous", comm.all_reduce, Interface(a, strides=(8,)))
    refused("expected memory of cuda", comm.all_reduce, bytearray(4))
    refused("with a mask", comm.all_reduce, Interface(a, mask=a))

    late(a, rank + 1.0, one)
    comm.all_reduce(OfJax(a), Interface(b))
    comm.settle()
    assert read(b) == {3.0} and _buffers.resolve(OfJax(a), "jax").device == number

    # DLPack gets the stream of the call, as its protocol numbers it.
    for old in (False, True):
        for stream, known in ((None, 1), (0, 1), (two, two)):
            x = Tensor(a, old=old)
            write(a, rank + 1.0), read(a)
            comm.all_reduce(x, stream=stream)
            comm.settle()
            assert read(a) == {3.0} and x.streams == [known], x.streams

    class Pinned(Tensor):
        """Memory of the host that GPUs can read: kDLCUDAHost."""

        def __dlpack__(self, **named):
            assert "stream" not in named, named
            made = _dlpack.capsule(gate.value, 8, None, self)
            next(reversed(_dlpack._kept.values()))[0].tensor.device_type = 3
            return made
    pinned = _buffers.resolve(Pinned(a, kind=3), "pinned")
    assert (pinned.address, pinned.bytes, pinned.device) == (gate.value, 8, None)
    refused("memory of the host: expected memory of cuda", comm.all_reduce, Pinned(a, kind=3))
    del pinned
    write(a, 1.0), read(a)
    comm.broadcast(a)  # the library's own memory
    comm.settle()
    gc.collect()
    assert not _dlpack._kept, "capsules that nobody has taken are freed"
    refused("expected no more than", a.to_dlpack, "float32", (N + 1,))
    refused("expected one of", a.to_dlpack, "complex64")
    assert a.__dlpack_device__() == (2, number) and a.__cuda_array_interface__["data"][0] == a.data()

    # Memory of all ranks side by side, of any sizes, which collectives use in place.
    try:
        comm.arrange(None if rank else b)
    except mscclpp.UnsupportedError as problem:
        assert "no memory was given" in str(problem), problem
    else:
        sys.exit("a window without memory of a rank was made")
    own = comm.alloc((rank + 1) << 16)
    for private in (False, True):
        with comm.arrange(own, private=private) as window:
            base, stride = window.flat()
            assert stride > 0 and stride % (4 << 30) == 0 and base, (base, stride)
            assert [window.peer(r) for r in range(2)] == [(own.data() if r == rank else base + r * stride, (r + 1) << 16) for r in range(2)]
            assert window.channels()[1 - rank].raw != bytes(64) == window.channels()[rank].raw
            write(own, rank + 1.0), read(own)
            comm.all_reduce(Interface(own))
            comm.settle()
            assert read(own) == {3.0}
            comm.barrier()
            comm.settle()

    with comm.split(0) as own:
        captured(own)
    outlives()
    a.write(Floats(*[7] * N))
    assert a.read(8) == bytes(Floats(7, 7))[:8]
    assert utils.get_device_arch(comm) == "sm_90"

    # A kernel is loaded by its name, and gets its arguments as they lie in memory: these are too few.
    images = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "collectives", "internal", "scaling", "image")
    with gzip.open(os.path.join(images, "scale-f32-sm_80.ptx.gz")) as f:
        image = f.read()
    kernel = utils.Kernel(image, "mscclpp_steps_scale", device=comm)
    for call, name in ((lambda: kernel.launch_kernel(utils.pack(a, 1), 1, 32, stream=one), "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE"),
                       (lambda: utils.Kernel(image, "no_such_kernel", device=comm), "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"),
                       (lambda: utils.Kernel(b"no image", "name", device=comm), "cuModuleLoadDataEx")):
        try:
            call()
        except mscclpp.FailedError as problem:
            assert name in str(problem), problem
        else:
            sys.exit(f"{name}: nothing was raised")
    del kernel
print(f"rank {rank} is done")
