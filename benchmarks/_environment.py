"""Where the numbers come from: processor, versions, commit, and who else was using the cores."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from svelto.engines.exact import instruction_level
from svelto.reproduce._common import _version

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


def _commit() -> str | None:
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (" + changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
