"""Build the package again, elsewhere and at another time, and compare it byte for byte: `python tests/release/reproducible.py dist`.

The folder holds one sdist and one wheel of this checkout. The second build is one of a copy, whose files have another time of change and
other rights. The wheel must also be the one that the sdist makes, and hold nothing but the package.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".nox", ".venv*", ".*_cache", ".hypothesis", "_build", "__pycache__", "dist", "sbom")
WANTED = re.compile(
    r"claude_transport/(?:[\w/]+\.pyi?|py\.typed|inspection/assets/page\.(?:css|html|js)|wire/schemas/[\d.]+/(?:in|out)\.json)"
)
"""The files that a wheel may hold."""
AT = 1_000_000_000  # the time of change of all files of the copy


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def build(source: Path, to: Path) -> None:
    """Build an sdist, and the wheel from it, with another mask of rights."""
    code = "import os, sys; os.umask(0o077); from build.__main__ import main; main(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, "--no-isolation", "--outdir", str(to), str(source)], check=True, stdout=subprocess.DEVNULL)


def contents(wheel: Path) -> set[str]:
    """Return the names of the files of a wheel, without those that describe it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files_of_package(sdist: Path) -> set[str]:
    """Return what a wheel of this sdist holds: the modules, their stubs, and the files beside them."""
    with tarfile.open(sdist) as archive:
        names = (member.name.partition("/")[2] for member in archive.getmembers() if member.isfile())
        return {name for name in names if name.startswith("claude_transport/")}


def differences(first: Path, second: Path) -> list[str]:
    """Return a line for each file that two folders do not have alike, and one if the wheel is not what the sdist has of the package."""
    one, other = digests(first), digests(second)
    found = [
        f"{name}: {one.get(name)} and {other.get(name)}" for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)
    ]
    (wheel,), (sdist,) = first.glob("*.whl"), first.glob("*.tar.gz")
    found += [f"{name} is in only one of the wheel and the sdist" for name in sorted(contents(wheel) ^ files_of_package(sdist))]
    return [*found, *unwanted(contents(wheel)), *unaddressed(wheel)]


def unaddressed(wheel: Path) -> list[str]:
    """Return a line when the page of an index would have no links to the repository."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        has_links = b"\nProject-URL: " in archive.read(name)
    return [] if has_links else ["there are no project URLs: set CLAUDE_TRANSPORT_REPOSITORY to the address of the repository"]


def unwanted(names: Iterable[str]) -> list[str]:
    """Return a line for each file that no wheel should hold."""
    return [f"{name} is no file of the package" for name in sorted(names) if WANTED.fullmatch(name) is None]


def main(folder: str) -> int:
    """Compare, print the differences, and return 1 when there are some."""
    with tempfile.TemporaryDirectory() as place:
        copy, built = Path(place, "elsewhere"), Path(place, "dist")
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        for path in copy.rglob("*"):
            path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
            os.utime(path, (AT, AT))
        build(copy, built)
        found = differences(Path(folder), built)
    print(*(found or ["sdist and wheel are the same, byte for byte"]), sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
