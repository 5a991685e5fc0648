"""Upload the package to an index on loopback, install it as users do, and ask it: `python tests/release/installing.py [--dist FOLDER]`.

With each supported Python of this machine and each of `COMMANDS`, the first command of the README runs in an empty folder, with an empty
home and few variables. Dependencies come from the index that the machine is configured for. The table has the seconds until the answer. It
names what could not run because a program is missing, and the script fails when something else is in it than an answer. `--quick` is pip
alone, with the Python that runs the script.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from local_index import LocalIndex, local_index
from reproducible import build

ROOT = Path(__file__).parents[2]
OF_A_CHECKOUT, OF_AN_INDEX = "'.[cli]'", "'claude-transport[cli]'"
ASKED = "Hello, Claude"
KEPT = re.compile(
    r"PIP_\w+|UV_(?:\w*INDEX\w*|FIND_LINKS|\w*TLS|\w*CERTS?)|\w+_proxy|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|LANG|LC_ALL|TMPDIR",
    re.IGNORECASE,
)
"""The variables that reach an installation: where packages come from, and how to get there."""
MOST_SECONDS = 600  # of one installation, on a slow network
WORKS = "it answers"


class Row(NamedTuple):
    """One line of the table."""

    tool: str
    python: str
    seconds: float | None
    result: str

    def __str__(self) -> str:
        return f"| {self.tool} | {self.python} | {'' if self.seconds is None else f'{self.seconds:.0f}'} | {self.result} |"


def first_command(readme: str) -> str:
    """Return the first command of the README, as a reader of an index has it. Raises `ValueError` when it is another one now."""
    found = re.search(r"^```bash\n([^\n]+)\n```$", readme, re.MULTILINE)
    if found is None or OF_A_CHECKOUT not in found[1] or f'"{ASKED}"' not in found[1]:
        raise ValueError("README.md: the first command does not install and ask")
    return found[1].replace(OF_A_CHECKOUT, OF_AN_INDEX)


def commands(readme: str) -> dict[str, str]:
    """Return a line of shell for each way to install. `$PYTHON` is the interpreter, and `python3` is a function that runs it."""
    installed = first_command(readme)
    asked = installed.rpartition(" && ")[2].removeprefix(".venv/bin/")
    return {
        "pip": installed,
        "uv": f'uv venv -q --python "$PYTHON" .venv && uv pip install -q {OF_AN_INDEX} && .venv/bin/{asked}',
        "pipx": f'pipx install -q --python "$PYTHON" {OF_AN_INDEX} && {asked}',
        "uv tool": f'uv tool install -q --python "$PYTHON" {OF_AN_INDEX} && {asked}',
    }


def clean_environment(of: Mapping[str, str], *, home: Path, tool: Path | None, index: str, python: str) -> dict[str, str]:
    """Return the variables of an installation: those of `KEPT`, an empty home, one tool, and the index besides the configured one."""
    kept = {name: value for name, value in of.items() if KEPT.fullmatch(name)}
    path = [str(home / ".local/bin"), *([str(tool)] if tool else []), os.defpath]
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
        "PYTHON": python,
        "PIP_EXTRA_INDEX_URL": f"{kept.get('PIP_EXTRA_INDEX_URL', '')} {index}".strip(),
        "UV_INDEX": f"{index} {kept.get('UV_INDEX', '')}".strip(),  # uv takes a package from the first index that has it
        "NO_PROXY": ",".join(filter(None, [kept.get("NO_PROXY"), "127.0.0.1"])),
    }


def candidates(version: str, path: str, home: Path) -> Iterator[Path]:
    """Yield where an interpreter may be: on the path, and where managers of Pythons keep theirs."""
    folders = [Path(each) for each in path.split(os.pathsep) if each]
    for kept in (".pyenv/versions", ".local/share/uv/python"):
        folders += sorted(home.glob(f"{kept}/*{version}*/bin"))
    yield from (folder / f"python{version}" for folder in folders if (folder / f"python{version}").is_file())


def interpreter(version: str) -> Path | None:
    """Return an interpreter that can make environments, outside of any environment, or None when the machine has none."""
    for path in candidates(version, os.environ.get("PATH", ""), Path.home()):
        asked = [str(path.resolve()), "-I", "-c", "import ensurepip, sys; print(*sys.version_info[:2], sep='.')"]
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        if ran.returncode == 0 and ran.stdout.strip() == version:
            return path.resolve()
    return None


def run_one(tool: str, command: str, python: Path, index: LocalIndex) -> Row:
    """Install with one tool and one Python, ask, and tell how it went."""
    version = subprocess.check_output([python, "-I", "-c", "import platform; print(platform.python_version())"], text=True).strip()
    program = tool.partition(" ")[0]
    found = None if program == "pip" else shutil.which(program)
    if program != "pip" and found is None:
        return Row(tool, version, None, f"not run: {program} is not installed")
    with tempfile.TemporaryDirectory(prefix="installing-") as folder:
        home, work, tools = (Path(folder, name) for name in ("home", "work", "tools"))
        for each in (home, work, tools):
            each.mkdir()
        if found:
            (tools / program).symlink_to(found)
        env = clean_environment(os.environ, home=home, tool=tools, index=index.simple, python=str(python))
        index.downloads.clear()
        began = time.monotonic()
        line = f'python3() {{ "$PYTHON" "$@"; }}; {command}'
        try:
            ran = subprocess.run(["sh", "-c", line], cwd=work, env=env, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return Row(tool, version, MOST_SECONDS, "no answer in this time")
        return Row(tool, version, time.monotonic() - began, result(ran, index.downloads))


def result(ran: subprocess.CompletedProcess[str], downloads: list[str]) -> str:
    """Return `WORKS`, or what went wrong."""
    if ran.returncode:
        return f"exit code {ran.returncode}: {(ran.stderr.strip().splitlines() or [''])[-1]}"
    if ASKED not in ran.stdout:
        return f"another answer: {ran.stdout.strip()!r}"
    return WORKS if any(name.endswith(".whl") for name in downloads) else "the wheel came from elsewhere"


def rows(tools: Mapping[str, str], pythons: Iterable[str], index: LocalIndex) -> Iterator[Row]:
    """Yield the table. A Python that the machine does not have is a row, too."""
    for version in pythons:
        if (found := interpreter(version)) is None:
            yield Row("all", version, None, "not run: there is no such interpreter")
            continue
        for tool, command in tools.items():
            yield run_one(tool, command, found, index)


def upload(dist: Path, to: str) -> None:
    """Upload sdist and wheel, as the release does."""
    files = [str(path) for pattern in ("*.whl", "*.tar.gz") for path in dist.glob(pattern)]
    account = ["--username", "nobody", "--password", "none", "--non-interactive", "--disable-progress-bar"]
    command = [sys.executable, "-m", "twine", "upload", *account, "--repository-url", to, *files]
    print("$ twine upload", shlex.join(Path(each).name for each in files), flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Print the table, and return 1 when an installation failed or none could be tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, help="the folder of one sdist and one wheel; without it, they are built")
    parser.add_argument("--quick", action="store_true", help="pip alone, on the version of Python that runs this")
    chosen = parser.parse_args(arguments)
    tools = commands((ROOT / "README.md").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pythons = [name for each in project["classifiers"] if re.fullmatch(r"3\.\d+", name := each.split(" :: ")[-1])]
    if chosen.quick:
        tools, pythons = {"pip": tools["pip"]}, ["{}.{}".format(*sys.version_info)]
    with tempfile.TemporaryDirectory(prefix="index-") as folder, local_index() as index:
        if (dist := chosen.dist) is None:
            build(ROOT, dist := Path(folder, "dist"))
        upload(dist, index.address)
        print("", "| how | Python | seconds | result |", "|---|---|---|---|", sep="\n", flush=True)
        told = []
        for row in rows(tools, pythons, index):
            told.append(row)
            print(row, flush=True)
    ran = [row for row in told if row.seconds is not None]
    return int(not ran or any(row.result != WORKS for row in ran))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
