"""Where the numbers come from: processor, versions, commit, and who else was using the cores."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from threadpoolctl import threadpool_info

from svelto.engines.exact import instruction_level

PACKAGES = ("svelto", "numpy", "scipy", "scikit-learn", "scikit-learn-intelex", "onnx", "onnxruntime")


def describe() -> dict[str, Any]:
    """Facts for the head of the results."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "instruction_level": instruction_level(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "blas": sorted(
            {
                f"{lib['internal_api']} {lib['version']} {lib.get('architecture', '')}".strip()
                for lib in threadpool_info()
                if lib["user_api"] == "blas"
            }
        ),
        "commit": _commit(),
    }


class OtherLoad:
    """Cores that other processes kept busy (or the host took away) since this object was made."""

    def __init__(self) -> None:
        self.started, self.all_before, self.own_before = perf_counter(), _all_seconds(), _own_seconds()

    def cores(self) -> float | None:
        """Average number of cores; None where the system does not tell."""
        if self.all_before is None:
            return None
        others = _all_seconds() - self.all_before - (_own_seconds() - self.own_before)
        return round(max(0.0, others / (perf_counter() - self.started)), 3)


def _all_seconds() -> float | None:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, soft_irq, steal = map(int, fields[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        facts: dict[str, str] = {}
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
        if "model name" in facts:
            numbers = f" (family {facts['cpu family']}, model {facts['model']})" if "cpu family" in facts else ""
            return facts["model name"] + numbers
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (" + changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
