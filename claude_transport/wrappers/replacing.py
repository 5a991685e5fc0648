"""`ReplacingWrapper`: the base of wrappers that may connect another transport than the one that was attached first.

`failover` connects one of several transports, and `retrying` a new one for each attempt.
"""

from __future__ import annotations

import logging
from typing import Any

import anyio
import msgspec

from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.loggers import logger_for
from claude_transport.transport import Client, SessionTerms, Storage, Transport, TransportLike, attach_to
from claude_transport.wrappers.base import TransportWrapper

logger: logging.Logger = logger_for(__name__)

_MOST_CLOSING = 30.0
"""Seconds for closing a transport that could not be connected, which ends no running process when it keeps the contract."""


class ReplacingWrapper(TransportWrapper):
    """A `TransportWrapper` whose transport may be replaced until it is connected.

    The layer above asks for the terms once. So every transport must ask for the same, and the callbacks in the terms call those of the
    transport that is in use.
    """

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._client: Client | None = None
        self._announced = SessionTerms()  # the terms of the transport that was attached first; the layer above keeps them
        self._current = SessionTerms()  # the terms of `transport`

    @property
    def _may_replace(self) -> bool:
        """Whether the transport may be replaced. Override it; by default it stays the one that was given."""
        return False

    def attach(self, client: Client) -> SessionTerms:
        """Return the `SessionTerms` of the wrapped transport, after telling it about `client`, the layer above.

        Transports that are made later are told the same. The callbacks in the returned terms call those of the transport that is in use.
        """
        self._client = client
        self._announced = self._current = terms = super().attach(client)
        if not self._may_replace:
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

    def _use(self, transport: TransportLike, *, option: str) -> None:
        """Wrap `transport` from now on, and attach the layer above to it. `option` is the argument whose function has made it.

        Raises:
            ConfigurationError: it asks the layer above for something else than the transport that was attached first.
        """
        self._transport = transport
        self._wants_bytes = isinstance(transport, Transport)
        if self._client is None:
            return
        terms = attach_to(transport, self._client)
        differing = [name for name in _FIXED if getattr(terms, name) != getattr(self._announced, name)]
        optional = ("before_prompt", "storage")
        differing += [name for name in optional if (getattr(terms, name) is None) != (getattr(self._announced, name) is None)]
        if differing:
            message = f"the transports ask for different things: {', '.join(differing)}. Give all of them the same options"
            raise ConfigurationError(message, option=option)
        self._current = terms

    # The callbacks of the terms: those of the transport that is in use.

    async def _before_prompt(self, line: bytes) -> bytes:
        before_prompt = self._current.before_prompt
        return line if before_prompt is None else await before_prompt(line)

    def _on_prompt(self, uuid: str) -> None:
        if self._current.on_prompt is not None:
            self._current.on_prompt(uuid)

    def _on_failure(self, failure: Any) -> None:
        if self._current.on_failure is not None:
            self._current.on_failure(failure)

    async def _find_cli_version(self, *, said: str | None) -> str | None:
        find = self._current.find_cli_version
        return said if find is None else await find(said=said)

    def _hurry(self, seconds: float) -> None:
        if self._current.hurry is not None:
            self._current.hurry(seconds)

    def _is_storing(self) -> bool:
        return self._current.storage is not None and self._current.storage.is_storing()

    async def _wait_stored(self) -> None:
        if self._current.storage is not None:
            await self._current.storage.wait_stored()


_FIXED = ("initialize", "verbatim_prompts", "permissions", "structured_output", "billing", "agent", "thread", "strict")
"""The terms that the layer above reads once, before it is known which transport will be connected."""


async def close_unconnected(transport: TransportLike) -> None:
    """Close a transport that could not be connected. A cancellation waits for that, so that nothing of it stays behind."""
    with anyio.move_on_after(_MOST_CLOSING, shield=True):
        try:
            await transport.close()
        except Exception as error:  # noqa: BLE001 - the transport is given up anyway
            code = error.code if isinstance(error, ClaudeTransportError) else "transport.failed"
            logger.warning("closing a transport that could not be connected failed (%s)", code)
