"""`StatefulTransport`: knows the state of a transport, reports each change, and refuses calls that make no sense in a state."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from claude_transport.errors import ConfigurationError, InputClosed, NotConnected, TransportClosed
from claude_transport.transport import TransportLike
from claude_transport.wrappers.base import ObservingWrapper


class TransportState(StrEnum):
    """The states of a transport."""

    DISCONNECTED = "disconnected"
    """There is no connection: not yet, after an attempt that failed, or because the peer is gone."""
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"
    """Final: this transport never connects again."""


OnChange: TypeAlias = Callable[[TransportState, TransportState], object]


class ConnectionState:
    """The state of one transport after another: give the same object to each `StatefulTransport`, so that it goes on across a reconnect.

    Args:
        on_change: called with the old and the new state at each change. It must not block. What it raises is logged once.

    Raises:
        ConfigurationError: `on_change` is not an ordinary function.
    """

    def __init__(self, on_change: OnChange | None = None) -> None:
        if on_change is not None and not callable(on_change):
            raise ConfigurationError(f"on_change must be a function of two states, not {type(on_change).__name__}", option="on_change")
        if inspect.iscoroutinefunction(on_change):
            raise ConfigurationError("on_change must be an ordinary function, because it is not awaited", option="on_change")
        self.on_change = on_change
        """Called with the old and the new state. It may be replaced at any time."""
        self.current: TransportState = TransportState.DISCONNECTED
        """The last state that a transport reported."""


class StatefulTransport(ObservingWrapper):
    """Wraps `transport` and knows its `state`.

    Args:
        on_change: called with the old and the new state at each change. It must not block. What it raises is logged once.
        connection: the `ConnectionState` to report to, in place of `on_change`.

    Calls that make no sense in a state are refused, whatever the transport inside would do. Writing, reading and ending the input raise
    `NotConnected` before there is a connection. Everything raises `TransportClosed` once closing has begun, and writing raises
    `InputClosed` after the end of the input.

    A connection counts as lost when `is_ready()` of the transport inside is False. That is noticed when `state` is read. With an
    `on_change` it is also noticed when a read or a write fails.
    """

    def __init__(self, transport: TransportLike, *, on_change: OnChange | None = None, connection: ConnectionState | None = None) -> None:
        super().__init__(transport)
        if connection is not None and on_change is not None:
            raise ConfigurationError("give on_change or connection, not both: a ConnectionState has its own on_change", option="connection")
        self.connection: ConnectionState = ConnectionState(on_change) if connection is None else connection
        """Where the changes are reported."""
        self._was_connected = transport.is_ready()
        self._state = TransportState.CONNECTED if self._was_connected else TransportState.DISCONNECTED
        if self._was_connected:
            self.connection.current = self._state
        self._attempts = 0  # that are under way
        self._input_ended = False

    @property
    def state(self) -> TransportState:
        """The state of this transport now."""
        self._notice_loss()
        return self._state

    @property
    def on_change(self) -> OnChange | None:
        """The function that is called at each change. It may be replaced at any time."""
        return self.connection.on_change

    @on_change.setter
    def on_change(self, on_change: OnChange | None) -> None:
        self.connection.on_change = on_change

    @property
    def is_idle(self) -> bool:
        """True while there is no `on_change`, so that reading needs no attention."""
        return self.on_change is None

    async def connect(self) -> None:
        """Connect the transport inside. Refused once closing has begun."""
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
            if self._state is TransportState.CONNECTING:  # otherwise close() was called meanwhile
                if self.is_ready():
                    self._change(TransportState.CONNECTED)
                elif not self._attempts:
                    self._change(TransportState.DISCONNECTED)

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside. Refused without a connection, and after the end of the input."""
        self._refuse_unless_connected()
        if self._input_ended:
            raise InputClosed("end_input() was called: nothing more can be written")
        await super().write(data)

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the lines of the transport inside. Refused without a connection."""
        self._refuse_unless_connected()
        return super().read_lines()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return the messages of the transport inside. Refused without a connection."""
        self._refuse_unless_connected()
        return super().read_messages()

    async def end_input(self) -> None:
        """End the input of the transport inside. Refused without a connection."""
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
        """Notice a lost connection."""
        self._notice_loss()

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Notice a lost connection."""
        self._notice_loss()

    def _change(self, new: TransportState) -> None:
        if new is not self._state:
            self._state = new
            old, self.connection.current = self.connection.current, new
            if self.connection.on_change is not None:
                self._tell(self._changed, old, new)

    def _changed(self, old: TransportState, new: TransportState) -> None:
        if self.connection.on_change is not None:
            self.connection.on_change(old, new)

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
        if not self._was_connected and not self.is_ready():  # a lost connection has its own error, which says how it was lost
            how = "is still connecting" if self._state is TransportState.CONNECTING else "has not been connected"
            raise NotConnected(f"the transport {how}")
