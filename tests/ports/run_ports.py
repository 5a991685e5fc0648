"""Run the tests of packages of the index over our ports of their plumbing, and our rewritten cases of their test suites:
`python tests/ports/run_ports.py FOLDER [NAME…]`.

Each package is fetched by its hash and unpacked into FOLDER, never into the project. For a port, our files take the place of theirs. Then
their tests run, without those that assert on the process itself, and `main_path.py` of the port runs with the real `claude` on a loopback
Messages API. For a test suite, our `cases.py` runs over their code as it is, with a fake `claude`. The counts must be those on the page.
"""

from __future__ import annotations

import ast
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
SUITES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "suites.toml").read_text("utf-8"))
PAGE = HERE.parent.parent / "docs" / "reference" / "ports.md"
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)")


def main(folder: Path, names: list[str]) -> int:
    """Run the ports and the test suites with these names, or all, after what they need is installed. Return the exit code."""
    needed = {need for packages in (PORTS, SUITES) for package in packages.values() for need in package["needs"]}
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *sorted(needed)], check=True)
    rows = [
        run_port(name, PORTS[name], folder / name) if name in PORTS else run_suite(name, SUITES[name], folder / name)
        for name in names or [*PORTS, *SUITES]
    ]
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
        before += _lines(root / theirs) if (root / theirs).exists() else 0
        after += _lines(HERE / ours)
        shutil.copyfile(HERE / ours, root / theirs)
    for theirs, line in port.get("append", {}).items():
        with (root / theirs).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{line}\n")
    our_folder = HERE / next(iter(port["files"])).partition("/")[0]
    world = {**_world(folder, root / port["path"], HERE, our_folder), "PORT": name}
    counts = _run_tests(root, ["not_applicable", *port.get("plugins", [])], port["options"], port.get("tests", ["tests"]), world)
    main_path = _python([str(our_folder / "main_path.py")], cwd=folder, env=world)
    if main_path.returncode:
        print(main_path.stdout, main_path.stderr)
    works = "works" if main_path.returncode == 0 else "FAILS"
    numbers = [counts.get(word, 0) for word in ("passed", "failed", "skipped")]
    return f"| {name} {port['version']} | {before} | {after} | {numbers[0]} | {numbers[1]} | {numbers[2]} | {works} |"


def run_suite(name: str, suite: dict[str, Any], folder: Path) -> str:
    """Fetch one package, and run our cases over its code. Return its row of the page.

    Every test must pass: a skipped one, or an error around a test, counts as failed.
    """
    root = fetch(name, suite, folder)
    source = root / suite["path"]
    described = source / f"{name.replace('-', '_')}-{suite['version']}.dist-info"  # the package may ask for its own version
    described.mkdir()
    shutil.copyfile(root / "PKG-INFO", described / "METADATA")
    before = sum(lines_of(root / path, name) for path, names in suite["replaces"].items() for name in names)
    cases = HERE / suite["cases"]
    shutil.copyfile(cases, root / "test_cases.py")
    counts = _run_tests(root, [], suite["options"], ["test_cases.py"], _world(folder, source))
    failed = sum(counts.get(word, 0) for word in ("failed", "error", "skipped"))
    return f"| {name} {suite['version']} | {before} | {_lines(cases)} | {counts.get('passed', 0)} | {failed} |"


def lines_of(path: Path, name: str) -> int:
    """Return how many lines a class or function of a file has, with its decorators; a test of a class is `TestIt::test_it`.

    Raises `LookupError` when the file has no such name.
    """
    node: Any = ast.parse(path.read_text("utf-8"))
    for word in name.split("::"):
        found = [child for child in node.body if getattr(child, "name", None) == word]
        if not found:
            raise LookupError(f"{path} has no class and no function {name}")
        node = found[0]
    end: int = node.end_lineno
    return end - min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) + 1


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _world(folder: Path, *paths: Path) -> dict[str, str]:
    """Return the environment of a run: a home of its own, and modules from `paths`."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return {**kept, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(str(path) for path in paths)}


def _run_tests(root: Path, plugins: list[str], options: list[str], tests: list[str], world: dict[str, str]) -> dict[str, int]:
    """Run pytest in the folder of a package, and return its counts. What it says is printed when it fails."""
    loaded = [word for plugin in ("no:cacheprovider", *plugins) for word in ("-p", plugin)]
    settings = ["-o", "addopts=", "-o", "filterwarnings=", *options]
    done = _python(["-m", "pytest", "-q", *loaded, *settings, *tests], cwd=root, env=world)
    if done.returncode:
        print(done.stdout, done.stderr)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    return {word.rstrip("s"): int(count) for count, word in _COUNT.findall(last)}


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
