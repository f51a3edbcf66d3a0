"""JAX on two GPUs: jaxsum.py, one process with both; or with RANK and WORLD_SIZE a process for each."""
import os

rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

if size > 1:
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 7}", size, rank, local_device_ids=[rank])
n = jax.device_count()
assert n == 2, f"{n} devices"
mesh = Mesh(np.array(jax.devices()), ("d",))
done = []


def rows(x):
    return [np.asarray(s.data) for s in x.addressable_shards]


def sharded(values):
    return jax.make_array_from_callback(values.shape, NamedSharding(mesh, P("d")), lambda index: values[index])


shard_map = jax.shard_map if hasattr(jax, "shard_map") else __import__("jax.experimental.shard_map", fromlist=["shard_map"]).shard_map
for dtype in (jnp.float32, jnp.bfloat16):
    x = sharded(np.repeat(np.arange(1, n + 1, dtype=np.float32)[:, None], 4096, axis=1).astype(dtype))
    psum = jax.jit(shard_map(lambda v: jax.lax.psum(v, "d"), mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    for _ in range(3):
        assert all((r.astype(np.float32) == 3).all() for r in rows(psum(x))), "psum"
    gather = jax.jit(shard_map(lambda v: jax.lax.all_gather(v, "d").reshape(1, -1), mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    assert all(r.astype(np.float32).sum() == 3 * 4096 for r in rows(gather(x))), "all_gather"
    shift = jax.jit(shard_map(lambda v: jax.lax.ppermute(v, "d", [(0, 1), (1, 0)]), mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    assert sorted(float(np.float32(r[0, 0])) for r in rows(shift(x))) in ([1.0, 2.0], [1.0], [2.0]), "ppermute"
done += ["shard_map psum", "all_gather", "ppermute"]
# A matrix product whose inner dimension is divided: XLA adds the all-reduce by itself.
a = sharded(np.ones((256, 512), np.float32).T).T
b = sharded(np.ones((512, 128), np.float32))
product = jax.jit(lambda a, b: a @ b, out_shardings=NamedSharding(mesh, P()))(a, b)
assert (rows(product)[0] == 512).all(), "matmul"
done.append("divided matmul")
if size == 1:
    out = jax.pmap(lambda v: jax.lax.psum(v, "i"), axis_name="i")(jnp.arange(n, dtype=jnp.float32).reshape(n, 1))
    assert (np.asarray(out) == n * (n - 1) / 2).all(), "pmap"
    done.append("pmap psum")
maps = open("/proc/self/maps").read()
if rank == 0:
    which = "ours" if "libmscclpp" in maps else "nccl" if "libnccl" in maps else "no NCCL at all"
    print(f"CLIENT JAX {jax.__version__}, {size} process{'es' if size > 1 else ''} [{which}]: {', '.join(done)} right", flush=True)
