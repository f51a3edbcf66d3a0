"""Time from init_process_group to the first result, with an empty cache of the driver's compiler where CUDA_CACHE_PATH says so."""
import os
import time

import torch
import torch.distributed as dist

from common import DEVICE, RANK, SIZE, expect, finish, now, row, say, start

x = torch.ones(1000, device=DEVICE, dtype=torch.float16)
torch.cuda.synchronize()
# All begin together: how long each took to be imported is not measured.
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1, SIZE, RANK == 0)
store.add("here", 1)
while store.add("here", 0) < SIZE:
    time.sleep(0.0005)
begin = now()
start(store=dist.PrefixStore("start", store))  # a store of torch's own takes up to 0.6 s, by which rank comes first
joined = now()
dist.all_reduce(x)
torch.cuda.synchronize()
first = now()
expect(bool((x == SIZE).all()), "the right sum")
y = torch.ones(SIZE * 1000, device=DEVICE)
dist.all_gather_into_tensor(y, torch.ones(1000, device=DEVICE))
torch.cuda.synchronize()
second = now()
row(start_s=round(first - begin, 3), init_s=round(joined - begin, 3), second_s=round(second - first, 3))
free, total = torch.cuda.mem_get_info()
say("start", f"{first - begin:.2f} s to the first result (init {joined - begin:.2f}), {second - first:.3f} s for a second kind of call; {(total - free) >> 20} MiB of the GPU are used")
finish()
