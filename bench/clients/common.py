"""What the programs here share: who this rank is, torch's process group, and times of graphs."""
import ctypes
import json
import os
import sys
import time

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = torch.device("cuda", RANK)


def start(backend="nccl"):
    """Joins the process group of all ranks, which the environment describes."""
    torch.cuda.set_device(DEVICE)
    dist.init_process_group(backend, rank=RANK, world_size=SIZE, **({"device_id": DEVICE} if backend == "nccl" else {}))


def which():
    """Says which library the process uses: ours has libmscclpp behind it."""
    with open("/proc/self/maps") as maps:
        return "ours" if any("libmscclpp.so" in line for line in maps) else "nccl"


def say(client, text):
    """Prints the line of a client, once."""
    if RANK == 0:
        print(f"CLIENT {client} [{which()}]: {text}", flush=True)


def row(**values):
    """Prints a measurement, once."""
    if RANK == 0:
        print("ROW " + json.dumps({"lib": which(), **values}), flush=True)


def expect(condition, text):
    if not condition:
        print(f"rank {RANK}: expected {text}", file=sys.stderr, flush=True)
        os._exit(1)


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def graph_of(step, times=1, warmups=2):
    """Captures a number of steps, after a few that are run, on a stream of their own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warmups):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(times):
            step()
    return graph


def time_of(graph, repeats):
    """Returns the times of replays in microseconds, by events."""
    out = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        out.append(begin.elapsed_time(end) * 1000)
    return out


def run(client, parts):
    """Runs the parts that the command line names, or all, and prints a line for each."""
    start()
    dist.all_reduce(torch.ones(1, device=DEVICE))
    torch.cuda.synchronize()
    for part in sys.argv[1:] or list(parts):
        say(f"{client}, {part}", parts[part]())
    finish()


def finish():
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


def now():
    return time.perf_counter()


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Nccl:
    """A communicator of all ranks beside torch's, by the C interface."""

    def __init__(self):
        self.lib = ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
        self.lib.ncclGetLastError.restype = ctypes.c_char_p
        made = Id()
        if RANK == 0:
            self.call("GetUniqueId", ctypes.byref(made))
        every = [bytes(made)]
        dist.broadcast_object_list(every, src=0)
        self.comm = ctypes.c_void_p()
        self.call("CommInitRank", ctypes.byref(self.comm), SIZE, Id.from_buffer_copy(every[0]), RANK)

    def call(self, name, *arguments):
        result = getattr(self.lib, "nccl" + name)(*arguments)
        expect(result == 0, f"nccl{name}: {result}: {self.lib.ncclGetLastError(None).decode(errors='replace')}")

    def memory(self, size):
        at = ctypes.c_void_p()
        self.call("MemAlloc", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def window(self, at, size):
        window = ctypes.c_void_p()
        self.call("CommWindowRegister", self.comm, at, ctypes.c_size_t(size), ctypes.byref(window), 1)  # NCCL_WIN_COLL_SYMMETRIC
        return window
