"""What one run did, one JSON line per event, so that a test can look it up afterwards."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE_BYTES = 1 << 20  # of an input line; a 200 MB prompt must not be written to disk a second time


class Journal:
    """The file of this run: `journal/0001.ndjson` for the first, and so on; `number` says which run it is, from 1."""

    def __init__(self, directory: str) -> None:
        folder = f"{directory}/journal"
        self.number: int = len(os.listdir(folder)) + 1  # noqa: PTH208 - pathlib costs 5 ms
        while True:
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
                self._fd = os.open(f"{folder}/{self.number:04d}.ndjson", flags, 0o600)
                return
            except FileExistsError:  # another run took it in this moment
                self.number += 1

    def record(self, event: str, **fields: Any) -> None:
        # one write per line: a reader never sees a half line of a living process
        os.write(self._fd, (json.dumps({"event": event, **fields}) + "\n").encode())

    def record_input(self, line: bytes) -> None:
        self.record("stdin", size=len(line), line=line[:LINE_BYTES].decode("utf-8", "backslashreplace"))
