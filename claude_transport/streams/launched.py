"""A program behind a launcher (ssh, docker, kubectl, …) as a byte stream.

`LaunchedConnectable` starts the launcher's client program as a child process, and does the handshake with the supervisor, a shell script
that runs at the other end. `LaunchedStream` then carries the program's standard streams and reports how the program ended. The
supervisor and its words are in `claude_transport.launch.supervisor`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStreamConnectable

from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConnectTimeout, ProcessError
from claude_transport.launch.launcher import Launcher, exit_status, why_ended, why_not_started, why_refused
from claude_transport.launch.supervisor import Word, find_word, without_words
from claude_transport.loops.background import LoopTask
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.at_once import ClosesInATask
from claude_transport.streams.process import ProcessConnectable, ProcessStream
from claude_transport.transport import HURRIED_CLOSE

_MOST_BANNER_BYTES = 2**20
"""Bytes that may come before the supervisor's first word. A message of the day has a few thousand, a wrong program any number."""


class LaunchedConnectable(ByteStreamConnectable):
    """Starts `client` and returns from `connect()` when the program runs at the other end.

    Args:
        client: starts the launcher's client program.
        launcher: the launcher that `client` runs.
        mark: the mark of this launch, by which the supervisor's words are known.
        instructions: sent to the supervisor after its first word.
        program: the program at the other end, for error messages.
        option: the option that names it, for error messages.
        cwd: its working directory, for error messages.
        on_banner: called with each line that came before the supervisor's first word, such as the output of login scripts.
        diagnose: may replace the `ProcessError` of a failed exit by a more specific one.
    """

    def __init__(
        self,
        client: ProcessConnectable,
        *,
        launcher: Launcher,
        mark: str,
        instructions: bytes,
        program: str,
        option: str = "cli_path",
        cwd: str | None = None,
        on_banner: Callable[[bytes], object] | None = None,
        diagnose: Callable[[ProcessError], Awaitable[ProcessError]] | None = None,
    ) -> None:
        self._client = client
        self._launcher = launcher
        self._place = launcher.address or launcher.name
        self._mark = mark
        self._instructions = instructions
        self._program, self._option = program, option
        self._cwd = cwd
        self._on_banner = on_banner
        self._diagnose = diagnose

    async def connect(self) -> LaunchedStream:
        """Start the client program, and the program behind it. Return the latter's streams.

        Raises:
            AuthenticationError: the other end refuses the login, or has another host key than before.
            CLINotFoundError, WorkingDirectoryError, ConfigurationError: the other end was reached, but cannot start the program.
            ConnectTimeout: the program was not started within the launcher's `timeout`.
            CLIConnectionError: the other end cannot be reached, or the client program cannot be started (`SpawnError`).
        """
        stream = await self._client.connect()
        try:
            with anyio.fail_after(self._launcher.timeout):
                return await self._shake_hands(stream)
        except TimeoutError as exc:
            said = _stderr(stream, self._mark)
            await self._give_up(stream)
            waited = self._launcher.timeout
            message = f"{self._place}: the program was not started there in {waited:g} seconds"
            raise ConnectTimeout(message, waited=waited, stderr_tail=said) from exc
        except BaseException:
            await self._give_up(stream)
            raise

    async def _give_up(self, stream: ProcessStream) -> None:
        stream.hurry(HURRIED_CLOSE)
        with anyio.CancelScope(shield=True):  # bounded by these seconds
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
            raise why_refused(self._launcher, word.rest, program=self._program, cwd=self._cwd, option=self._option)
        return LaunchedStream(
            stream, launcher=self._launcher, mark=self._mark, ahead=said[word.end :], path=word.rest, diagnose=self._diagnose
        )

    async def _hear(self, stream: ProcessStream, said: bytes, *names: str) -> tuple[Word, bytes]:
        """Receive until the supervisor has sent one of these words. Return the word, and `said` with everything received."""
        while True:
            # latin-1: one character for each byte, so positions are the same in both
            word = find_word(said.decode("latin-1"), mark=self._mark, names=names)
            if word is not None:
                return word, said
            if len(said) > _MOST_BANNER_BYTES:
                message = f"{self._place}: {len(said)} bytes came, and not one of them from our supervisor: is it the right program?"
                raise CLIConnectionError(message, retryable=False)
            try:
                said += await stream.receive()
            except (anyio.EndOfStream, ProcessError) as exc:
                raise self._why_not(stream) from exc

    def _why_not(self, stream: ProcessStream) -> ClaudeTransportError:
        exit_code = stream.extra(StreamAttribute.exit_code, None)  # noqa: S610 - anyio's method, not Django's
        signal = stream.extra(StreamAttribute.signal, None)  # noqa: S610
        return why_not_started(self._launcher, exit_code=exit_code, signal=signal, stderr=_stderr(stream, self._mark))


class LaunchedStream(ClosesInATask):
    """Standard input and output of a program at the other end of a launcher.

    After the last byte, `receive()` raises `EndOfStream` when the supervisor reported a good end, `ProcessError` when it reported a
    failure, and `ConnectionLost` when it reported nothing.

    Args:
        stream: the streams of the launcher's client program, behind the handshake.
        launcher: the launcher.
        mark: the mark of this launch.
        ahead: output of the program that came with the handshake.
        path: the path of the program at the other end.
        diagnose: may replace the `ProcessError` of a failed exit by a more specific one.
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
        """Wait for at least one byte of the program's output, and return at most `max_bytes`."""
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
        """Write all of `item` to the program's input."""
        try:
            await self._stream.send(item)
        except anyio.BrokenResourceError as exc:
            error = await self._how_it_ended()
            if error is None:
                raise
            raise anyio.BrokenResourceError from error.with_traceback(exc.__traceback__)

    async def send_eof(self) -> None:
        """Close the program's input."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """End the client program, and with it the program at the other end. Bounded by the client's `close_timeout`."""
        await self._stream.aclose()

    def begin_close(self) -> LoopTask | None:
        """Begin what `aclose()` does, as `ProcessStream.begin_close()`."""
        return self._stream.begin_close()

    def hurry(self, seconds: float) -> None:
        """Have `aclose()` take `seconds` from now at most, as `ProcessStream.hurry()`."""
        self._stream.hurry(seconds)

    @property
    def _said_code(self) -> int | None:
        """The exit code that the supervisor reported, as a shell has it."""
        # the tail is stripped of white space, and so of the newline behind the last word
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
        """Return exit code and signal of the program; both are None while it runs, and when the supervisor reported nothing."""
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
