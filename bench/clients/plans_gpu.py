#!/usr/bin/env python3
"""Execution plans on the GPUs of a host: are their results right, and how long do they take beside the library's own algorithms?

    plans_gpu.py TOP FILE|FOLDER…    TOP has bin/mscclpp-run and its plugins: a tree after `make build machine-code`, or what
                                     `make dist-gpu` packed. Nothing is built.

Right: all plans of the files that are for as many ranks and right, as LL8 and LL16, one by one and in graphs, in place and not; what
is for no collective only has to end. Times: plans of plan/library with several numbers of thread blocks against the algorithm of the same kind,
by turns in one job and in graphs, 1 KiB to 256 MiB; a row has the fastest plan of its size, as `tune` would choose it. Raw
rows go to $OUT (default: the current folder) as plans.jsonl; the last lines are the table. The exit code is 1 if a result was wrong or a job failed.

Environment: BUDGET, seconds for all (400); BYTES, the sizes (1K:256M); DEVICE (cuda), also host, which has a limit of its own; CALLS, of a graph (20);
RANKS (2).
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time

BEGAN = time.monotonic()
BUDGET = float(os.environ.get("BUDGET", "400"))
DEVICE = os.environ.get("DEVICE", "cuda")
SIZES = os.environ.get("BYTES", "1K:256M")
CALLS = os.environ.get("CALLS", "20")
RANKS = os.environ.get("RANKS", "2")
OUT = os.environ.get("OUT", ".")
LIMIT = 1.05 if DEVICE == "host" else 1.03
# The kind of plan, packets, the algorithm of the same kind, whether buffers are registered, and the sizes that it is for.
RATIOS = [
    ("allreduce-1pa", 8, "allpair_ll8", False, 64 << 10),
    ("allreduce-2pa-packets", 8, "twophase_ll8", False, 4 << 20),
    ("allreduce-2pa-chunks", 16, "zerocopy", True, 1 << 60),
    ("allgather-packets", 8, "ll8", False, 4 << 20),
    ("allgather-chunks", 16, "push" if DEVICE != "host" else "zerocopy", True, 1 << 60),  # on the host nothing pushes
]
failures = []


def left():
    return BUDGET - (time.monotonic() - BEGAN)


def run(name, *args, limit=120):
    """Run a command and return its output; what went wrong is noted."""
    limit = min(limit, left())
    if limit < 5:
        failures.append(f"{name}: no time was left")
        return ""
    try:
        done = subprocess.run(args, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as e:
        failures.append(f"{name}: not done after {limit:.0f} s")
        return (e.stdout or b"").decode() if isinstance(e.stdout, bytes) else e.stdout or ""
    if done.returncode != 0:
        failures.append(f"{name}: code {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def rows(text):
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass  # the last line of a job that was ended
    return found


def files(paths):
    found = []
    for path in paths:
        if os.path.isdir(path):
            for folder, _, names in sorted(os.walk(path)):
                found += [os.path.join(folder, n) for n in sorted(names) if n.endswith((".json", ".json.gz"))]
        else:
            found.append(path)
    return found


def right(mscclpp, paths):
    """Files of RANKS ranks that are right, those of collectives first."""
    known = ("allreduce", "allgather", "reducescatter", "alltoall")
    found = {True: [], False: []}
    done = subprocess.run([mscclpp, "plan", "check", "--format", "json", *files(paths)], capture_output=True, text=True)
    for row in rows(done.stdout):  # the exit code says that some are not right
        if row["verdict"] == "right" and row["ranks"] == int(RANKS):
            opener = __import__("gzip").open if row["file"].endswith(".gz") else open
            with opener(row["file"], "rt") as f:
                found[json.load(f)["collective"] in known].append(row["file"])
    return found[True], found[False]


def results(mscclpp, paths, log):
    collectives, others = right(mscclpp, paths)
    print(f"{len(collectives)} plans of collectives, {len(others)} of none", flush=True)
    graphs = [] if DEVICE == "host" else ["--graph", "0,4"]
    for packets in ("8", "16"):
        for size in ("64K", "3M"):
            name = f"results, LL{packets}, {size}"
            text = run(name, mscclpp, "-n", RANKS, "plan", "run", *collectives, "--packets", packets, "--bytes", size, "--check", "--in-place=both",
                       "--device", DEVICE, "--format", "json", *graphs)
            found = rows(text)
            wrong = [r for r in found if r["errors"]]
            for r in wrong:
                failures.append(f"{name}: {r['algorithm']}, graph of {r['graph']}, in place {r['in_place']}: {r['errors']} wrong elements")
            log.write(text)
            print(f"{name}: {len(found)} rows, {len(wrong)} wrong", flush=True)
        if others:
            log.write(run(f"no collective, LL{packets}", mscclpp, "-n", RANKS, "plan", "run", *others, "--packets", packets, "--device", DEVICE, "--format", "json"))


def ratios(mscclpp, folder, log):
    """Yield a line for each kind and size."""
    graphs = [] if DEVICE == "host" else ["--graph", CALLS]
    for kind, packets, native, registered, most in RATIOS:
        plans = []
        for blocks in (2, 8, 16, 32) if DEVICE != "host" else (1, 2):
            plans.append(os.path.join(folder, f"{kind}-{blocks}.json"))
            run(kind, mscclpp, "plan", "compile", kind, "--ranks", RANKS, "--blocks", str(blocks), "--output", plans[-1])
        low, high = SIZES.split(":")
        text = run(f"times of {kind}", mscclpp, "-n", RANKS, "plan", "bench", *plans, "--packets", str(packets), "--vs", native, "--bytes", f"{low}:{shorter(high, most)}", "--factor", "4",
                   "--device", DEVICE, "--format", "json", *(["--registered"] if registered else []), *graphs)
        log.write(text)
        best = {}
        for r in rows(text):
            if r["peer_time_us"] and (r["bytes"] not in best or r["time_us"] < best[r["bytes"]]["time_us"]):
                best[r["bytes"]] = r
        if not best:
            failures.append(f"{kind}: no time beside {native}")
        natives = {}  # the algorithm was measured beside each of the plans: its median does not change with them
        for r in rows(text):
            natives.setdefault(r["bytes"], []).append(r["peer_time_us"])
        for size, r in sorted(best.items()):
            yield kind, packets, native, size, r["algorithm"].split("-")[-1], r["time_us"], r["peer_time_us"], r["time_us"] / r["peer_time_us"], sorted(natives[size])[0]


def shorter(text, most):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    n = int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
    return str(min(n, most))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    mscclpp = os.path.join(sys.argv[1], "bin", "mscclpp-run")
    table = []
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(OUT, "plans.jsonl"), "w") as log:
        if len(sys.argv) > 2:
            results(mscclpp, sys.argv[2:], log)
        for line in ratios(mscclpp, folder, log):
            table.append(line)
    print(f"{'plan':<24} {'algorithm':<14} {'bytes':>10} {'blocks':>9} {'plan us':>9} {'its us':>9} {'ratio':>6}")
    by_kind = {}
    for kind, packets, native, size, blocks, mine, theirs, ratio, _ in table:
        by_kind.setdefault(kind, []).append(ratio)
        print(f"{kind:<24} {native:<14} {size:>10} {blocks:>9} {mine:>9.2f} {theirs:>9.2f} {ratio:>6.3f}")
    for kind, found in by_kind.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{kind}: geometric mean {mean:.3f} (limit {LIMIT}), worst {max(found):.3f} (limit 1.10), {len(found)} sizes")
    print(f"{len(failures)} failures, {time.monotonic() - BEGAN:.0f} s")
    for text in failures[:20]:
        print("FAILED", text)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
