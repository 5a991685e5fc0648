"""`TermsInUse`: the session terms of a wrapper that may connect another transport than the one that was attached first.

`failover` connects one of several transports, and `retrying` a new one for each attempt.
"""

from __future__ import annotations

import logging
from typing import Any

import anyio
import msgspec

from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.loggers import logger_for
from claude_transport.transport import Client, SessionTerms, Storage, TransportLike, attach_to

logger: logging.Logger = logger_for(__name__)

_MOST_CLOSING = 30.0
"""Seconds for closing a transport that could not be connected, which ends no running process when it keeps the contract."""

_FIXED = ("initialize", "verbatim_prompts", "permissions", "structured_output", "billing", "agent", "thread", "strict")
"""The terms that the layer above reads once, before it is known which transport will be connected."""


class TermsInUse:
    """The terms of the transport that is in use, behind those that the layer above was told once.

    Every transport must ask for the same. The callbacks that are announced call those of the transport that is in use.
    """

    __slots__ = ("_announced", "client", "current")

    def __init__(self) -> None:
        self.client: Client | None = None
        """The layer above, once it has attached."""
        self.current: SessionTerms = SessionTerms()
        """The terms of the transport that is in use."""
        self._announced = self.current

    def announce(self, client: Client, terms: SessionTerms, *, may_replace: bool) -> SessionTerms:
        """Return what the layer above is told: `terms`, with callbacks that go to the transport in use when it may be replaced."""
        self.client = client
        self._announced = self.current = terms
        if not may_replace:
            return terms
        return msgspec.structs.replace(
            terms,
            before_prompt=None if terms.before_prompt is None else self._before_prompt,
            on_prompt=self._on_prompt,
            on_failure=self._on_failure,
            find_cli_version=self._find_cli_version,
            hurry=self._hurry,
            storage=None if terms.storage is None else Storage(self._is_storing, self._wait_stored),
        )

    def take(self, transport: TransportLike, *, option: str) -> None:
        """Attach the layer above to the next transport. `option` is the argument whose function has made it.

        Raises:
            ConfigurationError: it asks the layer above for something else than the transport that was attached first.
        """
        if self.client is None:
            return
        terms = attach_to(transport, self.client)
        differing = [name for name in _FIXED if getattr(terms, name) != getattr(self._announced, name)]
        optional = ("before_prompt", "storage")
        differing += [name for name in optional if (getattr(terms, name) is None) != (getattr(self._announced, name) is None)]
        if differing:
            message = f"the transports ask for different things: {', '.join(differing)}. Give all of them the same options"
            raise ConfigurationError(message, option=option)
        self.current = terms

    # The callbacks that are announced.

    async def _before_prompt(self, line: bytes) -> bytes:
        before_prompt = self.current.before_prompt
        return line if before_prompt is None else await before_prompt(line)

    def _on_prompt(self, uuid: str) -> None:
        if self.current.on_prompt is not None:
            self.current.on_prompt(uuid)

    def _on_failure(self, failure: Any) -> None:
        if self.current.on_failure is not None:
            self.current.on_failure(failure)

    async def _find_cli_version(self, *, said: str | None) -> str | None:
        find = self.current.find_cli_version
        return said if find is None else await find(said=said)

    def _hurry(self, seconds: float) -> None:
        if self.current.hurry is not None:
            self.current.hurry(seconds)

    def _is_storing(self) -> bool:
        return self.current.storage is not None and self.current.storage.is_storing()

    async def _wait_stored(self) -> None:
        if self.current.storage is not None:
            await self.current.storage.wait_stored()


async def close_unconnected(transport: TransportLike) -> None:
    """Close a transport that could not be connected. A cancellation waits until it is closed, so that no process stays behind."""
    with anyio.move_on_after(_MOST_CLOSING, shield=True):
        try:
            await transport.close()
        except Exception as error:  # noqa: BLE001 - the transport is given up anyway
            code = error.code if isinstance(error, ClaudeTransportError) else "transport.failed"
            logger.warning("closing a transport that could not be connected failed (%s)", code)
