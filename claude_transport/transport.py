"""`Transport`: the contract, clause by clause.

A transport carries newline-delimited JSON to a Claude and back. The six abstract methods have the names and shapes of the
official SDK's own abstract class, so that every transport written here can be handed to it and every transport written for
it can be handed to `Query`. `read_lines` is the seventh, concrete one and carries the speed: raw lines in batches, decoded
once, where they are consumed.

Each clause below has an ID. `claude_transport.testing.conformance` has one function for each of them, so that a transport
of your own can be held to the same promises.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from claude_transport.errors import UsageError
from claude_transport.launch.options import BillingPolicy
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage, encode_line


class TransportInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a connection at this moment: a snapshot, sizes in bytes, `started_at` in UTC.

    `noise_lines` counts every line that held no JSON object and was left out; `malformed_lines` those of them that began
    like one; `oversized_lines` the lines over the limit. `killed` is True when closing had to resort to a signal.

    `stderr_tail` is what the process said on standard error, unchanged: it may hold secrets. `repr()` shows its length only.
    """

    kind: str
    address: str | None = None
    pid: int | None = None
    pgid: int | None = None
    cli_path: str | None = None
    cli_version: str | None = None
    started_at: dt.datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    stderr_tail: str = ""
    bytes_read: int = 0
    bytes_written: int = 0
    lines_read: int = 0
    noise_lines: int = 0
    malformed_lines: int = 0
    oversized_lines: int = 0

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return each field as `rich` shows it; of `stderr_tail` only the length, because it may hold secrets."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*(shown | {"stderr_tail": f"<{len(self.stderr_tail)} characters>" if self.stderr_tail else ""}).items()]

    def __repr__(self) -> str:
        """Return every field; of `stderr_tail` only the length, because it may hold secrets."""
        return f"TransportInfo({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class PermissionSetting(msgspec.Struct, frozen=True):
    """One thing that a transport's options say about permissions: what, its value, and the option that says so.

    `what` is `mode`, `allow`, `ask`, `prompt_tool`, `prompts`, `agent_mode` or `sandbox`: see the table in `query.shadowing`.
    """

    what: str
    value: str
    option: str


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """What the layer above a transport says about itself when it attaches.

    `answers` names the control requests that it answers: "can_use_tool", "hooks", "mcp". `trace` holds the W3C trace context of the
    session, under the lower-case names `traceparent` and `tracestate`. `initializes` is False for a layer that does not send `initialize`.
    """

    answers: frozenset[str] = frozenset()
    trace: Mapping[str, str] = {}
    initializes: bool = True


