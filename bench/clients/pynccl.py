"""The NCCL wrappers of vLLM and SGLang, unchanged, without the rest of these programs: pynccl.py vllm|sglang FOLDER.

FOLDER has their pynccl.py and pynccl_wrapper.py. They import a few helpers of their programs, which are replaced here.
"""
import contextlib
import importlib.util
import logging
import os
import sys
import types

import torch
import torch.distributed as dist

from common import DEVICE, RANK, SIZE, expect, graph_of, say, start

which_one, folder = sys.argv[1:]


class Logger(logging.LoggerAdapter):
    """Has the methods that log something once."""

    def __getattr__(self, name):
        return getattr(self.logger, name.removesuffix("_once"))


def module(name, **values):
    made = types.ModuleType(name)
    made.__dict__.update(values)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            module(parent, __path__=[])
        setattr(sys.modules[parent], child, made)
    return made


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, name.rpartition(".")[2] + ".py"))
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


class StatelessProcessGroup:
    """Is not used here: torch's groups are."""


if which_one == "vllm":
    module("vllm", __path__=[])
    module("vllm.envs", __getattr__=lambda name: None)
    module("vllm.logger", init_logger=lambda name: Logger(logging.getLogger(name), {}))
    module("vllm.platforms", current_platform=types.SimpleNamespace(is_rocm=lambda: False, fp8_dtype=lambda: torch.float8_e4m3fn))
    module("vllm.utils.nccl", find_nccl_library=lambda: "libnccl.so.2")
    module("vllm.utils.torch_utils", current_stream=torch.cuda.current_stream)
    module("vllm.distributed.utils", StatelessProcessGroup=StatelessProcessGroup)
    prefix = "vllm.distributed.device_communicators."
else:
    module("sglang", __path__=[])
    module("sglang.srt.distributed.utils", StatelessProcessGroup=StatelessProcessGroup)
    module("sglang.srt.utils.common", get_current_device_stream_fast=torch.cuda.current_stream)
    prefix = "sglang.srt.distributed.device_communicators."
module(prefix.rstrip("."), __path__=[])
wrapper = load(prefix + "pynccl_wrapper")
pynccl = load(prefix + "pynccl")
if os.environ.get("IMPORT_ONLY"):
    library = wrapper.NCCLLibrary()
    print(f"{which_one}: wrapper of {library.ncclGetVersion()}, {len(library._funcs)} functions")
    sys.exit()

start("gloo")
comm = pynccl.PyNcclCommunicator(group=dist.group.WORLD, device=DEVICE)  # warms up with one element
expect(comm.available, "that the wrapper loads the library")
enabled = comm.change_state(enable=True) if hasattr(comm, "change_state") else contextlib.nullcontext()


def reduced(x):
    out = comm.all_reduce(x)
    return x if out is None else out


with enabled:
    # After the one element nothing is called before the capture, as inference servers do it.
    held = {}
    x = torch.empty(8192 * 8, dtype=torch.bfloat16, device=DEVICE)

    def step():
        held["y"] = reduced(x)

    graph = graph_of(step, times=1, warmups=0)
    for turn in range(3):
        x.fill_(RANK + 1 + turn)
        graph.replay()
        torch.cuda.synchronize()
        expect(bool((held["y"] == SIZE * (SIZE + 1) // 2 + SIZE * turn).all()), f"the right sum of replay {turn}")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for n in (1, 4097, 1 << 20):
            x = torch.full((n,), RANK + 1, dtype=dtype, device=DEVICE)
            y = reduced(x)
            torch.cuda.synchronize()
            expect(bool((y == SIZE * (SIZE + 1) // 2).all()), f"the right sum of {n} {dtype}")
    gathered, part = torch.empty(SIZE * 1000, device=DEVICE), torch.full((1000,), float(RANK), device=DEVICE)
    comm.all_gather(gathered, part)
    scattered = torch.empty(1000, device=DEVICE)
    comm.reduce_scatter(scattered, gathered)
    if RANK == 0:
        comm.send(part, 1)
    elif RANK == 1:
        comm.recv(scattered[:1000], 0)
    b = torch.full((5,), float(RANK), device=DEVICE)
    comm.broadcast(b, 1)
    torch.cuda.synchronize()
    expect(bool((gathered.view(SIZE, 1000)[:, 0] == torch.arange(SIZE, device=DEVICE)).all()), "the gathered parts")
    expect(bool((b == 1).all()), "the broadcast value")
    expect(RANK != 1 or bool((scattered == 0).all()), "the message of rank 0")
say(f"{which_one} pynccl", f"version {comm.nccl.ncclGetVersion()}: all_reduce of three types, also captured first; all_gather, reduce_scatter, send, recv, broadcast right")
dist.barrier()
os._exit(0)  # as inference servers end: the communicator is not destroyed
