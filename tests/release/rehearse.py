"""Rehearse a release from a clean clone of the last commit: `python tests/release/rehearse.py [--log FILE]`.

It runs the commands of the job `build` of `.github/workflows/release.yml`, as for a tag of this version, then those of `AFTERWARDS`. The
package goes to an index on loopback instead of the two real ones. The log has what each command said, and ends with a table and with the
digests of what would be published.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import yaml
from reproducible import digests

ROOT = Path(__file__).parents[2]
AFTERWARDS = (
    "python -m nox -s installing -- --dist dist",
    "python -m nox -s sdist_tests -- -n 2 tests/release tests/test_release.py tests/protocol/test_framing.py",
)
EXAMPLE = "https://example.org/owner/name"
MOST_SECONDS = 3600  # of one command
PASSED, NOT_RUN = "passed", "not run, after the failure"


class Step(NamedTuple):
    """One line of the table."""

    command: str
    seconds: float | None
    result: str

    def __str__(self) -> str:
        return f"| `{self.command}` | {'' if self.seconds is None else f'{self.seconds:.0f}'} | {self.result} |"


def commands(workflow: Mapping[str, Any]) -> list[str]:
    """Return what the workflow runs to build a release."""
    return [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]


def environment(of: Mapping[str, str], *, programs: Path, version: str) -> dict[str, str]:
    """Return the variables of the workflow, and those of this machine that say nothing of this checkout or an environment."""
    kept = {name: value for name, value in of.items() if not name.startswith(("NOX_", "PYTHON", "VIRTUAL_ENV", "COVERAGE", "GIT_"))}
    path = os.pathsep.join([str(programs), kept.get("PATH", os.defpath)])
    return {"CLAUDE_TRANSPORT_REPOSITORY": EXAMPLE, **kept, "PATH": path, "GITHUB_REF_NAME": f"v{version}"}


def run(command: str, *, clone: Path, env: Mapping[str, str], log: TextIO) -> Step:
    """Run a command as the workflow does, with what it says in the log."""
    print(f"\n$ {command}", file=log, flush=True)
    told = {"stdout": log, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    began = time.monotonic()
    try:
        ran = subprocess.run(["bash", "-e", "-c", command], cwd=clone, env=env, timeout=MOST_SECONDS, check=False, **told)
        said = PASSED if ran.returncode == 0 else f"exit code {ran.returncode}"
    except subprocess.TimeoutExpired:
        said = f"no end after {MOST_SECONDS} s"
    return Step(command, time.monotonic() - began, said)


def run_all(steps: Sequence[str], *, clone: Path, env: Mapping[str, str], log: TextIO) -> list[Step]:
    """Run commands until one fails. The others are in the table, too."""
    done: list[Step] = []
    for command in steps:
        if done and done[-1].result != PASSED:
            done.append(Step(command, None, NOT_RUN))
            continue
        print(f"{command} …", flush=True)
        done.append(run(command, clone=clone, env=env, log=log))
    return done


def rehearse(folder: Path, log: TextIO) -> list[Step]:
    """Clone the last commit, run everything there, and write the table and the digests into the log."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    clone, venv = folder / "clone", folder / "venv"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=clone, text=True).strip()
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    print(f"claude-transport {version}, commit {commit}", file=log, flush=True)
    steps = [*commands(yaml.safe_load((clone / ".github/workflows/release.yml").read_text("utf-8"))), *AFTERWARDS]
    done = run_all(steps, clone=clone, env=environment(os.environ, programs=venv / "bin", version=version), log=log)
    built = digests(clone / "dist") if (clone / "dist").is_dir() else {}
    table = ["| command | seconds | result |", "|---|---|---|", *map(str, done), "", *(f"{each}  {name}" for name, each in built.items())]
    for file in (log, sys.stdout):
        print("", *table, sep="\n", file=file)
    return done


def main(arguments: list[str]) -> int:
    """Return 1 when a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, default=ROOT / "rehearsal.log")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder, chosen.log.open("w", encoding="utf-8") as log:
        done = rehearse(Path(folder), log)
    print(f"\nwhat each command said: {chosen.log}")
    return int(any(step.result != PASSED for step in done))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
