"""Sums over arrays of NumPy: mscclpp-run -n 4 python examples/python/numpy_sum.py"""

import mscclpp
import numpy as np

with mscclpp.Communicator() as comm:
    mine = np.full((2, 3), comm.rank, "float32")
    comm.all_reduce(mine)
    assert (mine == sum(range(comm.size))).all()
    print(f"rank {comm.rank}: {mine.sum()}")
