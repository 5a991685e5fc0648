"""Run pytest in several processes, with programs of others: `python tests/run_pytest.py [OPTIONS] ARGUMENTS-OF-PYTEST`

    --with ajv,codex    fetch the newest of these programs, and say where they are
    --every claude      once for each tested version of this agent, the oldest first
    --oldest codex      with the oldest one alone
    --per-core 2        how many workers for each core; there are never more than eight

A program of which there is no version for this system is left out. It ends with the first run that fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from foreign_programs import CACHE, PROGRAMS

OPTIONS = {
    "ajv": "--ajv",
    "acp-agent": "--acp-agent",
    "claude": "--claude-binary",
    "codex": "--codex-binary",
    "typescript-sdk": "--typescript-sdk",
}
MOST_WORKERS = 8  # more of them need more memory than they save time


def fetched(program: str, version: str) -> Path:
    """Return the path of a program of others, which is fetched once."""
    return PROGRAMS[program][0](CACHE.resolve(), version)


def main(arguments: list[str], fetch: Callable[[str, str], Path] = fetched, cores: int = os.cpu_count() or 1) -> list[list[str]]:
    """Return the arguments of each run of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--with", dest="programs", default="")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--every", choices=OPTIONS)
    which.add_argument("--oldest", choices=OPTIONS)
    # Two thirds of the time of a test are waiting.
    parser.add_argument("--per-core", type=int, default=3)
    chosen, of_pytest = parser.parse_known_args(arguments)

    def option(program: str, version: str) -> str:
        # With "=": pytest would take a path of its own for a file of tests, as long as it has not read the options of tests/conftest.py.
        return f"{OPTIONS[program]}={fetch(program, version)}"

    workers = min(MOST_WORKERS, chosen.per_core * cores)
    newest = [option(program, PROGRAMS[program][1][-1]) for program in filter(None, chosen.programs.split(",")) if PROGRAMS[program][1]]
    common = ["-n", str(workers), "--dist", "worksteal", *newest, *of_pytest]
    if (agent := chosen.every or chosen.oldest) is None:
        return [common]
    versions = PROGRAMS[agent][1]
    return [[*common, option(agent, version)] for version in (versions if chosen.every else versions[:1])]


if __name__ == "__main__":
    for run in main(sys.argv[1:]):
        if failed := subprocess.run([sys.executable, "-m", "pytest", *run], check=False).returncode:
            sys.exit(failed)
