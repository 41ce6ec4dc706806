"""How long a large svelto file takes to open, and what several processes that use it cost together.

python benchmarks/open_file.py --markdown docs/file-format.md

A random machine of the given size is saved by `method="exact"`; times are the least of a few runs, with the file in the
page cache. Memory of processes is their proportional share (PSS): pages that several map are divided among them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

import svelto
from _environment import describe

BEGIN, END = "<!-- open_file benchmark: begin -->", "<!-- open_file benchmark: end -->"
CHILD = """
import sys
import numpy as np
import svelto
fast = svelto.load(sys.argv[1], n_jobs=1, verify=False)
fast.decision_function(np.ones((4, fast.n_features_in_)))
print("ready", flush=True)
sys.stdin.readline()
lines = open("/proc/self/smaps").read().split("\\n")
share, inside = 0, False
for line in lines:
    if "-" in line.split(" ")[0]:
        inside = line.endswith(sys.argv[1])
    elif inside and line.startswith("Pss:"):
        share += int(line.split()[1])
print(share * 1024, flush=True)
sys.stdin.readline()
"""


def least_ms(path: Path, verify: bool, runs: int) -> float:
    times = []
    for _ in range(runs):
        begin = perf_counter()
        svelto.load(path, verify=verify)
        times.append(perf_counter() - begin)
    return 1e3 * min(times)


def shares(path: Path, n: int) -> list[int]:
    """Bytes of the file that each of n processes has in memory, shared pages divided among them."""
    command = [sys.executable, "-c", CHILD, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    children = [subprocess.Popen(command, text=True, **pipes) for _ in range(n)]
    try:
        for child in children:
            child.stdout.readline()
        found = []
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
            found.append(int(child.stdout.readline()))
        return found
    finally:
        for child in children:
            child.communicate("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-sv", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    machine = svelto.KernelMachine.from_arrays(
        kernel="rbf",
        gamma=1.0 / given.features,
        support_vectors=rng.normal(size=(given.n_sv, given.features)),
        dual_coef=rng.normal(size=given.n_sv),
        classes=[-1, 1],
    )
    fast = svelto.accelerate(machine, method="exact")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.svelto"
        fast.save(path)
        size = path.stat().st_size
        lines = [
            "| what | measured |",
            "| --- | ---: |",
            f"| file, {given.n_sv:,} support vectors of {given.features} features | {size / 1e6:.0f} MB |",
            f"| `load(path, verify=False)` | {least_ms(path, False, given.runs):.1f} ms |",
            f"| `load(path)`, all checksums | {least_ms(path, True, given.runs):.0f} ms |",
        ]
        found = shares(path, given.processes)
        lines.append(f"| memory for the file, {given.processes} processes together | {sum(found) / 1e6:.0f} MB |")
    where = describe()
    command = "python benchmarks/open_file.py --markdown docs/file-format.md"
    lines += ["", f"{where['cpu']}, {where['cores']} cores, load {where['load_average']}; `{command}`"]
    text = "\n".join(lines)
    print(text)
    if given.markdown is not None:
        whole = given.markdown.read_text()
        before, rest = whole.split(BEGIN)
        given.markdown.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
