"""Use a transport of this library under the official SDK: `adapt()` gives it the official types and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ConfigurationError,
    ConnectionLost,
    OutcomeUncertain,
    ProcessError,
    UsageError,
)
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.transport import Client, TransportInfo, TransportLike, attach_to, check_transport, info_of

if TYPE_CHECKING:
    import claude_agent_sdk

    _Official = claude_agent_sdk.Transport
else:
    _Official = object  # at run time it is registered with the official class instead, when that is first needed


_NO_CONNECTION = (CLIConnectionError, ConfigurationError, ConnectionLost, UsageError, OutcomeUncertain)


def adapt(transport: TransportLike, *, options: claude_agent_sdk.ClaudeAgentOptions | None = None) -> AdaptedTransport:
    """Make `transport` usable as `claude_agent_sdk.query(transport=…)` and `ClaudeSDKClient(transport=…)`, with the errors of that SDK.

    A transport works there without it, too. But the official client knows only its own `ProcessError` for the end of a failed run, which it
    replaces by a `ResultError` that says why. And `except claude_agent_sdk.ClaudeSDKError` would not catch errors of this library.

    Args:
        transport: any transport, with any wrappers. It keeps its own options; the official client applies none to it.
        options: the options that the client is made with. The transport learns from them which callbacks will answer. So
            `SubprocessTransport` and `NetworkTransport` turn on permission prompts for `can_use_tool`.

    Raises:
        ConfigurationError: `transport` is not a transport, or is already connected.
        ImportError: `claude_agent_sdk` is not installed.
    """
    import claude_agent_sdk

    check_transport(transport, of="adapt")
    claude_agent_sdk.Transport.register(AdaptedTransport)
    if options is not None:
        attach_to(transport, Client(answers=_answers(options))).check_prompts_pass(of="adapt")
    return AdaptedTransport(transport)


class AdaptedTransport(_Official):
    """A transport of this library with the official types and errors; made by `adapt`.

    Each of the six methods calls that of `transport`, and raises its errors as `official_error`. Only `ExpectationFailed` stays what it is:
    a test must fail of it, also where the code under test catches the errors of the official SDK.
    """

    def __init__(self, transport: TransportLike) -> None:
        check_transport(transport, of="AdaptedTransport")
        self._transport = transport

    @property
    def transport(self) -> TransportLike:
        """The adapted transport."""
        return self._transport

    @property
    def info(self) -> TransportInfo:
        """Facts about the connection: process id, exit code, the end of standard error, …."""
        return info_of(self._transport)

    async def connect(self) -> None:
        """Connect the adapted transport."""
        with _official_errors():
            await self._transport.connect()

    async def write(self, data: str) -> None:
        """Write `data` to the adapted transport."""
        with _official_errors():
            await self._transport.write(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the messages of the adapted transport."""
        with _official_errors():
            return _AdaptedMessages(self._transport.read_messages())

    async def end_input(self) -> None:
        """End the input of the adapted transport."""
        with _official_errors():
            await self._transport.end_input()

    async def close(self) -> None:
        """Close the adapted transport, in bounded time."""
        with _official_errors():
            await self._transport.close()

    def is_ready(self) -> bool:
        """Whether the adapted transport is ready."""
        return self._transport.is_ready()

    def __bool__(self) -> bool:
        """Always true: the official client replaces a transport that is false."""
        return True

    def __repr__(self) -> str:
        return f"<AdaptedTransport around {self._transport!r}>"


def official_error(error: ClaudeTransportError) -> claude_agent_sdk.ClaudeSDKError:
    """Make the error that the official SDK would raise in place of `error`, which becomes its `__cause__`.

    * `ProcessError` becomes the official `ProcessError`, with `exit_code` (-9 for signal 9) and `stderr`.
    * `CLINotFoundError` and `CLIJSONDecodeError` (with `line`) keep their names.
    * `CLIConnectionError`, `ConfigurationError`, `ConnectionLost`, `UsageError` and `OutcomeUncertain` become `CLIConnectionError`.
    * All others become `ClaudeSDKError`.
    """
    import claude_agent_sdk

    official: claude_agent_sdk.ClaudeSDKError
    if isinstance(error, ProcessError):
        exit_code = -error.signal if error.exit_code is None and error.signal is not None else error.exit_code
        official = claude_agent_sdk.ProcessError(str(error), exit_code=exit_code, stderr=error.stderr_tail or None)
    elif isinstance(error, CLINotFoundError):
        official = claude_agent_sdk.CLINotFoundError(str(error))
    elif isinstance(error, CLIJSONDecodeError):
        official = claude_agent_sdk.CLIJSONDecodeError(error.line.decode("utf-8", "replace"), error)
    elif isinstance(error, _NO_CONNECTION):
        official = claude_agent_sdk.CLIConnectionError(str(error))
    else:
        official = claude_agent_sdk.ClaudeSDKError(str(error))
    official.__cause__ = error
    return official


class _OfficialErrors(AbstractContextManager[None]):
    """Raises what leaves the block as an official error. It is a class because a generator would cost a microsecond for each message."""

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(exc, ClaudeTransportError) and not isinstance(exc, ExpectationFailed):
            raise official_error(exc) from exc


def _official_errors() -> _OfficialErrors:
    return _OfficialErrors()


class _AdaptedMessages:
    """Iterates over messages. It is not a generator: the official client drops it half read, and Python warns of a dropped generator."""

    def __init__(self, messages: AsyncIterator[dict[str, Any]]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        try:
            return await anext(self._messages)
        except ExpectationFailed:
            raise
        except ClaudeTransportError as exc:
            raise official_error(exc) from exc

    async def aclose(self) -> None:
        """Close the iterator inside, if it can be closed."""
        aclose = getattr(self._messages, "aclose", None)
        if aclose is not None:
            await aclose()


def _answers(options: claude_agent_sdk.ClaudeAgentOptions) -> frozenset[str]:
    """Return which callbacks `options` contain, in the words of `Client.answers`."""
    servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
    own = {name for name, server in servers.items() if server.get("type") == "sdk"}
    answers = {"can_use_tool": options.can_use_tool, "hooks": options.hooks, "mcp": own}
    return frozenset(name for name, given in answers.items() if given)
