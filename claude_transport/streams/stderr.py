"""The last words of a child process: always read, bounded in memory, handed on line by line to whoever asked."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

__all__ = ["StderrTail"]

logger: logging.Logger = logging.getLogger(__name__)

_TAIL_BYTES = 64 * 2**10
"""Bytes kept for error reports: a minified stack excerpt of the CLI is about 1 KB, a Python traceback a few."""

_CRUMB_BYTES = 1024
"""A piece is joined to the one before while both are no more than this together: small objects cost many times their size."""

_MAX_LINE_BYTES = 16 * 2**10
"""A line longer than this is handed on in pieces, so that a program that never writes a newline costs no memory."""


class StderrTail:
    """Keeps the end of what was fed, and calls `on_line` with each line (without its newline, undecodable bytes replaced).

    A callback that raises is logged once and not called again for that reason alone: later lines are still delivered.
    """

    def __init__(self, on_line: Callable[[str], object] | None = None) -> None:
        self._on_line = on_line
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._line = b""
        self._complained = False

    @property
    def text(self) -> str:
        """The last 64 KiB, decoded as UTF-8 with replacement, without trailing white space."""
        return b"".join(self._pieces)[-_TAIL_BYTES:].decode("utf-8", "replace").rstrip()

    def feed(self, data: bytes) -> None:
        """Take what was read from the pipe."""
        if self._pieces and len(self._pieces[-1]) + len(data) <= _CRUMB_BYTES:
            self._pieces[-1] += data
        else:
            self._pieces.append(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= _TAIL_BYTES:
            self._size -= len(self._pieces.popleft())
        if self._on_line is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._call(line)
            while len(self._line) > _MAX_LINE_BYTES:
                self._call(self._line[:_MAX_LINE_BYTES])
                self._line = self._line[_MAX_LINE_BYTES:]

    def finish(self) -> None:
        """Hand on a last line that had no newline."""
        if self._line:
            self._call(self._line)
            self._line = b""

    def _call(self, line: bytes) -> None:
        if self._on_line is None:
            return
        try:
            self._on_line(line.rstrip(b"\r").decode("utf-8", "replace"))
        except Exception:
            # the callback is somebody else's code; losing the child's stderr to it would be worse than its bug
            if not self._complained:
                self._complained = True
                logger.exception("the stderr callback raised; further errors of it are not logged")
