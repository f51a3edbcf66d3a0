"""Data-parallel training, short: the ranks stay equal, and the losses are printed to be compared with another library's."""
import torch
import torch.distributed as dist

from common import DEVICE, RANK, SIZE, expect, finish, say, start

start()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 10)).to(DEVICE)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[DEVICE.index], bucket_cap_mb=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.manual_seed(100 + RANK)
x, y = torch.randn(64, 1024, device=DEVICE), torch.randint(10, (64,), device=DEVICE)
losses = []
for step in range(60):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (0, 4, 8, 16):
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG)
        losses.append(round(shown.item(), 4))
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
low, high = flat.clone(), flat.clone()
dist.all_reduce(low, op=dist.ReduceOp.MIN)
dist.all_reduce(high, op=dist.ReduceOp.MAX)
expect(torch.equal(low, high), "equal parameters on all ranks")
# A training script does this besides.
group = dist.new_group(list(range(SIZE)))
t = torch.ones(1, device=DEVICE)
dist.all_reduce(t, group=group)
objects = [None] * SIZE
dist.all_gather_object(objects, {"rank": RANK})
expect(t.item() == SIZE and objects[-1] == {"rank": SIZE - 1}, "a second group and objects")
say("torch DDP", f"60 steps, ranks equal, losses {losses}")
finish()
