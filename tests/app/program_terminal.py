"""The program on a terminal, which here is a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence

from program_process import PATIENCE, Program, killed_at_the_end

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal, of 80 columns unless told otherwise, with a program on it."""

    def __init__(self, *, columns: int = 80) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.screen = b""

    @contextlib.contextmanager
    def start(
        self,
        program: Program,
        *arguments: str,
        argv: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The program, with the terminal as all of its streams, or all but stdout."""
        process = subprocess.Popen(
            argv or program.argv(*arguments),
            stdin=self.slave,
            stdout=self.slave if stdout is None else stdout,
            stderr=self.slave,
            env={**program.env, **(env or {})},
            start_new_session=True,
        )
        os.close(self.slave)
        with process, killed_at_the_end(process):
            yield process

    def read_until(self, wanted: bytes) -> None:
        """Read on until `wanted` has been written, or the program is gone."""
        with contextlib.suppress(OSError):  # EIO: the last user of the terminal has gone
            while wanted not in self.screen:
                assert select.select([self.master], [], [], PATIENCE)[0], f"nothing came after {self.screen[-200:]!r}"
                chunk = os.read(self.master, 65536)
                if not chunk:
                    return
                self.screen += chunk

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        self.read_until(b"nothing that is ever written")
        return process.wait(PATIENCE)

    @property
    def text(self) -> str:
        """Everything that was written, without escape sequences."""
        return ESCAPE.sub("", self.screen.decode()).replace("\r\n", "\n")
