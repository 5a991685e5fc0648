"""Unpack the sdist in an empty folder without git, and run `nox -s tests` there: `python tests/release/sdist_tests.py NOX ARGUMENTS…`.

NOX is the Python that has nox; the one that runs this has `build`. The arguments are for pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(nox: str, arguments: list[str]) -> int:
    """Return the exit code of the session."""
    with tempfile.TemporaryDirectory(prefix="sdist-") as folder:
        subprocess.run([sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT], check=True)
        (packed,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        unpacked = Path(folder, packed.name.removesuffix(".tar.gz"), "noxfile.py")
        command = [nox, "-m", "nox", "-f", unpacked, "-s", "tests", "--", *arguments]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": ""}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
