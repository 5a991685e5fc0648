"""Run the tests of Windows on a CPython for Windows under wine, on asyncio, without a network.

    python tests/windows/run_under_wine.py --cache FOLDER [tests and options of pytest]
    python tests/windows/run_under_wine.py --cache FOLDER --missing

The second prints what this machine lacks for it, or nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WINDOWS_TESTS = ("tests/windows", "tests/launch/test_windows_decisions.py", "tests/test_locks.py")
# A network namespace with loopback only: what these programs do reaches nothing. Under `-r`, the user counts as root in it.
WITHOUT_A_NETWORK = ("unshare", "--net") if hasattr(os, "geteuid") and os.geteuid() == 0 else ("unshare", "--net", "--map-root-user")
# Python does not start there when its output is a file, so it is a pipe.
SCRIPT = 'set -o pipefail; ip link set lo up && "$@" </dev/null 2>&1 | cat'


def fetched(cache: Path) -> str:
    """Return the path of a python.exe; raise `CalledProcessError` if none could be fetched."""
    command = [sys.executable, ROOT / "tests" / "foreign_programs.py", "windows-python", "--cache", cache]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def missing(cache: Path) -> str:
    """Say what this machine lacks, or nothing."""
    for program in ("wine", "unshare", "ip", "bash"):
        if shutil.which(program) is None:
            return f"{program} is not installed, so nothing was tried on Windows"
    if subprocess.run([*WITHOUT_A_NETWORK, "true"], check=False, capture_output=True).returncode:
        return "this user may not make a network namespace, so nothing was tried on Windows"
    try:
        fetched(cache)
    except subprocess.CalledProcessError:
        return "no CPython for Windows could be fetched, so nothing was tried on Windows"
    return ""


def main(cache: Path, arguments: list[str]) -> int:
    """Make a world for wine if there is none, and run pytest in it; return its status."""
    prefix = cache.resolve() / "wine" / "prefix"
    env = {
        **os.environ,
        "WINEPREFIX": str(prefix),
        "WINEARCH": "win64",
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",  # it asks for no packages of its own
        "DISPLAY": "",
        "PYTHONPATH": "Z:" + str(ROOT).replace("/", "\\"),
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "",
    }
    wine = (*WITHOUT_A_NETWORK, "bash", "-c", SCRIPT, "wine")
    python = fetched(cache)
    if not (prefix / "system.reg").exists():
        subprocess.run([*wine, "wineboot", "-i"], env=env, cwd=ROOT, check=True)
        subprocess.run([*wine, "winecfg", "-v", "win10"], env=env, cwd=ROOT, check=True)
    pytest = [*wine, "wine", python, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run([*pytest, *(arguments or WINDOWS_TESTS)], env=env, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    _, option, folder, *rest = sys.argv
    assert option == "--cache", __doc__
    if rest == ["--missing"]:
        print(missing(Path(folder)))
    else:
        sys.exit(main(Path(folder), rest))
