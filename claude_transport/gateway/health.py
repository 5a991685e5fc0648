"""What a gateway answers to plain HTTP: whether it is well, and its numbers."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.turned_away import TurnedAway

# --- `GatewayMetrics`: what a gateway has done, in plain numbers, and as a page for Prometheus.


_PREFIX = "claude_transport_gateway_"


class GatewayMetrics:
    """Counters that only grow, and gauges of this moment. To be read at any time; written by the gateway alone.

    `connections` by medium, `refused` by code, `ended` sessions by reason; `lines` and `bytes` by direction: `in` is what clients sent.
    """

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()  # by mode
        self.ended: Counter[str] = Counter()
        self.resumed = 0
        self.lines: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.active_sessions = 0
        self.detached_sessions = 0
        self.half_open = 0

    def carried(self, direction: str, *, lines: int, size: int) -> None:
        """Count a batch."""
        self.lines[direction] += lines
        self.bytes[direction] += size

    def prometheus_text(self) -> str:
        """All of it in Prometheus' text format (version 0.0.4), to be served as `text/plain`. No label holds a name of anybody."""
        return "".join(f"{line}\n" for line in self._page())

    def _page(self) -> Iterator[str]:
        families: tuple[tuple[str, str, str, Counter[str]], ...] = (
            ("connections", "Connections accepted.", "medium", self.connections),
            ("refused", "Connections and requests turned away.", "code", self.refused),
            ("sessions", "Sessions begun.", "mode", self.sessions),
            ("sessions_ended", "Sessions ended.", "reason", self.ended),
            ("lines", "Lines carried.", "direction", self.lines),
            ("bytes", "Bytes carried.", "direction", self.bytes),
        )
        for name, doc, label, counts in families:
            yield f"# HELP {_PREFIX}{name}_total {doc}"
            yield f"# TYPE {_PREFIX}{name}_total counter"
            for value, count in sorted(counts.items()):
                yield f'{_PREFIX}{name}_total{{{label}="{value}"}} {count}'
        yield f"# HELP {_PREFIX}resumed_total Sessions taken up again by a client that came back."
        yield f"# TYPE {_PREFIX}resumed_total counter"
        yield f"{_PREFIX}resumed_total {self.resumed}"
        gauges = (
            ("active_sessions", "Sessions with a running process.", self.active_sessions),
            ("detached_sessions", "Sessions whose client is away.", self.detached_sessions),
            ("half_open", "Connections that have not been admitted.", self.half_open),
        )
        for gauge, doc, number in gauges:
            yield f"# HELP {_PREFIX}{gauge} {doc}"
            yield f"# TYPE {_PREFIX}{gauge} gauge"
            yield f"{_PREFIX}{gauge} {number}"


# --- `Hosts`: under which host names plain HTTP requests are answered.


_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?")
_PORT = re.compile(r":\d{1,5}")


class Hosts:
    """The names and addresses of one gateway: those of loopback, those it is bound to, and `names` besides.

    Raises:
        ConfigurationError: one of `names` is no host name and no address, or has a scheme, a port or a path.
    """

    def __init__(self, names: Collection[str] = (), *, bound: Iterable[str] = ()) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ConfigurationError("hosts is a collection of host names, each like 'gateway.example.org'", option="hosts")
        for name in names:
            if _address_of(name) is None and not _NAME.fullmatch(name.lower()):
                raise ConfigurationError(f"hosts: {name!r} is no host name and no address, without scheme and port", option="hosts")
        self._names = {"localhost", *map(_normal, names), *map(_normal, bound)}
        # what listens at every address has none of its own, and browsers take these for loopback
        self._names -= {_normal(every) for every in ("0.0.0.0", "::", "")}  # noqa: S104 - nothing is bound here

    def admits(self, host: str | None, *, here: str | None = None) -> bool:
        """Whether a request with this `Host` is answered; `here` is the address of this machine that it was sent to.

        None, no such header, is admitted: every browser sends one, and some health checks of HTTP/1.0 do not.
        """
        if host is None:
            return True
        name = _normal(_without_port(host.strip()))
        address = _address_of(name)
        if address is not None and (address.is_loopback or (here is not None and address == _address_of(here))):
            return not address.is_unspecified
        return name in self._names


def _without_port(host: str) -> str:
    if host.startswith("["):
        inside, bracket, rest = host[1:].partition("]")
        return inside if bracket and (not rest or _PORT.fullmatch(rest)) else host
    name, colon, port = host.rpartition(":")
    return name if colon and _PORT.fullmatch(colon + port) and ":" not in name else host


def _normal(name: str) -> str:
    """The one way to write it that is compared."""
    address = _address_of(name)
    return name.lower().removesuffix(".") if address is None else str(address)


def _address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


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
