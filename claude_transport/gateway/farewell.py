"""How a connection ends: the last words to a client that is refused, and the closing, each of them bounded."""

from __future__ import annotations

from typing import Final

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.plain_session import plain_refusal
from claude_transport.gateway.session import GONE
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.protocol.link_frames import Refusal, encode_frame

__all__ = ["MAX_FAREWELL", "close_politely", "drop", "explain"]

_LINGER: Final = 1.0
"""Seconds for a client that is turned away to take the answer; less when others need its place."""

_CLOSING: Final = 2.0
"""Seconds that closing a connection may take before it is dropped."""

MAX_FAREWELL: Final = _LINGER + _CLOSING
"""Seconds of both."""


async def explain(arrival: Arrival, refused: TurnedAway) -> None:
    """Tell the client why, in the language it began with; for a moment, whether or not it listens."""
    if not refused.audible:
        return
    if arrival.speaks_link:
        last_words = encode_frame(Refusal(code=refused.reason, text=str(refused), retryable=refused.retryable))
    else:
        last_words = plain_refusal(refused)
    with anyio.move_on_after(_LINGER):
        try:
            await arrival.stream.send(last_words)
            await arrival.stream.send_eof()
            while True:
                await arrival.stream.receive()
        except (*GONE, ClaudeTransportError):
            return


async def close_politely(arrival: Arrival) -> None:
    """Close the connection, or leave it to the caller after a moment."""
    with anyio.move_on_after(_CLOSING):
        try:
            await arrival.stream.aclose()
        except (*GONE, ClaudeTransportError):
            pass  # it is over; that is all that was wanted


async def drop(arrival: Arrival | None) -> None:
    """Close the connection at once, without waiting for the client: a stranger could wait for that and keep its place."""
    if arrival is not None:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(arrival.stream)
