"""A program at the other end of a launcher, as a byte stream: the handshake before its first byte, and its own end told as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConnectTimeout, ProcessError
from claude_transport.launch.launcher import Launcher, exit_status, why_ended, why_not_started, why_refused
from claude_transport.launch.supervisor import Word, find_word, without_words
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.process import ProcessConnectable, ProcessStream

_MOST_BANNER_BYTES = 2**20
"""Bytes that may come before the supervisor's word: a message of the day has a few thousand, and the wrong program any number."""


class LaunchedConnectable:
    """Opens `client` and goes through the handshake: `await connect()` returns when the program runs at the other end.

    `instructions` are sent when the supervisor with this `mark` has said that it is there. `on_banner` gets each line that came before it
    (login scripts). `program` and `cwd` are for what is said about them. `diagnose` may turn the `ProcessError` of a failed exit into a
    more telling one.
    """

    def __init__(
        self,
        client: ProcessConnectable,
        *,
        launcher: Launcher,
        mark: str,
        instructions: bytes,
        program: str,
        cwd: str | None = None,
        on_banner: Callable[[bytes], object] | None = None,
        diagnose: Callable[[ProcessError], Awaitable[ProcessError]] | None = None,
    ) -> None:
        self._client = client
        self._launcher = launcher
        self._mark = mark
        self._instructions = instructions
        self._program = program
        self._cwd = cwd
        self._on_banner = on_banner
        self._diagnose = diagnose

    async def connect(self) -> LaunchedStream:
        """Start the client, and the program behind it.

        Raises:
            AuthenticationError: the other end does not let us in, or is not who it was.
            CLINotFoundError, WorkingDirectoryError, ConfigurationError: it is there, but what was asked for cannot be run.
            ConnectTimeout: it said nothing in the launcher's `timeout`.
            CLIConnectionError: it cannot be reached, or the client cannot be started (`SpawnError`).
        """
        stream = await self._client.connect()
        try:
            with anyio.fail_after(self._launcher.timeout):
                return await self._shake_hands(stream)
        except TimeoutError as exc:
            said = _stderr(stream, self._mark)
            await self._give_up(stream)
            waited, place = self._launcher.timeout, self._launcher.address or self._launcher.name
            raise ConnectTimeout(
                f"{place}: the program was not started there in {waited:g} seconds", waited=waited, stderr_tail=said
            ) from exc
        except BaseException:
            await self._give_up(stream)
            raise

    async def _give_up(self, stream: ProcessStream) -> None:
        with anyio.CancelScope(shield=True):  # bounded by the stream's own close_timeout
            await stream.aclose()

    async def _shake_hands(self, stream: ProcessStream) -> LaunchedStream:
        word, early = await self._hear(stream, b"", "ready")
        for line in early[: word.start].splitlines():
            if self._on_banner is not None:
                self._on_banner(line)
        try:
            await stream.send(self._instructions)
        except (anyio.BrokenResourceError, OSError) as exc:
            raise self._why_not(stream) from exc
        word, said = await self._hear(stream, early[word.end :], "started", "refused")
        if word.name == "refused":
            raise why_refused(self._launcher, word.rest, program=self._program, cwd=self._cwd)
        return LaunchedStream(
            stream, launcher=self._launcher, mark=self._mark, ahead=said[word.end :], path=word.rest, diagnose=self._diagnose
        )

    async def _hear(self, stream: ProcessStream, said: bytes, *names: str) -> tuple[Word, bytes]:
        """Listen until one of these words is said: the word, and all that was said."""
        while True:
            # byte for byte the same positions in both
            word = find_word(said.decode("latin-1"), mark=self._mark, names=names)
            if word is not None:
                return word, said
            if len(said) > _MOST_BANNER_BYTES:
                place = self._launcher.address or self._launcher.name
                raise CLIConnectionError(f"{place}: {len(said)} bytes came, and not one of them from our supervisor", retryable=False)
            try:
                said += await stream.receive()
            except (anyio.EndOfStream, ProcessError) as exc:
                raise self._why_not(stream) from exc

    def _why_not(self, stream: ProcessStream) -> ClaudeTransportError:
        exit_code = stream.extra(StreamAttribute.exit_code, None)  # noqa: S610 - anyio's method, not Django's
        signal = stream.extra(StreamAttribute.signal, None)  # noqa: S610
        return why_not_started(self._launcher, exit_code=exit_code, signal=signal, stderr=_stderr(stream, self._mark))


