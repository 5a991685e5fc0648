"""Import Python files that are in no package: generators of pages, examples, benchmarks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).resolve().parent.parent / "docs"


def load_file(path: Path, name: str | None = None) -> ModuleType:
    """Run the file as a module of this name, its own without one; anew at each call, and not in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_generator(name: str) -> ModuleType:
    """Import `docs/generate_<name>.py`."""
    return load_file(DOCS / f"generate_{name}.py")
