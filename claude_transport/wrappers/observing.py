"""`ObservingWrapper`: a wrapper that is told of everything that happens, and changes none of it."""

from __future__ import annotations

import contextlib
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ParamSpec

from claude_transport.errors import UsageError
from claude_transport.transport import TransportLike
from claude_transport.wrappers.lines import LineWrapper

__all__ = ["ObservingWrapper"]

logger: logging.Logger = logging.getLogger(__name__)

P = ParamSpec("P")


class ObservingWrapper(LineWrapper):
    """A `TransportWrapper` whose subclasses override what they want to be told of; the rest of it does nothing.

    Each of these is an ordinary method, called between the event and whoever caused it, so it must not block. What it raises is logged,
    once for each wrapper, and changes nothing. An `async` one, which nobody would await, is refused when the class is made
    (`UsageError`). Lines are told as they were read, in batches, without their terminators; `data` of a write
    as it was given.

    While `is_idle` is true nobody is told anything, and reading costs nothing: override it when that can be known beforehand.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in filter(_is_hook, dir(ObservingWrapper)):
            hook = getattr(cls, name)
            if inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
                raise UsageError(f"{cls.__name__}.{name} is an ordinary method, which is called and not awaited: leave out `async`")

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._connect_told = False
        self._close_told = False
        self._end_told = False
        self._complained = False

    # --------------------------------------------------------------------------------------------------------- to override

    def on_connecting(self) -> None:
        """An attempt to connect begins. Not told any more once one has succeeded."""

    def on_connected(self) -> None:
        """It succeeded."""

    def on_connect_failed(self, error: BaseException) -> None:
        """It failed, or was cancelled."""

    def on_writing(self, data: str | bytes) -> None:
        """A write begins."""

    def on_written(self, data: str | bytes) -> None:
        """It has been handed over."""

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """It was refused, failed, or was cancelled."""

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """These lines were read."""

    def on_read_end(self, error: Exception | None) -> None:
        """There is nothing more to read: all was well, or `error`. Told once, unless the error was one of use (`UsageError`)."""

    def on_input_ended(self) -> None:
        """The input was ended by `end_input()`."""

    def on_closing(self) -> None:
        """It is being closed. Told once."""

    def on_closed(self, error: BaseException | None) -> None:
        """It is closed, as far as it will ever be; `error` is what closing raised, or the cancellation that cut it short."""

    # -------------------------------------------------------------------------------------------------------- the contract

    async def connect(self) -> None:
        """Connect the transport inside."""
        if self._connect_told or self.is_idle:
            await super().connect()
            return
        self._tell(self.on_connecting)
        try:
            await super().connect()
        except BaseException as error:
            self._tell(self.on_connect_failed, error)
            raise
        self._connect_told = True
        self._tell(self.on_connected)

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside."""
        if self.is_idle:
            await super().write(data)
            return
        self._tell(self.on_writing, data)
        try:
            await super().write(data)
        except BaseException as error:
            self._tell(self.on_write_failed, data, error)
            raise
        self._tell(self.on_written, data)

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """The next lines of the transport inside."""
        try:
            batch = await anext(source)
        except StopAsyncIteration:
            self._read_ended(None)
            raise
        except UsageError:
            raise  # whoever reads did something wrong: there may be more to read
        except Exception as error:
            self._read_ended(error)
            raise
        self._tell(self.on_lines, batch)
        return batch

    async def end_input(self) -> None:
        """End the input of the transport inside."""
        await super().end_input()
        if not self.is_idle:
            self._tell(self.on_input_ended)

    async def close(self) -> None:
        """Close the transport inside."""
        if self._close_told or self.is_idle:
            await super().close()
            return
        self._close_told = True
        self._tell(self.on_closing)
        try:
            await super().close()
        except BaseException as error:
            self._tell(self.on_closed, error)
            raise
        self._tell(self.on_closed, None)

    def _read_ended(self, error: Exception | None) -> None:
        if not self._end_told:
            self._end_told = True
            self._tell(self.on_read_end, error)

    def _tell(self, hook: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - an onlooker must never be what ends a conversation
            if not self._complained:
                self._complained = True
                place = traceback.extract_tb(error.__traceback__)[-1]
                # The handler that failed may be the one this goes to. And the error's text may hold what was said: it is not shown.
                with contextlib.suppress(Exception):
                    logger.warning("%s: %s raised in %s, line %s", type(self).__name__, type(error).__name__, place.filename, place.lineno)


def _is_hook(name: str) -> bool:
    return name.startswith("on_")
