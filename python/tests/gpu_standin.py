"""What stands for torch's CUDA tensors and streams where there is no GPU: memory and streams of the emulated driver.

A tensor's memory is the driver's, and says that it is on a GPU. What torch itself does with it, it does on the host, when all
streams have done what is on them: so it is in order, and what the process group puts on streams is what is tested.
"""

import contextlib
import ctypes
import os
import threading

import torch
import torch.distributed.distributed_c10d as c10d

from mscclpp import _driver, _torch_cuda

_raw = ctypes.CDLL(os.environ["MSCCLPP_CUDA_LIBRARY"])
_raw.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
_raw.cuStreamCreateWithPriority.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint, ctypes.c_int]
_raw.cuStreamWaitValue64_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint]
_raw.cuMemHostAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
_raw.cuMemcpyHtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_raw.cuEventQuery.argtypes = [ctypes.c_void_p]
GPU = int(os.environ["LOCAL_RANK"])
DEVICE = torch.device("cuda", GPU)
driver = _driver.driver()


c10d.has_torch_function = lambda arguments: False  # its operations would be performed as if tensors were torch's own


def call(name, *arguments):
    with driver.on(GPU):
        code = getattr(_raw, name)(*arguments)
    assert code == 0, (name, code)


class Stream:
    def __init__(self):
        handle = ctypes.c_void_p()
        call("cuStreamCreateWithPriority", ctypes.byref(handle), 1, 0)
        self.cuda_stream = handle.value
        Stream.all.append(self)

    def wait_event(self, event):
        with driver.on(GPU):
            driver.cuStreamWaitEvent(self.cuda_stream, event.handle, 0)

    def synchronize(self):
        with driver.on(GPU):
            driver.cuStreamSynchronize(self.cuda_stream)


Stream.all = []


class Event:
    def __init__(self, stream):
        self.handle = ctypes.c_void_p()
        with driver.on(GPU):
            driver.cuEventCreate(ctypes.byref(self.handle), 2)
            driver.cuEventRecord(self.handle, stream.cuda_stream)

    def query(self):
        with driver.on(GPU):
            code = _raw.cuEventQuery(self.handle)
        assert code in (0, 600), code
        return code == 0


class Streams(_torch_cuda.Streams):
    """The streams of the process group, which are the driver's."""

    _here = threading.local()

    @classmethod
    def now(cls):
        """Return the current stream of this thread."""
        if not hasattr(cls._here, "stream"):
            cls._here.stream = Stream()
        return cls._here.stream

    def current(self, device):
        return Streams.now()

    def pointer(self, device):
        return Streams.now().cuda_stream

    def new(self, device):
        return Stream()

    def event(self, stream, again=None):
        return Event(stream)

    @contextlib.contextmanager
    def use(self, stream):
        before, Streams._here.stream = Streams.now(), stream
        try:
            yield
        finally:
            Streams._here.stream = before

    def capturing(self):
        return False

    def future(self, device):
        return torch.futures.Future()


_new = (torch.Tensor.new_empty,)
_touch = (torch.Tensor.copy_, torch.Tensor.clone, torch.Tensor.contiguous)  # of what the process group and the tests use


class Tensor(torch.Tensor):
    """A tensor in memory of the emulated driver."""

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in _touch and not (function is torch.Tensor.contiguous and args[0].is_contiguous()):
            for stream in list(Stream.all):
                stream.synchronize()
        result = super().__torch_function__(function, types, args, kwargs or {})
        return put(result) if function in _new else result


def put(tensor):
    """Return a copy of a tensor of the CPU in memory of the GPU."""
    tensor = tensor.as_subclass(torch.Tensor)
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), max(tensor.nbytes, 1))
    memory = (ctypes.c_ubyte * max(tensor.nbytes, 1)).from_address(address.value)
    copy = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel()) if tensor.numel() else tensor.new_empty(0)
    copy = copy.view(tensor.shape)
    copy.copy_(tensor)
    return copy.as_subclass(Tensor)


def host(tensor):
    """Return the contents, when all streams have done what is on them."""
    return tensor.clone().as_subclass(torch.Tensor)


class Gate:
    """A word on which a stream waits until it is opened."""

    def __init__(self):
        self._at = ctypes.c_void_p()
        call("cuMemHostAlloc", ctypes.byref(self._at), 8, 3)
        self._word, self._turn, self._kept = ctypes.c_uint64.from_address(self._at.value), 0, []

    def write_behind(self, tensor, value):
        """Let the current stream fill a tensor of floats when the gate was opened."""
        source = (ctypes.c_float * tensor.numel())(*[value] * tensor.numel())
        self._kept.append(source)
        call("cuStreamWaitValue64_v2", Streams.now().cuda_stream, self._at.value, self._turn + 1, 0)
        call("cuMemcpyHtoDAsync_v2", tensor.data_ptr(), source, ctypes.sizeof(source), Streams.now().cuda_stream)

    def open(self):
        self._turn += 1
        self._word.value = self._turn
