"""A kernel of one's own that talks to the other GPU: mscclpp-run -n 2 python examples/python/kernel.py

Every rank sends its numbers to the other one's memory by a memory channel, and adds what it gets. The source is compiled by NVRTC, which
comes with CUDA, torch and CuPy; the header of the channels comes with mscclpp. Without a GPU or NVRTC the program says so.
"""

import array
import ctypes

import mscclpp
from mscclpp import utils

SOURCE = r"""
#include <mscclpp/device.h>

struct Arguments {
  mscclpp::MemoryChannelHandle channel;
  float* numbers;  // count of them, then room for those of the peer
  unsigned count;
};

extern "C" __global__ void exchange_and_add(Arguments a) {
  auto& channel = static_cast<const mscclpp::MemoryChannel&>(a.channel);
  channel.put(a.count * sizeof(float), 0, a.count * sizeof(float), threadIdx.x, blockDim.x);
  __syncthreads();
  __shared__ bool ok;
  if (threadIdx.x == 0) {
    channel.signal();
    ok = channel.wait();  // false when the job is being ended
  }
  __syncthreads();
  if (ok)
    for (unsigned i = threadIdx.x; i < a.count; i += blockDim.x) a.numbers[i] += a.numbers[a.count + i];
}
"""


class Arguments(ctypes.Structure):
    """The kernel's argument."""

    _fields_ = [("channel", ctypes.c_ubyte * 64), ("numbers", ctypes.c_void_p), ("count", ctypes.c_uint)]


def main() -> None:
    try:
        image = utils.compile_source(SOURCE, device="cuda:0")
    except mscclpp.UnavailableError as problem:
        print(f"nothing is done: {problem}")
        return
    with mscclpp.Communicator(device="cuda") as comm:
        count = 1000
        memory = comm.alloc(8 * count)
        memory.write(array.array("f", [comm.rank + 1.0] * count))
        channel = comm.memory_channel(1 - comm.rank, memory)
        comm.exchange(b".")  # both have written
        kernel = utils.Kernel(image, "exchange_and_add", device=comm)
        arguments = Arguments((ctypes.c_ubyte * 64)(*channel.device_handle().raw), memory.data(), count)
        kernel.launch_kernel(bytes(arguments), 1, 256)
        sums = array.array("f", memory.read(4 * count))  # on the default stream, as the kernel
        assert set(sums) == {3.0}, sums[:4]
        print(f"rank {comm.rank}: {count} sums are right")


if __name__ == "__main__":
    main()
