"""`acme://FOLDER`: a session store with a file for each session."""

from __future__ import annotations

from claude_transport.sessions import FileSessionStore


class AcmeStore(FileSessionStore):
    def __init__(self, place: str) -> None:
        super().__init__(place.removeprefix("acme://"))
