"""`Hosts`: under which host names plain HTTP requests are answered.

A page of a browser may ask any address under a name of its own: its DNS server says that the name is 127.0.0.1, and for the browser both
are the same site (DNS rebinding). What it cannot choose is the header `Host`, which then holds that name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable

from claude_transport.errors import ConfigurationError

__all__ = ["Hosts"]

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
