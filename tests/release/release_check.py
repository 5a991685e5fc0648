"""Build the package twice, check it, upload it to an index on loopback, and install it:

    python tests/release/release_check.py [--tag v0.1.0] [--rehearse]

Sdist and wheel are in `dist` afterwards. `--tag` also compares the version. `--rehearse` makes up an address of the repository, and leaves
nothing there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
EXAMPLE = "https://example.org/owner/name"


def check(dist: Path) -> None:
    """Do all of it; raise `CalledProcessError` when a program is not content."""
    shutil.rmtree(dist, ignore_errors=True)
    run("-m", "build", "--outdir", str(dist))  # the wheel is built from the sdist, so the sdist is whole
    run("-m", "twine", "check", "--strict", *sorted(map(str, dist.iterdir())))
    run("tests/release/reproducible.py", str(dist))
    run("-m", "towncrier", "build", "--draft", "--version", VERSION, stdout=subprocess.DEVNULL)
    run("tests/release/installing.py", "--quick", "--dist", str(dist))


def run(*arguments: str, stdout: int | None = None) -> None:
    """Run a module or a script of this environment."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=stdout, check=True)


def main(arguments: list[str]) -> str | int:
    """Return 0, or what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", default=f"v{VERSION}")
    parser.add_argument("--rehearse", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.tag != f"v{VERSION}":
        return f"pyproject.toml has version {VERSION}, which is not the tag {chosen.tag}"
    try:
        if not chosen.rehearse:
            check(ROOT / "dist")
            return 0
        os.environ["CLAUDE_TRANSPORT_REPOSITORY"] = EXAMPLE
        with tempfile.TemporaryDirectory(prefix="rehearsed-") as folder:
            check(Path(folder, "dist"))
    except subprocess.CalledProcessError as failed:
        return f"{' '.join(map(str, failed.cmd))} failed with exit code {failed.returncode}"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
