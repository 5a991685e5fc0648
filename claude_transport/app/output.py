"""`Output`: stdout, written at once and without ever blocking the event loop on a reader that has stopped."""

from __future__ import annotations

import os
import select
import stat
from typing import TextIO

import anyio

from claude_transport.app.writing import told_as_output_failure

_CHUNK_BYTES: int = getattr(select, "PIPE_BUF", 512)
"""What fits into a pipe that is writable: PIPE_BUF, 4096 on Linux; 512 is what POSIX promises."""


class Output:
    """A text stream that is written to as it stands: nothing stays in a buffer, so that a reader sees each word when it is said.

    Writing to a pipe or socket waits for room first. A plain write would block the whole program, Ctrl-C included, while
    the reader (a pager, say) does not read. Raises `BrokenPipeError` when nobody reads any more, and what `output_failure()` makes of
    any other failure.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = _waitable_descriptor(stream)
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    async def write(self, text: str) -> None:
        """Write text; what the stream's encoding lacks becomes `?`."""
        await self.write_bytes(text.encode(self._encoding, "replace"))

    async def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        with told_as_output_failure():
            self._stream.flush()
            if self._descriptor is not None:
                await self._write_when_writable(self._descriptor, data)
                return
            buffer = getattr(self._stream, "buffer", None)
            if buffer is None:  # a stand-in without bytes beneath, such as StringIO
                self._stream.write(data.decode(self._encoding, "replace"))
            else:
                buffer.write(data)
            self._stream.flush()

    async def _write_when_writable(self, descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            await anyio.wait_writable(descriptor)
            rest = rest[os.write(descriptor, rest[:_CHUNK_BYTES]) :]


def _waitable_descriptor(stream: TextIO) -> int | None:
    """The descriptor to wait for; None where waiting is impossible (Windows, stand-ins) or needless (files, terminals)."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    return descriptor if os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) else None
