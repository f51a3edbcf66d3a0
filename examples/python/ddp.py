"""A training with DistributedDataParallel, on GPUs where there are some: mscclpp-run -n 2 python examples/python/ddp.py, or under torchrun."""

import os

import mscclpp.torch  # registers the backend
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = "cpu"
if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda"
dist.init_process_group("mscclpp")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(50):
    x = torch.randn(32, 8, generator=data).to(device)
    loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
assert loss < 0.01, loss
print(f"rank {dist.get_rank()}: the loss on {device} is {loss:.1g}")
dist.destroy_process_group()
