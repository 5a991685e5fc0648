"""What a gateway answers to plain HTTP: whether it is well, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from claude_transport.gateway.hosts import Hosts
from claude_transport.gateway.turned_away import TurnedAway

__all__ = ["Health", "Page"]

_TEXT: Final = {"content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-store"}
_JSON: Final = {"content-type": "application/json", "cache-control": "no-store"}


_PAGES: Final = frozenset({"/healthz", "/metrics"})


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of HTTP."""

    status: int
    text: str
    headers: Mapping[str, str]


class Health:
    """Answers `/healthz` to everybody (200, or 503 while draining: nothing else is said) and `/metrics` to who has a token.

    Both only under a host name of the gateway's, which `hosts` knows (421). `draining` and `metrics` are called for each page; `admits`
    says whether a token opens the door; `on_refusal` is told of a refused host name.
    """

    def __init__(
        self,
        *,
        draining: Callable[[], bool],
        metrics: Callable[[], str],
        admits: Callable[[str | None], bool],
        hosts: Hosts,
        on_refusal: Callable[[TurnedAway], object],
    ) -> None:
        self._hosts = hosts
        self._on_refusal = on_refusal
        self._draining = draining
        self._metrics = metrics
        self._admits = admits

    def answer(self, target: str, *, token: str | None, host: str | None = None, here: str | None = None) -> Page | None:
        """The page at `target`, a path that may have a query; None when there is none: 404, or the WebSocket itself.

        `host` is the header `Host` of the request, None when it had none; `here` the address of this machine that it was sent to.
        """
        path = target.partition("?")[0]
        if path not in _PAGES:
            return None
        if not self._hosts.admits(host, here=here):
            refused = TurnedAway("host", f"this gateway is not asked for pages under the host name {host}; the setting hosts allows it")
            self._on_refusal(refused)
            return Page(status=refused.status, text=f"{refused}\n", headers=_TEXT)
        if path == "/healthz":
            draining = self._draining()
            status = "draining" if draining else "ok"
            return Page(status=503 if draining else 200, text=f'{{"status":"{status}"}}\n', headers=_JSON)
        if not self._admits(token):
            return Page(status=401, text="A token is needed.\n", headers={"www-authenticate": "Bearer", **_TEXT})
        return Page(status=200, text=self._metrics(), headers=_TEXT)
