"""The first line in each direction between a bridge and its host; from the second on, all lines are JSON-RPC messages.

The bridge says which server it stands for and shows its token; the host says that it is welcome, or why it is not, and hangs up.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from claude_transport.errors import ProtocolError

__all__ = [
    "GREETING_VERSION",
    "MAX_GREETING_BYTES",
    "Greeting",
    "Refusal",
    "Welcome",
    "decode_greeting",
    "decode_welcome",
    "encode_greeting",
]

GREETING_VERSION: Final = 1
MAX_GREETING_BYTES: Final = 4096
"""Bytes that somebody who has not shown a token yet may send."""

Refusal: TypeAlias = Literal["auth", "server", "busy", "version"]


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What a bridge says first."""

    mcp_bridge: int = GREETING_VERSION
    server: str
    token: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"Greeting(server={self.server!r})"


class Welcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the host answers; `refused` is why not."""

    mcp_bridge: int
    refused: Refusal | None = None


def encode_greeting(greeting: Greeting | Welcome) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode(greeting) + b"\n"


def decode_greeting(line: bytes) -> Greeting:
    """What a bridge said; `ProtocolError` for everything else. The line is not quoted: there may be a token in it."""
    try:
        return msgspec.json.decode(line, type=Greeting)
    except (ValueError, RecursionError):
        raise ProtocolError("this is not how a bridge begins", code="bridge.protocol") from None


def decode_welcome(line: bytes) -> Welcome:
    """What a host answered; `ProtocolError` for everything else."""
    try:
        return msgspec.json.decode(line, type=Welcome)
    except (ValueError, RecursionError):
        raise ProtocolError("what answered is not the host of a bridge", code="bridge.protocol") from None
