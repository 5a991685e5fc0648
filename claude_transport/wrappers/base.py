"""`TransportWrapper`: a transport around another one, which does nothing yet. Subclasses change one thing and inherit the rest."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self

import anyio

from claude_transport.errors import UsageError
from claude_transport.protocol.messages import DecodeFailure, OversizedMessage
from claude_transport.transport import SessionTerms, Transport, TransportInfo, TransportLike, read_lines_of

__all__ = ["TransportWrapper"]


class _Rewrappable(Transport):
    # A class of its own, so that the __init__ of a wrapper is nearer than this __new__, and help() shows its arguments.

    _make_another: Callable[[TransportLike], Self]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # what it is made with, whatever a subclass takes besides the transport, for reconnect()
        self = super().__new__(cls)
        settings = {name: value for name, value in kwargs.items() if name != "transport"}
        self._make_another = functools.partial(_make, cls, args[1:], settings)
        return self


class TransportWrapper(_Rewrappable):
    """A `Transport` that hands every call to `transport`, which may be anything with the six methods, whoever wrote it.

    It adds nothing and costs nothing: the iterators are those of the wrapped transport. Errors pass as they are. The wrapped
    transport is closed exactly once, however often and from wherever the wrapper is.

    A subclass takes the wrapped transport as its first argument and everything else as it likes; `reconnect()` makes another one with
    the same arguments.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        # a transport written for the official SDK expects text
        self._wants_bytes = isinstance(transport, Transport)
        self._close_attempt: anyio.Event | None = None
        self._closed = False
        self._reconnecting: set[int] = set()  # ids of the tasks

    @property
    def transport(self) -> TransportLike:
        """The transport inside."""
        return self._transport

    async def connect(self) -> None:
        """Connect the transport inside."""
        await self._transport.connect()

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside."""
        if self._wants_bytes or isinstance(data, str):
            await self._transport.write(data)  # type: ignore[arg-type]
        else:
            await self._transport.write(_text_of(data))

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages of the transport inside."""
        return self._transport.read_messages()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines of the transport inside, encoded from its messages when it has no lines."""
        return read_lines_of(self._transport)

    async def end_input(self) -> None:
        """End the input of the transport inside."""
        await self._transport.end_input()

    async def close(self) -> None:
        """Close the transport inside; a second call waits for the first, and takes over from one that was cancelled."""
        while self._close_attempt is not None:
            await self._close_attempt.wait()
        if self._closed:
            if self._reconnecting and not self._closes_to_reconnect() and isinstance(self._transport, TransportWrapper):
                await self._transport.close()  # it is closed, but what waits in it to connect again is ended
            return
        self._close_attempt = attempt = anyio.Event()
        try:
            await self._transport.close()
            self._closed = True
        except Exception:
            self._closed = True  # as far as it will ever be
            raise
        finally:
            self._close_attempt = None
            attempt.set()

    async def reconnect(self) -> Self:
        """A new, connected wrapper made as this one was, around what the transport inside gives for its own `reconnect()`.

        This one is closed. When it fails, with what the transport inside raises, or is cancelled, there is no new one and nothing is left
        open; it may be called again.

        Raises:
            UsageError: the innermost transport has no `reconnect()`; nothing has happened.
        """
        innermost = self._transport
        while isinstance(innermost, TransportWrapper):
            innermost = innermost.transport
        if not hasattr(innermost, "reconnect"):
            raise UsageError(f"{type(innermost).__name__} has no reconnect(): make a new one instead")
        task = anyio.get_current_task().id
        self._reconnecting.add(task)
        try:
            await self.close()
            another = self.rewrapped(await self._transport.reconnect())  # type: ignore[attr-defined]
        finally:
            self._reconnecting.discard(task)
        try:
            await another.connect()  # what is inside is connected already: this is for what the wrapper does at that moment
        except BaseException:
            with anyio.CancelScope(shield=True):
                await another.close()
            raise
        return another

    def _closes_to_reconnect(self) -> bool:
        """Whether it is `reconnect()` that calls `close()`, and not somebody who has had enough."""
        return anyio.get_current_task().id in self._reconnecting

    def rewrapped(self, transport: TransportLike) -> Self:
        """A wrapper made as this one was, around `transport`, for `reconnect()`: override it to carry over what must not begin anew."""
        return self._make_another(transport)

    def is_ready(self) -> bool:
        """Whether the transport inside is."""
        return self._transport.is_ready()

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport inside."""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    @property
    def strict(self) -> bool:
        """Whether the transport inside raises for a bad line instead of leaving it out, as far as it says so."""
        return bool(getattr(self._transport, "strict", False))

    def announce(self, *, answers: frozenset[str]) -> SessionTerms:
        """Tell the transport inside what will be answered; its terms, if it has any."""
        return self._transport.announce(answers=answers) if isinstance(self._transport, Transport) else SessionTerms()

    def carry_trace(self, fields: Mapping[str, str]) -> None:
        """Have the transport inside carry it."""
        if isinstance(self._transport, Transport):
            self._transport.carry_trace(fields)

    def note_prompt(self, uuid: str) -> None:
        """Have the transport inside note it."""
        if isinstance(self._transport, Transport):
            self._transport.note_prompt(uuid)

    async def find_cli_version(self, *, said: str | None = None) -> str | None:
        """Have the transport inside find it."""
        return await self._transport.find_cli_version(said=said) if isinstance(self._transport, Transport) else said

    def count_failure(self, failure: DecodeFailure | OversizedMessage) -> None:
        """Have the transport inside count it."""
        if isinstance(self._transport, Transport):
            self._transport.count_failure(failure)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport!r})"


def _make(cls: Callable[..., Any], positional: Sequence[Any], settings: dict[str, Any], transport: TransportLike) -> Any:
    return cls(transport, *positional, **settings)


def _text_of(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the transport inside takes text only, and these bytes are no UTF-8: {exc.reason}") from exc
