"""Run the tests of packages of the index over our ports of their plumbing: `python tests/ports/run_ports.py FOLDER [NAME…]`.

Each package is fetched by its hash and unpacked into FOLDER, never into the project. Our files take the place of theirs. Then their tests
run, without those that assert on the process itself, and `main_path.py` of the port runs with the real `claude` on a loopback Messages API.
The counts must be those on the page.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PORTS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "ports.toml").read_text("utf-8"))
PAGE = HERE.parent.parent / "docs" / "reference" / "ports.md"
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)")


def main(folder: Path, names: list[str]) -> int:
    """Run the ports with these names, or all. Return the exit code."""
    rows = [run_port(name, PORTS[name], folder / name) for name in names or PORTS]
    print("\n".join(rows))
    page = PAGE.read_text("utf-8")
    missing = [row for row in rows if row not in page]
    if missing:
        print(f"\n{PAGE.name} says something else. Put these rows there, or mend what has changed:", *missing, sep="\n")
    return 1 if missing else 0


def run_port(name: str, port: dict[str, Any], folder: Path) -> str:
    """Fetch, port and test one package. Return its row of the page."""
    root = fetch(name, port, folder)
    before, after = port.get("replaces", 0), 0
    for ours, theirs in port["files"].items():
        before += len((root / theirs).read_text("utf-8").splitlines()) if (root / theirs).exists() else 0
        after += len((HERE / ours).read_text("utf-8").splitlines())
        shutil.copyfile(HERE / ours, root / theirs)
    for theirs, line in port.get("append", {}).items():
        with (root / theirs).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{line}\n")
    our_folder = HERE / next(iter(port["files"])).partition("/")[0]
    world = {
        **{key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ},
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(str(path) for path in (root / port["path"], HERE, our_folder)),
        "PORT": name,
    }
    plugins = [word for plugin in ("not_applicable", "no:cacheprovider", *port.get("plugins", [])) for word in ("-p", plugin)]
    settings = ["-o", "addopts=", "-o", "filterwarnings=", *port["options"]]
    done = _python(["-m", "pytest", "-q", *plugins, *settings, *port.get("tests", ["tests"])], cwd=root, env=world)
    counts = {word.rstrip("s"): int(count) for count, word in _COUNT.findall(done.stdout.strip().splitlines()[-1])}
    if done.returncode:
        print(done.stdout, done.stderr)
    main_path = _python([str(our_folder / "main_path.py")], cwd=folder, env=world)
    if main_path.returncode:
        print(main_path.stdout, main_path.stderr)
    works = "works" if main_path.returncode == 0 else "FAILS"
    numbers = [counts.get(word, 0) for word in ("passed", "failed", "skipped")]
    return f"| {name} {port['version']} | {before} | {after} | {numbers[0]} | {numbers[1]} | {numbers[2]} | {works} |"


def _python(arguments: list[str], *, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=600)


def fetch(name: str, port: dict[str, Any], folder: Path) -> Path:
    """Return the folder with the unpacked source distribution. One that an earlier run fetched is not fetched again."""
    archives = folder.parent / "archives" / name
    kept = [path for path in archives.glob("*.tar.gz") if hashlib.sha256(path.read_bytes()).hexdigest() == port["sha256"]]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not kept:
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{name}=={port['version']} --hash=sha256:{port['sha256']}\n", "utf-8")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", str(wanted)]
        subprocess.run([*pip, "-d", str(archives)], check=True, timeout=600)
        kept = [*archives.glob("*.tar.gz")]
    with tarfile.open(kept[0]) as packed:
        packed.extractall(folder, filter="data")
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    return root


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
