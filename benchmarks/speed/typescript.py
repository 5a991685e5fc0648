"""The TypeScript SDK as a reader of the same lines: node, with `@anthropic-ai/claude-agent-sdk` from npm in a folder of the benchmarks."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from speed.harness import Cost
from speed.workload import Workload

__all__ = ["VERSION", "installed", "query_typed"]

VERSION = "0.3.330"
_PACKAGE = "@anthropic-ai/claude-agent-sdk"
_FOLDER = Path(__file__).parent.parent.parent / "build" / f"typescript-sdk-{VERSION}"
_MODULE = _FOLDER / "node_modules" / _PACKAGE / "sdk.mjs"
_READER = Path(__file__).with_name("typescript.mjs")
_INSTALL_SECONDS, _READ_SECONDS = 180, 120


@functools.cache
def installed() -> bool:
    """Return True when the SDK can be measured; install it from npm if need be. Where that is impossible, print why and return False."""
    reason = _install()
    if reason:
        print(f"    the TypeScript SDK is left out: {reason}", file=sys.stderr, flush=True)
    return not reason


def _install() -> str:
    if shutil.which("node") is None:
        return "there is no node on this machine"
    if _MODULE.exists():
        return ""
    if shutil.which("npm") is None:
        return "there is no npm on this machine"
    # the optional packages hold a claude of 200 MB, which is not run here
    command = ["npm", "install", "--prefix", str(_FOLDER), "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        _FOLDER.mkdir(parents=True, exist_ok=True)
        ran = subprocess.run(
            [*command, f"{_PACKAGE}@{VERSION}"], check=False, timeout=_INSTALL_SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"npm install did not work ({type(exc).__name__})"
    return "" if _MODULE.exists() else f"npm install ended with exit code {ran.returncode}"


def query_typed(peer: str, work: Workload, *, home: Path) -> Cost:
    """Read one turn in a process of its own, and return the cost of a message from the first to the last. `home` is its HOME."""
    ran = subprocess.run(
        ["node", str(_READER), str(_MODULE), peer],
        check=True,
        timeout=_READ_SECONDS,
        stdout=subprocess.PIPE,
        env={**os.environ, "HOME": str(home)},
    )
    found = json.loads(ran.stdout)
    assert found["messages"] == work.count, (found, work.count)
    return Cost(found["cpu"] / work.count, found["wall"] / work.count)
