"""Every rank contributes its number, and all get the sum: mscclpp-run -n 4 python examples/python/allreduce.py"""

import array

import mscclpp

with mscclpp.Communicator() as comm:
    numbers = array.array("f", [float(comm.rank)] * 1000)  # or an array of NumPy, torch, CuPy or JAX
    comm.all_reduce(numbers)
    assert set(numbers) == {comm.size * (comm.size - 1) / 2}, numbers[:4]
    print(f"rank {comm.rank} of {comm.size}: {len(numbers)} sums are right")
