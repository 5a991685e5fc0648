"""Show the notes of the next release: `python tests/release/release_notes.py [VERSION] [--write]`.

Without a version, they are those of the one of pyproject.toml. `--write` moves the fragments into CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", default=VERSION)
    parser.add_argument("--write", dest="how", action="store_const", const="--yes", default="--draft")
    chosen = parser.parse_args()
    command = [sys.executable, "-m", "towncrier", "build", chosen.how, "--version", chosen.version]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
