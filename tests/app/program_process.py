"""The program as its users run it: a process of its own, in a home of its own, with nothing of the tests' environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from warm_program import WarmProgram

_READ_AT_THE_START = {"PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS", "PYTHONSTARTUP", "LC_ALL", "LC_CTYPE"}
"""Variables that the interpreter reads when it starts, and not later."""

PATIENCE = 60.0  # seconds; never reached unless something is broken


class Program:
    """Starts `python -m claude_transport`, with every warning an error. With `warm`, a run is a fork of a process that has its imports."""

    def __init__(self, home: Path, warm: Callable[[], WarmProgram] | None = None) -> None:
        self._warm = warm
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        package_root = os.environ.get("PYTHONPATH")
        if package_root:
            self.env["PYTHONPATH"] = package_root

    def argv(self, *arguments: str, without: Sequence[str] = ()) -> list[str]:
        """The command line; modules named in `without` cannot be imported, as if they were not installed."""
        if not without:
            return [sys.executable, "-W", "error", "-m", "claude_transport", *arguments]
        hide = f"import sys; sys.modules.update(dict.fromkeys({list(without)!r}))"
        return [sys.executable, "-W", "error", "-c", f"{hide}; from claude_transport.app.main import main; sys.exit(main())", *arguments]

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        without: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end, with pipes on every stream."""
        everything = {**self.env, **(env or {})}
        if self._warm is not None and not without and not _READ_AT_THE_START & everything.keys():
            return self._warm().run(arguments, stdin=stdin, env=everything, cwd=cwd, timeout=PATIENCE)
        return subprocess.run(
            self.argv(*arguments, without=without),
            input=stdin,
            capture_output=True,
            env=everything,
            cwd=cwd,
            timeout=PATIENCE,
            check=False,
        )

    @contextmanager
    def start(self, *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
        """Start it, with pipes on stdout and stderr unless told otherwise; a test that fails leaves it not running."""
        process = subprocess.Popen(self.argv(*arguments), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, bufsize=0, env=self.env)
        with process, killed_at_the_end(process):
            yield process


@contextmanager
def killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A block after which the process is not running, whatever has happened in it."""
    try:
        yield
    finally:
        process.kill()  # does nothing to a process that has been waited for
