"""`StatefulTransport`: knows the state of a transport, reports each change, and refuses calls that make no sense in a state."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from claude_transport.errors import ConfigurationError, InputClosed, NotConnected, TransportClosed
from claude_transport.transport import AtOnce, TransportLike
from claude_transport.wrappers.base import ObservingWrapper


class TransportState(StrEnum):
    """The states of a `StatefulTransport`. Each is a string: `TransportState.CONNECTED == "connected"`."""

    DISCONNECTED = "disconnected"
    """There is no connection: not yet, after an attempt that failed, or because the peer is gone."""
    CONNECTING = "connecting"
    """`connect()` is running."""
    CONNECTED = "connected"
    CLOSING = "closing"
    """`close()` is running."""
    CLOSED = "closed"
    """Final: this transport never connects again."""


OnChange: TypeAlias = Callable[[TransportState, TransportState], object]


class ConnectionState:
    """The state of a connection across reconnects: give the same object, as `connection`, to each `StatefulTransport` of a session.

    Then `on_change` gets one series of changes for all of them.

    Args:
        on_change: called with the old and the new state at each change. It must not block. What it raises is logged, once for each
            transport, and changes nothing.

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
    """Wraps `transport`, knows its `state`, reports each change of it, and refuses calls that make no sense in that state.

    Args:
        on_change: called with the old and the new state at each change. It must not block. What it raises is logged once.
        connection: the `ConnectionState` to report to, in place of `on_change`.

    Calls are refused whatever the wrapped transport would do. Writing, reading and ending the input raise `NotConnected` before there is a
    connection. They and connecting raise `TransportClosed` once closing has begun. Writing raises `InputClosed` after the end of the input.

    A connection counts as lost when `is_ready()` of the wrapped transport is False. That is noticed when `state` is read. With an
    `on_change` it is also noticed when a read or a write fails.

    Raises:
        ConfigurationError: `on_change` is not an ordinary function, or `connection` is given as well, or a `StatefulTransport` inside has
            the same one.
    """

    def __init__(self, transport: TransportLike, *, on_change: OnChange | None = None, connection: ConnectionState | None = None) -> None:
        super().__init__(transport)
        if connection is not None and on_change is not None:
            raise ConfigurationError("give on_change or connection, not both: a ConnectionState has its own on_change", option="connection")
        if connection is not None:
            taken = "a StatefulTransport inside reports to the same connection, so each change would come twice. Keep one of them."
            self.claim(connection, taken=taken, option="connection")
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
        """The state of this transport now. Reading it also notices a lost connection, which then becomes `DISCONNECTED`."""
        self._notice_loss()
        return self._state

    @property
    def on_change(self) -> OnChange | None:
        """The function that is called with the old and the new state at each change, or None. It may be replaced at any time."""
        return self.connection.on_change

    @on_change.setter
    def on_change(self, on_change: OnChange | None) -> None:
        self.connection.on_change = on_change

    @property
    def is_idle(self) -> bool:
        """True while there is no `on_change`. Readers then get the iterator of the wrapped transport, so reading costs nothing extra."""
        return self.on_change is None

    async def connect(self) -> None:
        """Connect the wrapped transport. `state` becomes `CONNECTING`, then `CONNECTED`, or `DISCONNECTED` when that fails.

        The errors of the wrapped transport pass unchanged.

        Raises:
            TransportClosed: closing has begun.
        """
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

    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        """Have lines written without waiting while there is no `on_change`, in the states in which `write()` writes."""

        def write(line: bytes) -> bool:
            may_write = self._state is TransportState.CONNECTED and not self._input_ended
            return may_write and self.connection.on_change is None and inner.write(line)

        return AtOnce(connect=bool, write=write, end_input=bool, close=bool)

    async def write(self, data: str | bytes) -> None:
        """Write `data`, one or more whole lines, to the wrapped transport.

        Raises:
            NotConnected: there has been no connection yet.
            InputClosed: `end_input()` was called.
            TransportClosed: closing has begun; or the wrapped transport raised it, because the connection is lost.
        """
        self._refuse_unless_connected()
        if self._input_ended:
            raise InputClosed(
                "end_input() was called, so nothing more can be written. Write everything before it, or make a new transport."
            )
        await super().write(data)

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return an iterator over the lines of the wrapped transport, in batches, raw and without newlines.

        Raises:
            NotConnected: there has been no connection yet.
            TransportClosed: closing has begun.
        """
        self._refuse_unless_connected()
        return super().read_lines()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the messages of the wrapped transport, one by one, as dicts.

        Raises:
            NotConnected: there has been no connection yet.
            TransportClosed: closing has begun.
        """
        self._refuse_unless_connected()
        return super().read_messages()

    async def end_input(self) -> None:
        """End the input of the wrapped transport: its peer learns that nothing more will be written. Reading continues.

        Raises:
            NotConnected: there has been no connection yet.
            TransportClosed: closing has begun.
        """
        self._refuse_unless_connected()
        await super().end_input()
        self._input_ended = True

    async def close(self) -> None:
        """Close the wrapped transport. `state` becomes `CLOSING`, then `CLOSED`, also when closing fails or is cancelled.

        Later calls do nothing and wait for the first. If the first was cancelled, the next one closes.
        """
        if self._state is not TransportState.CLOSED:
            self._change(TransportState.CLOSING)
        try:
            await super().close()
        finally:
            self._change(TransportState.CLOSED)  # also when it was cancelled: a cancelled close still closes

    def on_read_end(self, error: Exception | None) -> None:
        """Notice a lost connection: set `state` to `DISCONNECTED` if the wrapped transport is not ready. Called when reading has ended."""
        self._notice_loss()

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Notice a lost connection: set `state` to `DISCONNECTED` if the wrapped transport is not ready. Called by `write()`."""
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
