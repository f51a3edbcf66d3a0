#!/usr/bin/env python3
"""Measures by turns what observation costs: a build from before it against this one with records off, and off against on.

    make build kernels
    python3 bench/clients/observe_cost.py --before /path/to/older/tree --rounds 25 -- --device cuda

An older tree has its own bin/, with plugins. Behind -- come flags of mscclpp-run bench. Each round runs all variants in a new order. A line
gives the median of a variant's time over that of the one it is compared with, of each round, and a 95 % interval of that median (from
the ranks of the rounds' ratios, without an assumption about them). An interval that holds 1.000 shows no difference.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parents[2]


def measure(tree: pathlib.Path, how: list, args: argparse.Namespace) -> dict:
    """Returns microseconds a call by bytes."""
    command = [str(tree / "bin" / "mscclpp-run"), "-n", str(args.ranks), *how, "bench", "allreduce", "-b", args.bytes, "-f", "1024", "--format", "json"]
    run = subprocess.run(command + args.flags, capture_output=True, text=True, timeout=600)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: code {run.returncode}\n{run.stderr}")
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {line["bytes"]: line["time_us"] for line in lines}


def interval(ratios: list) -> tuple:
    """Returns the median, and the ranks around it between which it lies in 95 of 100 cases."""
    ratios = sorted(ratios)
    n = len(ratios)
    low = 0
    while sum(math.comb(n, k) for k in range(low + 1)) / 2**n < 0.025 and low < n // 2:
        low += 1
    low = max(low - 1, 0)
    return ratios[n // 2], ratios[low], ratios[n - 1 - low]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=pathlib.Path, help="a tree that was built before observation was there")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--bytes", default="1K:1M")
    parser.add_argument("flags", nargs="*", help="of mscclpp-run bench")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        variants = {
            "left out": (HERE, ["--set", "observe.enabled=false"]),
            "off": (HERE, []),
            "on": (HERE, ["--trace", f"{work}/trace"]),
        }
        pairs = [("off", "left out"), ("on", "off")]
        if args.before:
            variants["before"] = (args.before.resolve(), [])
            pairs.insert(0, ("off", "before"))
        times = {name: [] for name in variants}
        for _ in range(args.rounds):
            for name in random.sample(list(variants), len(variants)):
                times[name].append(measure(*variants[name], args))
    for bytes_ in times["off"][0]:
        for name, base in pairs:
            middle, low, high = interval([a[bytes_] / b[bytes_] for a, b in zip(times[name], times[base])])
            usual = sorted(t[bytes_] for t in times[base])[args.rounds // 2]
            print(f"{bytes_:>9} B  {name:>4} over {base:<8}  {middle:.3f}  95 % between {low:.3f} and {high:.3f}  ({base}: {usual:.3f} us)")


if __name__ == "__main__":
    main()
