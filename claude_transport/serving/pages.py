"""The pages `/healthz` and `/metrics`: `Hosts` are the host names under which they are answered, `Pages` has the answers.

A gateway reads the requests on its own listeners or in another server, and `page_server.py` on a listener for pages alone.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.prometheus import CONTENT_TYPE
from claude_transport.serving.turned_away import ALLOW, TurnedAway


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP answer: status, body and headers. By default a text in the Prometheus format, which is not cached."""

    status: int
    text: str
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: {"content-type": CONTENT_TYPE, "cache-control": "no-store"})


_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?")
_PORT = re.compile(r":\d{1,5}")


class Hosts:
    """The host names and addresses under which plain HTTP is answered: loopback, `bound` and `names`.

    A web page can point a DNS name of its own at this machine. Without this check its script could read the pages.

    Args:
        names: more host names or addresses, each without scheme, port and path.
        bound: the hosts that the program listens at.

    Raises:
        ConfigurationError: an entry of `names` is not a host name or an address.
    """

    def __init__(self, names: Collection[str] = (), *, bound: Iterable[str] = ()) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ConfigurationError("hosts is not a collection of host names: give a list such as ['gateway.example.org']", option="hosts")
        for name in names:
            if _address_of(name) is None and not _NAME.fullmatch(name.lower()):
                raise ConfigurationError(
                    f"hosts: {name!r} is not a host name or an address: give it without scheme, port and path", option="hosts"
                )
        self._names = {"localhost", *map(_normal, names), *map(_normal, bound)}
        # a wildcard address is not a name of this machine, and browsers send it to loopback
        self._names -= {_normal(every) for every in ("0.0.0.0", "::", "")}  # noqa: S104 - nothing is bound here

    def admits(self, host: str | None, *, here: str | None = None) -> bool:
        """Return True when a request with this `Host` header may be answered.

        `here` is the local address that received the request; it is always allowed. None (the header is absent) is allowed too: every
        browser sends the header, and some HTTP/1.0 health checks do not.
        """
        if host is None:
            return True
        name = _normal(_without_port(host.strip()))
        address = _address_of(name)
        if address is not None and (address.is_loopback or address == _address_of(str(here))):
            return not address.is_unspecified
        return name in self._names

    def check(self, host: str | None, *, here: str | None = None) -> None:
        """Raise `TurnedAway` for a request that `admits()` does not admit."""
        if not self.admits(host, here=here):
            raise TurnedAway("host", f"no page is answered under the host name {host}: add it to hosts (--host-name)")


def answer_to_options(method: str) -> Page | None:
    """Return the answer to `OPTIONS`, and None for `GET` and `HEAD`. Raises `TurnedAway` for every other method: pages are only read."""
    if method in {"GET", "HEAD"}:
        return None
    if method != "OPTIONS":
        raise TurnedAway("method", f"{method} is not answered here: use one of {ALLOW['allow']}")
    return Page(status=200, text="", headers=ALLOW)


class Pages:
    """Answers plain HTTP requests for `/healthz` and `/metrics`.

    `/healthz` needs no token: 200, or 503 when the program is not ready. `/metrics` may need one (else 401). Both need a host name of
    `hosts` (else 421), and one of the methods `GET`, `HEAD` and `OPTIONS` (else 405).

    Args:
        hosts: the host names under which the pages are answered.
        state: called for `/healthz`. It returns `ok`, or the word that says why the program is not ready.
        text: called for `/metrics`. It returns the text in the Prometheus format.
        admit: called with the token of a request for `/metrics`. It raises `TurnedAway` when the token may not see the page.
        on_refused: called with each refusal of a host name or a method.
    """

    def __init__(
        self,
        *,
        hosts: Hosts,
        state: Callable[[], str],
        text: Callable[[], str],
        admit: Callable[[str | None], object] = bool,
        on_refused: Callable[[TurnedAway], object] = bool,
    ) -> None:
        self._hosts = hosts
        self._state = state
        self._text = text
        self._admit = admit
        self._on_refused = on_refused

    def answer(
        self, target: str, *, token: str | None, host: str | None = None, here: str | None = None, method: str = "GET"
    ) -> Page | None:
        """Return the answer to a request, or None when its path is of no page. The answer to `HEAD` is that to `GET`: leave its text out.

        Args:
            target: the path of the request; a query is ignored.
            token: the bearer token of the request.
            host: the `Host` header of the request.
            here: the local address that received the request.
            method: the method of the request.
        """
        path = target.partition("?")[0]
        if path not in {"/healthz", "/metrics"}:
            return None
        try:
            self._hosts.check(host, here=here)
            options = answer_to_options(method)
        except TurnedAway as exc:
            self._on_refused(exc)
            return _refusal(exc, f"{exc}\n")
        if options is not None:
            return options
        if path == "/healthz":
            word = self._state()
            headers = {"content-type": "application/json", "cache-control": "no-store"}
            return Page(status=200 if word == "ok" else 503, text=f'{{"status":"{word}"}}\n', headers=headers)
        try:
            self._admit(token)
        except TurnedAway as exc:
            return _refusal(exc, "A token is needed.\n")
        return Page(status=200, text=self._text())


def _refusal(refused: TurnedAway, text: str) -> Page:
    page = Page(status=refused.status, text=text)
    return msgspec.structs.replace(page, headers={**refused.headers, **page.headers})


def _without_port(host: str) -> str:
    if host.startswith("["):
        inside, bracket, rest = host[1:].partition("]")
        return inside if bracket and (not rest or _PORT.fullmatch(rest)) else host
    name, colon, port = host.rpartition(":")
    return name if _PORT.fullmatch(colon + port) and ":" not in name else host


def _normal(name: str) -> str:
    """Write a host name or an address in the one form that is compared."""
    address = _address_of(name)
    return name.lower().removesuffix(".") if address is None else str(address)


def _address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
