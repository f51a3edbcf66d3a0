"""GPU memory that communicators take: one, five, after calls to 512 MiB in ordinary memory."""
import torch
import torch.distributed as dist

from common import DEVICE, SIZE, finish, row, say, start

x = torch.ones(1, device=DEVICE)
big = torch.zeros(512 << 20, dtype=torch.uint8, device=DEVICE).view(torch.float16)
y = torch.zeros(512 << 20, dtype=torch.uint8, device=DEVICE).view(torch.float16)
torch.cuda.synchronize()


def used():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20


before = used()
start()


def calls(group, most):
    n = 1024
    while n <= most:
        m = n // 2
        dist.all_reduce(big[:m], group=group)
        dist.all_gather_into_tensor(y[:m], big[:m // SIZE], group=group)
        dist.reduce_scatter_tensor(y[:m // SIZE], big[:m], group=group)
        dist.all_to_all_single(y[:m], big[:m], group=group)
        dist.broadcast(big[:m], 0, group=group)
        n *= 8
    dist.all_reduce(big[:most // 2], group=group)


dist.all_reduce(x)
one = used() - before
calls(None, 512 << 20)
one_big = used() - before
groups = [dist.new_group([0, 1]) for _ in range(4)]
for g in groups:
    dist.all_reduce(x, group=g)
five = used() - before
for g in groups:
    calls(g, 512 << 20)
five_big = used() - before
row(memory_mib={"one": one, "one_512MiB": one_big, "five": five, "five_512MiB": five_big})
say("memory", f"MiB of a GPU beside the context: one communicator {one}, after calls to 512 MiB {one_big}; five {five}, after such calls {five_big}")
finish()
