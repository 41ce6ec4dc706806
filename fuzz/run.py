"""Fuzz all targets for some seconds each, two at a time: python fuzz/run.py [--seconds 10] [--targets csv_rows ...].

The first random number is fixed, so that a short run in a fresh checkout tries the same inputs every time. A finding
ends its target, and the run with 1; its input stays in build/fuzz. Without Atheris the kept inputs are replayed.

`--keep` adds what a long run found new ways with to fuzz/corpus, `--markdown FILE` writes the table of the run there,
`--table` does both for runs that are over.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from _common import FOLDER, SEEDS, TARGETS

WORK = FOLDER.parent / "build" / "fuzz"
MARKS = ("<!-- fuzz run: begin -->", "<!-- fuzz run: end -->")
# Inputs of a target may be no larger than this, and those that --keep adds not more in all.
MOST_BYTES = {"svelto_file": 20_000}
MOST_KEPT = {"svelto_file": 150_000}
MOST_SECONDS = 0.1


class Outcome(NamedTuple):
    """What a run of one target came to."""

    target: str
    code: int
    log: str

    def row(self) -> list[str]:
        """The cells under `HEADER`."""
        stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", self.log))
        covered = re.findall(r"cov: (\d+) ft: \d+ corp: (\d+)", self.log)
        seconds = re.findall(r"Done \d+ runs in (\d+) second", self.log)
        edges, corpus = covered[-1] if covered else ("-", "-")
        runs, rate = stats.get("number_of_executed_units", "-"), stats.get("average_exec_per_sec", "-")
        memory = stats.get("peak_rss_mb", "-")
        return [self.target, (seconds or ["-"])[-1], runs, rate, edges, corpus, memory, "0" if self.code == 0 else "1"]


# Edges are ways through svelto's Python code; inputs are those that were needed to reach them.
HEADER = ["target", "seconds", "runs", "runs/s", "edges", "inputs", "peak MB", "findings"]


def fuzz(target: str, seconds: int, seed: int, timeout: int) -> Outcome:
    """One target in a process of its own; new inputs go to build/fuzz/TARGET."""
    new = WORK / target
    new.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(FOLDER / "start.py"), target, f"-max_total_time={seconds}", f"-seed={seed}"]
    command += [f"-timeout={timeout}", "-rss_limit_mb=3072", f"-max_len={MOST_BYTES.get(target, 4096)}"]
    command += ["-print_final_stats=1", f"-artifact_prefix={WORK}/{target}-", str(new), *map(str, SEEDS[target])]
    with open(WORK / f"{target}.log", "w+", errors="replace") as log:
        code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        log.seek(0)
        return judged(Outcome(target, code, log.read()))


def judged(outcome: Outcome) -> Outcome:
    """A run that saw no edge of the code has looked for nothing: that is no success."""
    if outcome.code == 0 and not re.search(r"cov: \d+", outcome.log):
        return outcome._replace(code=1, log=outcome.log + "\nNo edge was seen: svelto was not instrumented.\n")
    return outcome


def told(target: str) -> Outcome:
    """The last run of a target, from its log."""
    log = (WORK / f"{target}.log").read_text(errors="replace")
    return judged(Outcome(target, 0 if "stat::" in log and "ERROR: libFuzzer" not in log else 1, log))


def tell(outcome: Outcome) -> None:
    """What was found, and how to see it again."""
    lines = [line for line in outcome.log.splitlines() if not re.match(r"INFO: Instrumenting|#\d+|0x|Base64", line)]
    print("\n".join(lines[-40:]), file=sys.stderr)
    written = re.findall(r"Test unit written to (\S+)", outcome.log)
    if written:
        print(f"A finding. See it again: python fuzz/replay.py {outcome.target} {written[-1]}", file=sys.stderr)
    else:
        print(f"{outcome.target} ended with {outcome.code}; see {WORK / outcome.target}.log", file=sys.stderr)


def replay_kept(targets: list[str]) -> int:
    """All kept inputs, without Atheris."""
    print("Atheris is not installed for this Python; the kept inputs are replayed.")
    codes = [subprocess.run([sys.executable, str(FOLDER / "replay.py"), t], check=False).returncode for t in targets]
    return max(codes)


def keep(target: str) -> None:
    """Add inputs that reach code which the kept ones do not: quick ones, as tests go through them, small ones first."""
    merged = WORK / f"{target}-merged"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    known = {path.read_bytes() for folder in SEEDS[target] for path in folder.iterdir()}
    # Which edges are reached is enough; how often would keep hundreds of inputs that differ in little else.
    command = [sys.executable, str(FOLDER / "start.py"), target, "-merge=1", "-use_counters=0", str(merged)]
    command += [*map(str, SEEDS[target]), str(WORK / target)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    left = MOST_KEPT.get(target, 20_000)
    folder = FOLDER / "corpus" / target
    folder.mkdir(exist_ok=True)
    for path in sorted(merged.iterdir(), key=lambda path: path.stat().st_size):
        data = path.read_bytes()
        if data not in known and len(data) <= left and _seconds(target, data) < MOST_SECONDS:
            left -= len(data)
            (folder / f"reached-{path.name[:12]}").write_bytes(data)


def _seconds(target: str, data: bytes) -> float:
    start = time.process_time()
    importlib.import_module(target).check(data)
    return time.process_time() - start


def table(outcomes: list[Outcome]) -> str:
    """The run in Markdown."""
    rows = [HEADER, ["---", *["---:"] * (len(HEADER) - 1)], *(outcome.row() for outcome in outcomes)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Fuzz, tell, and end with 1 if there is something to tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="first random number; 0: another one every time")
    parser.add_argument("--timeout", type=int, default=20, help="seconds after which one input is a finding")
    parser.add_argument("--jobs", type=int, default=2, help="targets at the same time")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--keep", action="store_true", help="add inputs that reach new code to fuzz/corpus")
    parser.add_argument("--table", action="store_true", help="run nothing; the table of the last runs")
    parser.add_argument("--markdown", type=Path, help="file whose table is replaced by this run's")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        sys.exit(replay_kept(options.targets))
    WORK.mkdir(parents=True, exist_ok=True)
    if options.table:
        outcomes = [told(target) for target in options.targets]
    else:
        with ThreadPoolExecutor(options.jobs) as pool:
            jobs = [pool.submit(fuzz, t, options.seconds, options.seed, options.timeout) for t in options.targets]
            outcomes = [job.result() for job in jobs]
    print(table(outcomes))
    if options.markdown is not None:
        text = options.markdown.read_text()
        before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
        options.markdown.write_text(f"{before}{MARKS[0]}\n{table(outcomes)}\n{MARKS[1]}{after}")
    bad = [outcome for outcome in outcomes if outcome.code]
    for outcome in bad:
        tell(outcome)
    if options.keep and not bad:
        for target in options.targets:
            keep(target)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
