"""The bits that kernels give on GPUs, and those of the interpreter: mscclpp-run -n 2 -- python bits_gpu.py [FILE].

Each algorithm of each collective gets numbers of all exponents and mantissas, in each type and operation. A line has a digest of all
outputs of a rank: collective, algorithm, type, rank. With FILE, lines of another run, differences are printed, and a count of all. On a machine
without GPUs these settings make lines of the interpreter:

    CUDA_EMULATED_RUN=ptx CUDA_EMULATED_MEMORY=805306368 MSCCLPP_CUDA_LIBRARY=$(go run ./framework/device/cuda/emulated/cmd/emulated-cuda --library)
"""

import hashlib
import os
import random
import sys

import mscclpp
from mscclpp._buffers import Buffer

COUNT, HALF = 1027, 64 << 10
OPS = [o for o in mscclpp.ReduceOp if o.name != "PREMUL_SUM"]
TYPES = [t for t in mscclpp.DataType if t.name in ("float32", "float16", "bfloat16", "float64", "int32", "uint8", "float8_e4m3fn", "float8_e5m2")]
REDUCES = {"allreduce": "all_reduce", "reduce": "reduce", "reducescatter": "reduce_scatter"}
MOVES = {"allgather": "all_gather", "broadcast": "broadcast", "alltoall": "all_to_all"}


def numbers(dtype, rank, op):
    """Any bits, but for the highest bit of exponents: sums are neither infinite nor no numbers."""
    data = bytearray(random.Random(f"{dtype.name} {rank} {int(op)}").randbytes(HALF))
    if "float" in dtype.name:
        for i in range(dtype.size - 1, len(data), dtype.size):
            data[i] &= 0xBF
    return bytes(data)


def main():
    comm = mscclpp.Communicator(device="cuda", timeout=60)
    rank, size = comm.rank, comm.size
    memory = comm.alloc(2 * HALF)
    comm.window(memory)  # registered for all
    base = memory.__mscclpp_buffer__()

    def part(at, count, dtype):
        return Buffer(base.address + at, count * dtype.size, dtype.size, int(dtype), base.device, False, memory, "memory")

    lines = {}
    for kind, name in {**REDUCES, **MOVES}.items():
        send, recv = {"reducescatter": (size, 1), "allgather": (1, size), "alltoall": (size, size)}.get(kind, (1, 1))
        for algorithm in comm.query(f"algorithms.{kind}").replace(",", " ").split():
            for dtype in TYPES if kind in REDUCES else TYPES[:1]:
                digest, calls = hashlib.sha256(), 0
                for op in OPS if kind in REDUCES else OPS[:1]:
                    memory.write(numbers(dtype, rank, op) + bytes(HALF))
                    arguments = [part(0, COUNT * send, dtype), part(HALF, COUNT * recv, dtype)] + ([op] if kind in REDUCES else [])
                    try:
                        getattr(comm, name)(*arguments, algorithm=algorithm)
                    except (mscclpp.UnsupportedError, mscclpp.InvalidUsage):
                        continue  # the algorithm does not serve the type or operation; on all ranks
                    comm.settle(timeout=60)
                    digest.update(bytes([op]) + memory.read())
                    calls += 1
                if calls:
                    lines[f"{kind} {algorithm} {dtype.name} {rank}"] = f"{calls} {digest.hexdigest()[:16]}"
    mine = "\n".join(f"{key} {value}" for key, value in lines.items())
    everything = b"\n".join(comm.exchange(mine.encode())).decode().split("\n")
    comm.close()
    if rank:
        return
    got = {line.rsplit(" ", 2)[0]: line.rsplit(" ", 2)[1:] for line in everything}
    if len(sys.argv) < 2:
        print("\n".join(everything))
        return
    with open(sys.argv[1], encoding="utf-8") as f:
        want = {line.rsplit(" ", 2)[0]: line.rsplit(" ", 2)[1:] for line in f.read().split("\n") if line}
    differ = [key for key in got if key in want and want[key] != got[key]]
    alone = sorted(set(got) ^ set(want))
    outputs = sum(int(got[key][0]) for key in got if key in want)
    print(f"{outputs} outputs of {len(set(got) & set(want))} kinds compared, {len(differ)} kinds with other bits: {differ[:20]}; in one run alone: {len(alone)} {alone[:6]}")
    sys.exit(bool(differ) or not outputs)


if __name__ == "__main__":
    main()
