"""`StatefulTransport`: a transport that says where it is in its life, and refuses what makes no sense there."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from typing import Any, Self

from claude_transport.errors import ConfigurationError, InputClosed, NotConnected, TransportClosed
from claude_transport.transport import TransportLike
from claude_transport.wrappers.base import ObservingWrapper


class TransportState(StrEnum):
    """Where a transport is in its life."""

    DISCONNECTED = "disconnected"
    """There is no connection: not yet, after an attempt that failed, or not any more, because the peer is gone."""
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"
    """For good: `reconnect()` makes a new one."""


class StatefulTransport(ObservingWrapper):
    """`transport` with a `state`; `on_change(old, new)` is called at once for each change, and must not block.

    What makes no sense in a state is refused with a typed error, whatever the transport inside would do: writing, reading and ending the
    input before there is a connection (`NotConnected`), after the closing has begun (`TransportClosed`), writing after the end of the
    input (`InputClosed`), and connecting what is closed (`TransportClosed`).

    A connection is known to be lost when `is_ready()` of the transport inside says so: noticed when `state` is looked at, and with an
    `on_change` as soon as a reader or a writer is told. What `on_change` raises is logged, once, and changes nothing.
    """

    def __init__(self, transport: TransportLike, *, on_change: Callable[[TransportState, TransportState], object] | None = None) -> None:
        super().__init__(transport)
        if on_change is not None and not callable(on_change):
            raise ConfigurationError(f"on_change is a function of two states, not {type(on_change).__name__}", option="on_change")
        if inspect.iscoroutinefunction(on_change):
            raise ConfigurationError("on_change is an ordinary function, which is called and not awaited", option="on_change")
        self.on_change = on_change
        """Called with the old and the new state; may be replaced at any time."""
        self._was_connected = transport.is_ready()
        self._state = TransportState.CONNECTED if self._was_connected else TransportState.DISCONNECTED
        self._attempts = 0  # that are under way
        self._input_ended = False

    @property
    def state(self) -> TransportState:
        """Where it is now."""
        self._notice_loss()
        return self._state

    @property
    def is_idle(self) -> bool:
        """True while there is no `on_change`: what is read is nobody's concern then."""
        return self.on_change is None

    # ------------------------------------------------------------------------------------------------------------ the contract

    def rewrapped(self, transport: TransportLike) -> Self:
        """One with the same `on_change`, which is told that it connects, although what is inside is connected already."""
        another = super().rewrapped(transport)
        another.on_change = self.on_change
        another._state, another._was_connected = TransportState.DISCONNECTED, False  # noqa: SLF001 - one of us
        return another

    async def connect(self) -> None:
        """Connect the transport inside; refused once the closing has begun."""
        self._refuse_if_closed()
        if self._state is TransportState.CONNECTED and self.is_ready():
            await super().connect()
            return
        self._attempts += 1
        self._change(TransportState.CONNECTING)
        try:
            await super().connect()
            self._was_connected = True
        finally:
            self._attempts -= 1
            if self._state is TransportState.CONNECTING:  # else close() came meanwhile
                if self.is_ready():
                    self._change(TransportState.CONNECTED)
                elif not self._attempts:
                    self._change(TransportState.DISCONNECTED)

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside; refused where there is no connection, and after the end of the input."""
        self._refuse_unless_connected()
        if self._input_ended:
            raise InputClosed("end_input() was called: nothing more can be written")
        await super().write(data)

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines of the transport inside; refused where there is no connection."""
        self._refuse_unless_connected()
        return super().read_lines()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages of the transport inside; refused where there is no connection."""
        self._refuse_unless_connected()
        return super().read_messages()

    async def end_input(self) -> None:
        """End the input of the transport inside; refused where there is no connection."""
        self._refuse_unless_connected()
        await super().end_input()
        self._input_ended = True

    async def close(self) -> None:
        """Close the transport inside."""
        if self._state is not TransportState.CLOSED:
            self._change(TransportState.CLOSING)
        try:
            await super().close()
        finally:
            self._change(TransportState.CLOSED)  # also when it was cancelled: a cancelled close still closes

    def on_read_end(self, error: Exception | None) -> None:
        """See whether the connection is lost."""
        self._notice_loss()

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """See whether the connection is lost."""
        self._notice_loss()

    # --------------------------------------------------------------------------------------------------------------- the state

    def _change(self, new: TransportState) -> None:
        old = self._state
        if new is not old:
            self._state = new
            if self.on_change is not None:
                self._tell(self._changed, old, new)

    def _changed(self, old: TransportState, new: TransportState) -> None:
        if self.on_change is not None:
            self.on_change(old, new)

    def _notice_loss(self) -> None:
        if self._state is TransportState.CONNECTED and not self.is_ready():
            self._change(TransportState.DISCONNECTED)

    def _refuse_if_closed(self) -> None:
        if self._state in (TransportState.CLOSING, TransportState.CLOSED):
            info = self.info
            how = "is being closed" if self._state is TransportState.CLOSING else "is closed"
            raise TransportClosed(f"the transport {how}", exit_code=info.exit_code, signal=info.signal, stderr_tail=info.stderr_tail)

    def _refuse_unless_connected(self) -> None:
        self._refuse_if_closed()
        if not self._was_connected and not self.is_ready():  # one that was lost says itself how
            how = "is still connecting" if self._state is TransportState.CONNECTING else "has not been connected"
            raise NotConnected(f"the transport {how}")
