"""What a gateway answers to plain HTTP: whether it is well, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

__all__ = ["Health", "Page"]

_TEXT: Final = {"content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-store"}
_JSON: Final = {"content-type": "application/json", "cache-control": "no-store"}


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of HTTP."""

    status: int
    text: str
    headers: Mapping[str, str]


class Health:
    """Answers `/healthz` to everybody (200, or 503 while draining: nothing else is said) and `/metrics` to who has a token.

    `draining` and `metrics` are asked when somebody asks; `admits` says whether a token opens the door.
    """

    def __init__(self, *, draining: Callable[[], bool], metrics: Callable[[], str], admits: Callable[[str | None], bool]) -> None:
        self._draining = draining
        self._metrics = metrics
        self._admits = admits

    def answer(self, target: str, *, token: str | None) -> Page | None:
        """The page at `target`, a path that may have a query; None when there is none: 404, or the WebSocket itself."""
        path = target.partition("?")[0]
        if path == "/healthz":
            draining = self._draining()
            status = "draining" if draining else "ok"
            return Page(status=503 if draining else 200, text=f'{{"status":"{status}"}}\n', headers=_JSON)
        if path == "/metrics":
            if not self._admits(token):
                return Page(status=401, text="A token is needed.\n", headers={"www-authenticate": "Bearer", **_TEXT})
            return Page(status=200, text=self._metrics(), headers=_TEXT)
        return None
