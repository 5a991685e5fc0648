"""Certificates for an hour on loopback: an authority of its own, a server, and a client to prove itself with."""

from __future__ import annotations

import functools
import ssl
from typing import TYPE_CHECKING

from claude_transport.errors import ConfigurationError

if TYPE_CHECKING:
    import trustme

__all__ = ["Certificates", "certificates"]

LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")


class Certificates:
    """One authority, and contexts of those who trust it. Raises `ConfigurationError` where `trustme` is not installed."""

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError as exc:
            raise ConfigurationError(
                "certificates for a TLS medium are made by trustme, which is not installed: pip install trustme", option="factory"
            ) from exc
        self._authority: trustme.CA = trustme.CA()
        self._server = self._authority.issue_cert(*LOCAL_NAMES)
        self._client = self._authority.issue_cert("client@example.org")

    def server_context(self, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
        """For the accepting end, with a certificate for every name of loopback; `asks_for_certificate` makes it mutual TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.configure_cert(context)
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            self._authority.configure_trust(context)
        return context

    def client_context(self, *, shows_certificate: bool = False) -> ssl.SSLContext:
        """For the connecting end: trusts this authority and no other; `shows_certificate` gives it one of its own."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        if shows_certificate:
            self._client.configure_cert(context)
        return context


@functools.cache
def certificates() -> Certificates:
    """Those of this process, made once."""
    return Certificates()
