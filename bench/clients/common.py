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


def start(backend="nccl", store=None):
    """Joins the process group of all ranks, which a store or the environment describes."""
    torch.cuda.set_device(DEVICE)
    dist.init_process_group(backend, store=store, rank=RANK, world_size=SIZE, **({"device_id": DEVICE} if backend == "nccl" else {}))


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


FEW, MANY = 20, 100


def slopes(ways, rounds=9):
    """Times a call of each of the named functions by turns, in microseconds of the slowest rank: the slope between graphs of FEW and of MANY
    dependent calls, so that ranks which begin apart do not count."""
    graphs = {name: (graph_of(way, FEW), graph_of(way, MANY)) for name, way in ways.items()}
    times = {name: ([], []) for name in graphs}
    for both in graphs.values():
        for graph in both:
            time_of(graph, 2)
    for _ in range(rounds):
        for name, both in graphs.items():
            for list_of, graph in zip(times[name], both):
                dist.barrier()
                torch.cuda.synchronize()
                list_of += time_of(graph, 1)
    mine = torch.tensor([(median(many) - median(few)) / (MANY - FEW) for few, many in times.values()], device=DEVICE)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return {name: round(t, 2) for name, t in zip(times, mine.tolist())}


def per_token(rows, key):
    """Prints what a further token costs, between the two largest calls with the same key: the rest of a call's time is that of a launch."""
    for value in dict.fromkeys(r[key] for r in rows):
        some = sorted((r for r in rows if r[key] == value), key=lambda r: r["tokens"])[-2:]
        if len(some) < 2 or some[0]["tokens"] == some[1]["tokens"]:
            continue
        few, many = some
        costs = {n: 1000 * (t - few["us"][n]) / (many["tokens"] - few["tokens"]) for n, t in many["us"].items() if n in few["us"]}
        print(f"{key} {value}, ns of a token between {few['tokens']} and {many['tokens']}: " + ", ".join(f"{n} {c:.0f}" for n, c in costs.items()), flush=True)


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