class LaunchedStream(ByteStream):
    """The standard streams of a program at the other end of `stream`'s client.

    `receive()` ends with `EndOfStream` when the supervisor says that the program ended well, raises `ProcessError` when it says that it did
    not, and `ConnectionLost` when it says nothing. `ahead` are bytes of the program that came with the handshake.
    """

    def __init__(
        self,
        stream: ProcessStream,
        *,
        launcher: Launcher,
        mark: str,
        ahead: bytes,
        path: str,
        diagnose: Callable[[ProcessError], Awaitable[ProcessError]] | None,
    ) -> None:
        self._stream = stream
        self._launcher = launcher
        self._mark = mark
        self._ahead = ahead
        self._diagnose = diagnose
        self.path = path

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes of its output, at most `max_bytes`."""
        if self._ahead:
            await anyio.lowlevel.checkpoint()
            data, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
            return data
        try:
            return await self._stream.receive(max_bytes)
        except (anyio.EndOfStream, ProcessError) as exc:
            error = await self._how_it_ended()
            if error is None:
                raise anyio.EndOfStream from None
            raise error from (exc if isinstance(exc, ProcessError) else None)

    async def send(self, item: bytes) -> None:
        """Write all of `item` to its input."""
        try:
            await self._stream.send(item)
        except anyio.BrokenResourceError as exc:
            error = await self._how_it_ended()
            if error is None:
                raise
            raise anyio.BrokenResourceError from error.with_traceback(exc.__traceback__)

    async def send_eof(self) -> None:
        """Close its input."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """End the client, and so the program, in at most its `close_timeout` seconds."""
        await self._stream.aclose()

    @property
    def _said_code(self) -> int | None:
        # the tail is without trailing white space, so without the newline of the last word
        word = find_word(self._fact(StreamAttribute.stderr_tail, "") + "\n", mark=self._mark, names=["ended"])
        return int(word.rest) if word is not None and word.rest.isdecimal() else None

    async def _how_it_ended(self) -> ClaudeTransportError | None:
        error = why_ended(
            self._launcher,
            code=self._said_code,
            exit_code=self._fact(StreamAttribute.exit_code, None),
            signal=self._fact(StreamAttribute.signal, None),
            stderr=_stderr(self._stream, self._mark),
        )
        if isinstance(error, ProcessError):
            if self._diagnose is not None:
                error = await self._diagnose(error)
            self._stream.add_last_words(error)
        return error

    def _fact(self, attribute: Any, default: Any) -> Any:
        return self._stream.extra(attribute, default)  # noqa: S610 - anyio's method, not Django's

    def _status(self) -> tuple[int | None, int | None]:
        """Exit code and signal of the program, or None and None while it runs and when nobody knows."""
        code = self._said_code
        return (None, None) if code is None else exit_status(code)

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {
            **self._stream.extra_attributes,
            StreamAttribute.address: lambda: self._launcher.address or self._launcher.name,
            StreamAttribute.exit_code: lambda: self._status()[0],
            StreamAttribute.signal: lambda: self._status()[1],
            StreamAttribute.stderr_tail: lambda: _stderr(self._stream, self._mark),
        }


def _stderr(stream: ProcessStream, mark: str) -> str:
    return without_words(stream.extra(StreamAttribute.stderr_tail, ""), mark=mark)  # noqa: S610 - anyio's method, not Django's
