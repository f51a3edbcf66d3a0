"""Parts of PyTorch's own tests of torch.distributed, from its wheel, with backend nccl on two GPUs: torchtests.py [NAME…]."""
import os
import sys
import tempfile
import time

os.environ.setdefault("BACKEND", "nccl")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())

import torch  # noqa: E402
from torch.testing._internal.common_utils import unittest  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

NAMES = """
test_all_reduce_sum_cuda test_all_gather_into_cat_tensor_cuda test_reduce_scatter_v_cuda test_all_to_all_single_unequal_split_cuda
test_batch_isend_irecv_nccl test_send_recv_nccl test_nccl_backend_bool_allreduce test_coalescing_manager test_barrier_cuda
test_broadcast_cuda test_reduce_sum_cuda test_gather_cuda test_scatter_cuda test_all_reduce_sum_cuda_complex test_nccl_high_priority_stream
test_all_gather_v_cuda test_all_gather_object_default_pg test_batch_isend_irecv_self_nccl test_get_future test_ddp_broadcast_buffer
test_ddp_hook_parity_allreduce test_DistributedDataParallel_SyncBatchNorm test_DistributedDataParallel test_ddp_uneven_inputs
""".split()


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()


def main(names):
    """Runs tests one after the other until the time is up, and says how each went."""
    ends = time.monotonic() + float(os.environ.get("SECONDS_FOR_TESTS", "90"))
    texts = []
    outcome = {"passed": [], "skipped": [], "failed": [], "left": []}
    for name in names:
        if time.monotonic() > ends:
            outcome["left"].append(name)
            continue
        result = unittest.TextTestRunner(stream=open(os.devnull, "w")).run(unittest.TestSuite([TestDistBackendWithSpawn(name)]))
        kind = "failed" if result.failures or result.errors else "skipped" if result.skipped else "passed"
        outcome[kind].append(name)
        for _, text in result.failures + result.errors:
            texts.append(f"{name}: {text[-2500:]}")
    print("\n".join(texts), file=sys.stderr, flush=True)  # behind all that the tests have printed
    if texts:
        print("FAILED " + " ".join(outcome["failed"]), flush=True)
    print(f"CLIENT torch's distributed_test: {len(outcome['passed'])} passed, {len(outcome['failed'])} failed {outcome['failed']}, "
          f"{len(outcome['skipped'])} skipped {outcome['skipped']}, {len(outcome['left'])} had no time {outcome['left']}", flush=True)
    sys.exit(bool(outcome["failed"]))


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
