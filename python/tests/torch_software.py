"""PyTorch's own distributed software over gloo and over mscclpp, each as the default backend: every part gives the same bits.

Arguments: the parts. Reductions are between two ranks, whatever the job's size, so that their order is one.
"""

import datetime
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
import torch.distributed.nn.functional as dnn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import mscclpp.torch


def network():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)]
    return torch.nn.Sequential(*layers)


def batches(steps=3):
    generator = torch.Generator().manual_seed(rank)
    return [(torch.randn(8, 16, generator=generator), torch.randn(8, 8, generator=generator)) for _ in range(steps)]


def train(model, optimizer=None, data=None):
    """Return the losses and the weights."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, y in data or batches():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses + weights(model)


def weights(model):
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone() for p in model.parameters()]


def zero():
    """An optimizer whose state is divided among the ranks."""
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    result = train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    return result


def join():
    """Ranks with different numbers of batches."""
    model = DistributedDataParallel(network())
    with Join([model]):
        train(model, data=batches(3 + rank))
    return weights(model)


def hooks():
    """What DDP can do with gradients instead of an all-reduce; callbacks of powerSGD wait for later operations."""
    result = []
    for hook in (default_hooks.bf16_compress_hook, default_hooks.allreduce_hook):
        model = DistributedDataParallel(network())
        model.register_comm_hook(None, hook)
        result += train(model)
    model = DistributedDataParallel(network())
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    return result + train(model, data=batches(5))


def averaging():
    """Weights that are averaged in every second step."""
    model, averager = network(), PeriodicModelAverager(period=2, warmup_steps=0)
    for batch in batches():
        train(model, data=[batch])
        averager.average_parameters(model.parameters())
    return weights(model)


def graphs():
    """Models of which ranks use different parts, and steps without communication."""
    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.all, self.some = torch.nn.Linear(16, 8), torch.nn.Linear(16, 8)

        def forward(self, x):
            return self.all(x) if rank else self.all(x) + self.some(x)
    model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    with model.no_sync():
        model(batches()[0][0]).sum().backward()
    return train(DistributedDataParallel(Parts(), find_unused_parameters=True)) + train(model) + train(DistributedDataParallel(network(), static_graph=True))


def autograd():
    """Collectives with gradients."""
    x = torch.arange(4.0, requires_grad=True)
    (torch.cat(dnn.all_gather(x * (rank + 1))).pow(2).sum() + dnn.all_reduce(x * x).sum() + dnn.broadcast(x.clone(), 0).sum()).backward()
    return [x.grad]


def functional():
    """Functional collectives, as they are and traced."""
    def run(x):
        group = dist.group.WORLD
        return (funcol.all_reduce(x, "sum", group) + 1, funcol.all_gather_tensor(x, 0, group), funcol.reduce_scatter_tensor(x, "sum", 0, group),
                funcol.all_to_all_single(x, None, None, group))
    x = torch.arange(8.0) + rank
    return [y.clone() for y in (*run(x), *torch.compile(run, backend="aot_eager", fullgraph=True)(x))]


def columns():
    """Tensor parallelism."""
    model = parallelize_module(network(), init_device_mesh("cpu", (size,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    generator = torch.Generator().manual_seed(5)
    return train(model, data=[(torch.randn(8, 16, generator=generator), torch.randn(8, 8, generator=generator))] * 3)


def fsdp():
    """The first kind of FSDP."""
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    losses = train(model)
    with FullyShardedDataParallel.summon_full_params(model):
        return losses + weights(model)


def mesh():
    """FSDP2 on a mesh of two dimensions, replicated in one of them."""
    two, model = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards")), network()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=two)
    return train(fully_shard(model, mesh=two))


def checkpoint():
    """Weights and optimizer of FSDP2, saved and loaded."""
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder, 0)
        model = fully_shard(network(), mesh=init_device_mesh("cpu", (size,)))
        optimizer = torch.optim.AdamW(model.parameters())
        train(model, optimizer)
        saved = weights(model)
        dcp.save(dict(zip("mo", get_state_dict(model, optimizer))), checkpoint_id=folder[0])
        train(model, optimizer)
        state = dict(zip("mo", get_state_dict(model, optimizer)))
        dcp.load(state, checkpoint_id=folder[0])
        set_state_dict(model, optimizer, model_state_dict=state["m"], optim_state_dict=state["o"])
        dist.barrier()  # the folder is not read any more
    assert all(torch.equal(a, b) for a, b in zip(saved, weights(model)))
    return saved + train(model, optimizer)


def pipeline():
    """Stages of a model, each of a rank, in two schedules."""
    result, layers = [], list(network())
    cuts = [0, 3, 5] if size == 2 else [0, 1, 2, 3, 5]
    for kind in (ScheduleGPipe, Schedule1F1B):
        part, losses = torch.nn.Sequential(*layers[cuts[rank]:cuts[rank + 1]]), []
        schedule = kind(PipelineStage(part, rank, size, torch.device("cpu")), 4, loss_fn=mse_loss)
        generator = torch.Generator().manual_seed(7)
        x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 8, generator=generator)
        for _ in range(2):
            schedule.step(*((x,) if rank == 0 else ()), **({"target": y, "losses": losses} if rank == size - 1 else {}))
        result += [p.grad.clone() for p in part.parameters()] + losses + [torch.tensor(float(len(losses)))]
    return result


results: dict = {}
store = None
for backend in ("gloo", "mscclpp"):
    if store is None:
        dist.init_process_group(backend, timeout=datetime.timedelta(minutes=5))
        store = dist.group.WORLD.get_group_store()
    else:
        dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank, world_size=size, timeout=datetime.timedelta(minutes=5))
    rank, size = dist.get_rank(), dist.get_world_size()
    for part in sys.argv[1:]:
        got = [t.detach().clone() for t in globals()[part]()]
        want = results.setdefault(part, got)
        if len(got) != len(want) or not got or not all(torch.equal(a, b) and torch.isfinite(a).all() for a, b in zip(got, want)):
            sys.exit(f"rank {rank}: {part}: {backend} gives {got}: expected {want}")
    assert isinstance(dist.group.WORLD, mscclpp.torch.ProcessGroup) == (backend == "mscclpp")
    dist.destroy_process_group()
print(f"rank {rank} is done")