class FindCLIVersion(Protocol):
    """Finds the version of the CLI at the other end."""

    def __call__(self, *, said: str | None) -> Awaitable[str | None]:
        """Return the version that the CLI `said` in its answer to `initialize`, or else a known one; None when nothing tells."""
        ...


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a transport asks of the layer that speaks through it, and what that layer may call.

    `initialize` are fields for the `initialize` request; `verbatim_prompts` marks every prompt `client_composed`, so that
    the CLI expands neither `@path` nor slash commands in it. `permissions` is what they say about who decides, for a layer that
    would be asked.

    `session_id` is the session that they name, if they name one by its id, and `forks_session` says that a copy of it under
    a new id was asked for; `structured_output` that results have to keep to a JSON schema. `billing` says who may pay.

    `strict` is True when a bad line has to end the reading with an error.

    The callbacks are optional and must not block. `on_prompt(uuid)` is called in the task that sends a prompt, before the prompt is
    written; the prompt may be withdrawn before that. `on_failure(failure)` is called for each line of `read_lines()` that held no message,
    so that `info` can count it. `await find_cli_version(said=version)` finds the version of the CLI after it has answered `initialize`.
    """

    initialize: Mapping[str, Any] = {}
    verbatim_prompts: bool = False
    permissions: Sequence[PermissionSetting] = ()
    session_id: str | None = None
    forks_session: bool = False
    structured_output: bool = False
    billing: BillingPolicy = "inherit"
    strict: bool = False
    on_prompt: Callable[[str], object] | None = None
    on_failure: Callable[[DecodeFailure | OversizedMessage], object] | None = None
    find_cli_version: FindCLIVersion | None = None


@runtime_checkable
class TransportLike(Protocol):
    """Anything with the six methods: what `Query` and the wrappers accept, whoever wrote it."""

    async def connect(self) -> None: ...
    async def write(self, data: str) -> None: ...
    def read_messages(self) -> AsyncIterator[dict[str, Any]]: ...
    async def end_input(self) -> None: ...
    async def close(self) -> None: ...
    def is_ready(self) -> bool: ...


class Transport(ABC):
    """A two-way stream of JSON lines to one Claude, with a life of its own: connected once, closed once.

    * `truth.always`: it is true in a boolean context, whatever its state, and has no length.

    (The official SDK's client tests the truth value of the transport it is given, and replaces one that is false.)
    """

    @abstractmethod
    async def connect(self) -> None:
        """Make the connection; when it returns, `is_ready()` is True.

        * `connect.not-ready-before`: `is_ready()` is False until then.
        * `connect.ready-after`: and True from then on.
        * `connect.twice-is-noop`: connecting a connected transport does nothing.
        * `connect.failure-is-clean`: a failure leaves nothing behind, and `connect()` may be tried again.
        * `connect.cancel-is-clean`: so does a cancellation.
        * `connect.closed-meanwhile`: a `close()` that comes while it waits wins, and nothing stays open.
        * `connect.once-closed-stays-closed`: after `close()` it raises `TransportClosed`.

        Raises:
            ConfigurationError: what was asked for cannot be run (`CLINotFoundError`: there is no `claude`).
            CLIConnectionError: the connection could not be made; nothing was said.
        """

    @abstractmethod
    async def write(self, data: str | bytes) -> None:
        """Send one or more whole lines.

        * `write.whole-lines`: text is encoded as UTF-8, and a missing final newline is added; exactly one ends each line.
        * `write.order`: lines arrive in the order of the calls.
        * `write.no-interleaving`: a line is never cut by another one, however many tasks write at once.
        * `write.backpressure`: it returns when the data has been handed over, and waits while the peer does not read.
        * `write.cancel-poisons`: a call cancelled in the middle of a line leaves the transport broken for writing, rather
          than the peer with half a line.
        * `write.broken-stays-broken`: once broken, every further write says so.
        * `write.after-end-raises`: `InputClosed` after `end_input()`.
        * `write.after-close-raises`: `TransportClosed` after `close()`, `NotConnected` before `connect()`.
        * `write.large-write-while-peer-writes`: megabytes may be written while the peer writes megabytes, as long as
          somebody reads.

        Raises:
            UsageError: as above.
            TransportClosed: the peer is gone; carries its exit code, signal and last words when they are known.
        """

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages as dicts, one at a time: the simple view, for people and for the official SDK.

        * `read.order`: in the order they were sent.
        * `read.any-chunking`: however the bytes were cut on their way, also inside a UTF-8 sequence.
        * `read.only-newline-ends-a-line`: only the byte 0x0A ends a line: U+2028, U+2029 and U+0085 inside a string are data, and a
          CR before it is nothing.
        * `read.skips-noise`: lines that hold no JSON object are left out.
        * `read.bad-line-costs-one-line`: so is a corrupt line, and the next one is delivered.
        * `read.line-limit`: so is a line over the limit; memory stays bounded.
        * `read.left-out-is-logged`: what was left out is logged as a warning, blank lines excepted.
        * `read.left-out-is-counted`: a transport that has an `info` of its own counts there what was left out.
        * `read.final-line-without-newline`: a complete last line counts without its newline.
        * `read.truncated-tail-is-reported`: an incomplete one raises `TruncatedStream`, after everything before it.
        * `read.clean-eof-stops`: the iteration ends when the peer ended well.
        * `read.failure-after-last-message`: and raises `ConnectionLost` (`ProcessError`) when it did not, after the last message.
        * `read.one-reader`: a second reader at the same time gets `Busy`.
        * `read.resumable`: leaving the loop and iterating again loses nothing.
        * `read.cancel-loses-nothing`: neither does cancelling a reader.
        * `read.unconnected-raises`: `NotConnected` before `connect()`, `TransportClosed` after `close()`, at the latest from the first
          step of the iteration.
        """

    @abstractmethod
    async def end_input(self) -> None:
        """Tell the peer that nothing more will be written.

        * `end.half-close`: reading goes on until the peer ends.
        * `end.idempotent`: ending twice does nothing.

        For the CLI this means "no more input", not "stop": the running turn finishes first, but hooks, permissions and
        in-process MCP servers can no longer be asked (docs/reference/protocol.md#end-of-input).
        """

    @abstractmethod
    async def close(self) -> None:
        """Release everything, in bounded time, whatever the peer does.

        * `close.idempotent`: closing twice does nothing, closing what was never connected neither.
        * `close.peer-sees-the-end`: the peer sees the end of its input.
        * `close.wakes-reader`: the iteration of a waiting reader ends.
        * `close.wakes-writer`: a waiting writer gets `TransportClosed`.
        * `close.when-cancelled`: a cancelled close still closes; the cancellation is delivered afterwards.
        * `close.bounded`: it takes at most one second longer than its timeout.
        * `close.any-task`: any task may call it.
        * `close.leaves-nothing`: no file descriptor, process, thread or task stays behind.
        """

    @abstractmethod
    def is_ready(self) -> bool:
        """True between a successful `connect()` and the moment the transport is closed or known to be broken.

        * `ready.not-after-close`: it is False once the transport is closed.
        * `ready.not-when-broken`: and once it is known to be broken: a reader or a writer has been told.
        """

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines as they came, in batches, without terminators and undecoded: one batch for each chunk that was read.

        This is the primitive that `Query`, recorders, metrics and gateways use. The default encodes what `read_messages`
        yields, so that a transport with only the six methods works everywhere, at the price of decoding twice.

        * `lines.same-messages`: it gives the same messages: batches of one line each or more, without terminators.
        * `lines.same-position`: both views are of one stream: what one of them has read, the other does not repeat or lose.
        """
        return _EncodedMessages(self.read_messages())

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection at this moment."""
        return TransportInfo(kind=type(self).__name__)

    def attach(self, client: Client) -> SessionTerms:
        """Tell the transport about the layer above it, and get its terms.

        `Query` calls this before `connect()`. A transport that starts a CLI turns on what `client.answers` needs, and hands on
        `client.trace`: a process gets it in its environment (`TRACEPARENT`, `TRACESTATE`), a request in its headers. It may be called
        again; the last call counts. A wrapper attaches the transport inside and adds to its terms. The default ignores `client` and
        returns empty terms.

        Raises:
            ConfigurationError: it is too late, or an option stands in the way; names the option.
        """
        return SessionTerms()

    async def __aenter__(self) -> Self:
        """Connect, and close at the end of the block.

        * `block.connects-and-closes`: it connects, and closes at the end of the block, also when it ends by an error.
        """
        await self.connect()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close()

    def __bool__(self) -> bool:
        return True


def attach_to(transport: TransportLike, client: Client) -> SessionTerms:
    """Call `transport.attach(client)` and return its terms; empty terms for a transport that has only the six methods."""
    return transport.attach(client) if isinstance(transport, Transport) else SessionTerms()


class PouredLines(ABC):
    """Lines of a `read_lines()` that need not be fetched: they are handed on where the bytes are noticed, which wakes no task."""

    @abstractmethod
    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        """Hand each batch to `hand_on` until that returns True: True then, False when the peer has ended well.

        `hand_on` may be called in none of the caller's tasks: it may not wait, nor start anything. Raises what the iteration would
        raise, and what `hand_on` does. Neither leaving it nor being cancelled loses anything.
        """


def read_lines_of(transport: TransportLike) -> AsyncIterator[Sequence[bytes]]:
    """`transport.read_lines()`, or the same made from `read_messages()` where somebody else's transport has no such method."""
    read_lines = getattr(transport, "read_lines", None)
    if read_lines is not None:
        lines: AsyncIterator[Sequence[bytes]] = read_lines()
        return lines
    return _EncodedMessages(transport.read_messages())


class _EncodedMessages:
    """Batches of one encoded message each."""

    def __init__(self, messages: AsyncIterator[dict[str, Any]]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        message: object = await anext(self._messages)
        if not isinstance(message, Mapping):
            msg = f"read_messages() yielded {type(message).__name__}, not a dict"
            raise UsageError(msg)
        return (encode_line(message)[:-1],)

    async def aclose(self) -> None:
        """Close the underlying iterator, when it is one that can be closed."""
        aclose = getattr(self._messages, "aclose", None)
        if aclose is not None:
            await aclose()
