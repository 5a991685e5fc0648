"""`adapt()`: a transport of this library as one of the official SDK, for its type checkers and with its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from claude_transport.client.reports import check_transport
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
from claude_transport.transport import Client, TransportInfo, TransportLike, attach_to

if TYPE_CHECKING:
    import claude_agent_sdk

    _Official = claude_agent_sdk.Transport
else:
    _Official = object  # at run time it is registered with the official class instead, once that is needed


_NO_CONNECTION = (CLIConnectionError, ConfigurationError, ConnectionLost, UsageError, OutcomeUncertain)


def adapt(transport: TransportLike, *, options: claude_agent_sdk.ClaudeAgentOptions | None = None) -> AdaptedTransport:
    """`transport` for `claude_agent_sdk.query(transport=…)` and `ClaudeSDKClient(transport=…)`, with the errors of that SDK.

    Without it a transport works there too; but the official client takes only its own `ProcessError` for the end of a failed run, which
    it then replaces by a `ResultError` that says why, and `except claude_agent_sdk.ClaudeSDKError` would not catch ours.

    Args:
        transport: any transport, wrapped as you like. It keeps its own options: the official client applies none of its own to it.
        options: what the client is made with. The transport is then told what its callbacks will answer, so that the CLI asks: a
            `SubprocessTransport` and a `NetworkTransport` turn on permission prompts for `can_use_tool`.

    Raises:
        ConfigurationError: it is no transport, or it is connected already and cannot be told any more.
        ImportError: `claude_agent_sdk` is not installed.
    """
    import claude_agent_sdk

    check_transport(transport)
    claude_agent_sdk.Transport.register(AdaptedTransport)
    if options is not None:
        attach_to(transport, Client(answers=_answers(options)))
    return AdaptedTransport(transport)


class AdaptedTransport(_Official):
    """A transport of this library as the official SDK knows transports; made by `adapt`.

    Each of the six methods is that of `transport`; what it raises is raised as its `official_error`.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport

    @property
    def transport(self) -> TransportLike:
        """The transport inside."""
        return self._transport

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection at this moment: process id, exit code, the CLI's last words, …"""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    async def connect(self) -> None:
        """Connect the transport inside."""
        with _official_errors():
            await self._transport.connect()

    async def write(self, data: str) -> None:
        """Write to the transport inside."""
        with _official_errors():
            await self._transport.write(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages of the transport inside."""
        with _official_errors():
            return _Messages(self._transport.read_messages())

    async def end_input(self) -> None:
        """End the input of the transport inside."""
        with _official_errors():
            await self._transport.end_input()

    async def close(self) -> None:
        """Close the transport inside, in bounded time."""
        with _official_errors():
            await self._transport.close()

    def is_ready(self) -> bool:
        """Whether the transport inside is."""
        return self._transport.is_ready()

    def __bool__(self) -> bool:
        """True: the official client replaces a transport that is false."""
        return True

    def __repr__(self) -> str:
        return f"<AdaptedTransport around {self._transport!r}>"


def official_error(error: ClaudeTransportError) -> claude_agent_sdk.ClaudeSDKError:
    """What the official SDK would raise in place of `error`, which becomes its `__cause__`.

    * `ProcessError` is `ProcessError` there, with `exit_code` (-9 for a death by signal 9) and `stderr`.
    * `CLINotFoundError` and `CLIJSONDecodeError` (with `line`) have the same names.
    * `CLIConnectionError`, `ConfigurationError`, `ConnectionLost`, `UsageError` and `OutcomeUncertain` are `CLIConnectionError`.
    * Everything else is `ClaudeSDKError`.
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
    """Raises what leaves the block as the official SDK's own; not a generator, which would cost a microsecond for each message."""

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(exc, ClaudeTransportError):
            raise official_error(exc) from exc


def _official_errors() -> _OfficialErrors:
    return _OfficialErrors()


class _Messages:
    """An iterator, not a generator: the official client drops it half read, and a dropped generator is something to warn about."""

    def __init__(self, messages: AsyncIterator[dict[str, Any]]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        try:
            return await anext(self._messages)
        except ClaudeTransportError as exc:
            raise official_error(exc) from exc

    async def aclose(self) -> None:
        """Close the iterator inside, when it is one that can be closed."""
        aclose = getattr(self._messages, "aclose", None)
        if aclose is not None:
            await aclose()


def _answers(options: claude_agent_sdk.ClaudeAgentOptions) -> frozenset[str]:
    """What the callbacks among `options` will answer, as `Client.answers` names it."""
    servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
    own = {name for name, server in servers.items() if server.get("type") == "sdk"}
    answers = {"can_use_tool": options.can_use_tool, "hooks": options.hooks, "mcp": own}
    return frozenset(name for name, given in answers.items() if given)
