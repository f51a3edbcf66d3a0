"""The same training over gloo and over mscclpp: DDP, FSDP2 and DTensor on CPU.

With two ranks losses and weights are equal bit for bit; with more of them where gradients are small integers, whose sums do not
depend on the order, and else to 1e-6.
"""

import datetime
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import mscclpp.torch

limit = datetime.timedelta(minutes=5)
dist.init_process_group("gloo", timeout=limit)
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"gloo": dist.group.WORLD, "mscclpp": dist.new_group(backend="mscclpp", timeout=limit)}
assert isinstance(groups["mscclpp"], mscclpp.torch.ProcessGroup), groups


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))


def batches(steps):
    generator = torch.Generator().manual_seed(rank)
    return [(torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)) for _ in range(steps)]


def train(model, steps=6):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def weights(model):
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().reshape(-1) for p in full])


def ddp(group):
    model = DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.01)  # several buckets, under way at once
    return torch.cat([train(model), weights(model)])


def sharded(group):
    mesh = DeviceMesh.from_group(group, "cpu")
    model = network()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return torch.cat([train(model), weights(model)])


def integers(group, shard=False):
    """Gradients of DDP are sums of small integers."""
    model = torch.nn.Linear(8, 8)
    with torch.no_grad():
        model.weight.copy_(torch.arange(64.0).view(8, 8) % 5)
        model.bias.zero_()
    model = fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu")) if shard else DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for step in range(4):
        optimizer.zero_grad()
        (model(torch.full((2, 8), float(rank + step))) * size).sum().backward()
        optimizer.step()
    return weights(model)


def sharded_integers(group):
    """Gradients of FSDP2 are, too."""
    return integers(group, shard=True)


def tensors(group):
    mesh = DeviceMesh.from_group(group, "cpu")
    whole = torch.arange(4.0 * size * 6).view(4 * size, 6)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    product = (sharded.t() @ sharded).redistribute(mesh, [Replicate()]).to_local()
    columns = sharded.redistribute(mesh, [Shard(1)]).full_tensor()
    return torch.cat([product.reshape(-1), columns.reshape(-1), sharded.sum().full_tensor().reshape(-1)])


for function, exact in ((ddp, size == 2), (sharded, size == 2), (integers, True), (sharded_integers, True), (tensors, True)):
    expected, got = function(groups["gloo"]), function(groups["mscclpp"])
    same = torch.equal(got, expected) if exact else torch.allclose(got, expected, rtol=1e-6, atol=1e-6)
    if not same or not torch.isfinite(got).all():
        sys.exit(f"rank {rank}: {function.__name__}: off by {(got - expected).abs().max()}: {got[:8]}: expected {expected[:8]}")
dist.barrier(groups["mscclpp"])
dist.destroy_process_group()
print(f"rank {rank} is done")
