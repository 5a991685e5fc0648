"""Run sessions of nox at the same time: `python tests/run_sessions.py NAME…`. The Python that runs it has nox.

Most of their programs use one core. What each of them says comes at the end, and what failed comes last. A name may have arguments, as in
"release_check -- --rehearse". Sessions in the environment of `checks`, which must be there, come after `--installed`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

NOXFILE = Path(__file__).parent.parent / "noxfile.py"


def started(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a session, which writes what it says to `log`."""
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", "nox", "-f", NOXFILE, *words], stdout=file, stderr=subprocess.STDOUT)


def main(arguments: list[str]) -> int:
    """Return how many sessions failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--installed", nargs="*", default=[])
    chosen = parser.parse_args(arguments)
    commands = [["--no-install", "-s", name] for name in chosen.installed] + [["-s", *name.split()] for name in chosen.names]
    with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
        logs = [Path(folder, str(number)) for number in range(len(commands))]
        running = [started(command, log) for command, log in zip(commands, logs, strict=True)]
        codes = [process.wait() for process in running]
        for _, log in sorted(zip(codes, logs, strict=True), key=lambda each: each[0] != 0):
            sys.stdout.write(log.read_text("utf-8", "replace"))
    failed = [" ".join(command) for command, code in zip(commands, codes, strict=True) if code != 0]
    if failed:
        print(f"failed: nox {', nox '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
