"""A session store of one's own, and the test that it keeps the promises of a store."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from claude_transport.testing import run_store_conformance


class TextStore:
    """Keeps each transcript as lines of text. A real one would keep them in a database."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Add entries; one whose uuid is there already is left out."""
        transcript = self.lines[tuple(sorted(key.items()))]
        for entry in entries:
            transcript.setdefault(entry.get("uuid") or f"number {len(transcript)}", json.dumps(entry))

    async def load(self, key: Any) -> list[Any] | None:
        """Return all entries of a transcript; None for one that was never written."""
        transcript = self.lines.get(tuple(sorted(key.items())))
        return [json.loads(line) for line in transcript.values()] if transcript else None


def main() -> None:
    report = run_store_conformance(TextStore, backends=["asyncio"])
    print(len(report.passed), "promises kept,", len(report.failed), "broken")
    print("left out:", sorted({method for row in report.excluded for method in row.detail.split(" leaves out ")[1].split(", ")}))


if __name__ == "__main__":
    main()
