"""The documentation as HTML, for tests: the build of `nox -s docs` when it is of these sources, otherwise a new one."""

from __future__ import annotations

import faulthandler
import fcntl
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BUILD = DOCS / "_build"
HTML = BUILD / "html"
LONGEST_BUILD = 1800  # seconds, on a machine that does much else; a quiet one needs a minute


def load(name: str) -> ModuleType:
    """Return a module of the documentation, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built_docs() -> Path:
    """Return the folder of the HTML pages of these sources. Processes that ask at the same time share one build."""
    if importlib.util.find_spec("sphinx") is None:
        assert not os.environ.get("CI"), "sphinx must be there where CI is set"
        pytest.skip("no Sphinx here (dependency group docs)")
    site = load("finished_site")
    note = HTML / site.NOTE
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        faulthandler.cancel_dump_traceback_later()  # the limit for a test is shorter than a build on a busy machine
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.is_file() or note.read_text("utf-8") != site.digest():
            options = ["-a", "-W", "-n", "--keep-going", "-q", "-d", str(BUILD / "doctrees")]
            command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(HTML)]
            built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_BUILD)
            assert built.returncode == 0, built.stderr
    return HTML
