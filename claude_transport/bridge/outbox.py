"""`Outbox`: the lines that wait to be written to a bridge, bounded in bytes, written in batches."""

from __future__ import annotations

from typing import Final

import anyio
from anyio.abc import ByteSendStream

__all__ = ["DEFAULT_MAX_WAITING_BYTES", "Outbox"]

DEFAULT_MAX_WAITING_BYTES: Final = 8 * 2**20
"""Bytes that wait for a bridge that does not read; after that, answers wait with their tools, and what needs no answer is dropped."""


class Outbox:
    """Lines for one bridge, in the order they came; one line may exceed the bound, since it has to go somewhere."""

    def __init__(self, *, max_waiting_bytes: int = DEFAULT_MAX_WAITING_BYTES) -> None:
        self._max_waiting_bytes = max_waiting_bytes
        self._lines: list[bytes] = []
        self._waiting_bytes = 0  # what is being written counts until it is written
        self._work = anyio.Event()
        self._room = anyio.Event()

    async def put(self, line: bytes) -> None:
        """Add a line; waits while there is no room."""
        while self._waiting_bytes >= self._max_waiting_bytes:
            await self._room.wait()
        self._add(line)

    def offer(self, line: bytes) -> bool:
        """Add a line if there is room for it, without waiting; False when there is none."""
        if self._waiting_bytes >= self._max_waiting_bytes:
            return False
        self._add(line)
        return True

    async def write_to(self, stream: ByteSendStream) -> None:
        """Write what comes, until cancelled, or until the stream breaks (what it raises)."""
        while True:
            while not self._lines:
                self._work = anyio.Event()
                await self._work.wait()
            batch, self._lines = b"".join(self._lines), []
            await stream.send(batch)
            self._waiting_bytes -= len(batch)
            self._room.set()
            self._room = anyio.Event()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._work.set()
