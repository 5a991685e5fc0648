"""`acme://HOST:PORT`: a gateway, by another name."""

from __future__ import annotations

from typing import Any

import claude_transport as ct


def connect_to(url: str, **options: Any) -> ct.Transport:
    return ct.NetworkTransport(url.replace("acme://", "tcp://"), **options)
