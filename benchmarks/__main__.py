"""Run benchmarks: `python benchmarks [speed | network | rest] ARGUMENTS…`; the arguments go to each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def scripts(which: str) -> list[Path]:
    """Return the scripts to run."""
    if which != "rest":
        return [HERE / f"bench_{which}.py"]
    return [path for path in sorted(HERE.glob("bench_*.py")) if path.stem not in ("bench_speed", "bench_network")]


if __name__ == "__main__":
    which, *arguments = sys.argv[1:] if sys.argv[1:2] in (["network"], ["rest"], ["speed"]) else ["speed", *sys.argv[1:]]
    for script in scripts(which):
        if failed := subprocess.run([sys.executable, script, *arguments], check=False).returncode:
            sys.exit(failed)
