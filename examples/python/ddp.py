"""A training with DistributedDataParallel on CPU: mscclpp-run -n 2 python examples/python/ddp.py, or under torchrun."""

import mscclpp.torch  # registers the backend
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("mscclpp")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(50):
    x = torch.randn(32, 8, generator=data)
    loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
assert loss < 0.01, loss
print(f"rank {dist.get_rank()}: the loss is {loss:.1g}")
dist.destroy_process_group()
