"""`Transport`: the contract that every transport and wrapper keeps, clause by clause.

A transport carries newline-delimited JSON to a Claude and back. The six abstract methods have the names and signatures of the official
SDK's own abstract class. So the official SDK accepts every transport of this library, and `Query` accepts every transport written for that
SDK. `read_lines()` is the fast path: raw lines in batches, decoded once, by their consumer. `attach()` introduces the two sides.

Each clause below has an ID, and `claude_transport.testing.conformance` has one check for each ID. Media are in `transports`, wrappers in
`wrappers`.
"""

from __future__ import annotations

import datetime as dt
import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.launch.options import BillingPolicy
from claude_transport.protocol.codec import REFUSED, LineDecoder, decode_dict
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage, encode_line
from claude_transport.protocol.framing import LineBlock

HURRIED_CLOSE = 1.0
"""Seconds for closing in haste, unless the caller sets others with `close_timeout`: after an error, a cancellation or a deadline."""

OnFailure: TypeAlias = Callable[[DecodeFailure | OversizedMessage], object]
"""Called for a line that held no message."""


class TransportInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of what is known about a connection: the class of the transport (`kind`), the process, how it ended, and counts.

    Sizes are in bytes, `started_at` is in UTC. A field that is not known, or does not exist for this kind of transport, keeps its default.
    `address` is that of a server, `pgid` the process group.

    `noise_lines` counts all lines that held no JSON object and were left out. `malformed_lines` counts those of them that began like an
    object. `oversized_lines` counts the lines over the limit. `unstored_entries` counts the entries of the transcript, or the frames with
    several of them, that did not get into the `session_store`. `killed` is True when `close()` had to send a signal. `connect_retries`
    counts the attempts of a `RetryingTransport` to connect after the first one.

    `stderr_tail` is the end of the process's standard error, unchanged. It may hold secrets, so `repr()` shows only its length.
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
    unstored_entries: int = 0
    connect_retries: int = 0

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return each field and its value for `rich`, with `stderr_tail` replaced by its length because it may hold secrets."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*(shown | {"stderr_tail": f"<{len(self.stderr_tail)} characters>" if self.stderr_tail else ""}).items()]

    def __repr__(self) -> str:
        return f"TransportInfo({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class PermissionSetting(msgspec.Struct, frozen=True):
    """One statement about permissions in the options of a transport. `SessionTerms.permissions` lists them for a `Query`.

    `what` says what `value` is: the permission mode at the start (`mode`), that of a subagent (`agent_mode`), a rule (`allow`, `ask`), or
    what answers permission prompts (`prompt_tool`, `prompts`). For `sandbox` it is `allows` when commands in the sandbox need no
    permission. `option` names the option that says it.
    """

    what: str
    value: str
    option: str


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """What the layer above a transport, such as a `Query` or a gateway, tells the transport about itself with `attach()`.

    `answers` names the kinds of questions of the CLI that the layer answers: "can_use_tool", "hooks", "mcp". `trace` holds the W3C trace
    context of the session, under the lower-case names `traceparent` and `tracestate`. `initializes` is False for a layer that does not send
    `initialize`. `mcp_servers` names the MCP servers that run in the layer's program.
    """

    answers: frozenset[str] = frozenset()
    trace: Mapping[str, str] = {}
    initializes: bool = True
    mcp_servers: tuple[str, ...] = ()


class FindCLIVersion(Protocol):
    """An async function that finds the version of the CLI at the other end."""

    def __call__(self, *, said: str | None) -> Awaitable[str | None]:
        """Return the version that the CLI `said` in its answer to `initialize`, or else a known one; None when it cannot be found."""
        ...


class AtOnce(NamedTuple):
    """What a transport can do without waiting, in `SessionTerms.at_once`. Each function returns False when it did nothing: then the layer
    above calls the method of the same name, which waits.

    `write(line)` sends one whole line with its newline. All of them raise what the methods raise.
    """

    connect: Callable[[], bool]
    write: Callable[[bytes], bool]
    end_input: Callable[[], bool]
    close: Callable[[], bool]


BeforePrompt: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""An async function that gets the line of a prompt before it is sent, and returns it or another one: `SessionTerms.before_prompt`."""


class Storage(NamedTuple):
    """What a transport with a session store says about it, in `SessionTerms.storage`.

    `is_storing()` is True while a part of the transcript that was read waits for the store. `await wait_stored()` waits until the store
    has, or has lost, what was read.
    """

    is_storing: Callable[[], bool]
    wait_stored: Callable[[], Awaitable[object]]


class Confidential(NamedTuple):
    """What a redactor has to know of a transport, and a tape notes of it: `Transport.confidential`.

    `options` are those that the transport was made with, and their `env` holds secrets by the names of its variables. `values` are further
    values of any kind, such as texts of settings files. A redactor removes what is secret in them by its name or its form, at any depth.
    """

    options: msgspec.Struct | None = None
    values: tuple[object, ...] = ()


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a transport asks of the layer above it (usually a `Query`), and the callbacks that this layer should call.

    `attach()` returns it. `initialize` holds fields for the `initialize` request. `verbatim_prompts` asks to mark every prompt
    `client_composed`, so that the CLI expands neither `@path` nor slash commands in it. `permissions` lists what the options say about
    permissions. `session_id` is the session that the options name by its id, and `forks_session` is True when the CLI continues a copy of
    it under a new id. `structured_output` is True when results must match a JSON schema. `billing` is the option that says which account
    may pay. `agent` names the agent that the options start; a `Query` takes only `claude-code`, and names `session_class` when it
    refuses another one. `thread` holds what the client of an agent with threads adds to the requests that open one. `strict` is True when
    the first line that holds no message must end the reading with an error.

    The callbacks are optional and must not block. `on_prompt(uuid)` is called in the task that sends a prompt, before the prompt is
    written; the prompt may still be withdrawn after that. `on_failure(failure)` is called for each line of `read_lines()` that held no
    message, so that `info` counts it. `await find_cli_version(said=…)` is called once the CLI has answered `initialize`. `hurry(seconds)`
    is called when little time is left for closing, before `close()` or while it is under way: it then takes at most these seconds more.

    `await before_prompt(line)` is called in the task that sends a prompt, with the line that would be written. It may wait, raise an error
    that the sender gets unchanged, or return another line with the same uuid. Prompts wait for it one after another, in the order in which
    they were sent; requests, answers and interrupts pass them. A sender that is cancelled cancels it, and so does the end of the
    conversation: then the prompt is not sent. `with_before_prompt()` adds one.

    `at_once` is what the transport does without waiting. A wrapper has to see what passes, so `TransportWrapper` withholds it. `storage` is
    there when the transport puts the transcript into a session store.
    """

    initialize: Mapping[str, Any] = {}
    verbatim_prompts: bool = False
    permissions: Sequence[PermissionSetting] = ()
    session_id: str | None = None
    forks_session: bool = False
    structured_output: bool = False
    billing: BillingPolicy = "inherit"
    agent: str = "claude-code"
    session_class: str = "the session class of that agent"
    thread: Mapping[str, Any] = {}
    strict: bool = False
    before_prompt: BeforePrompt | None = None
    on_prompt: Callable[[str], object] | None = None
    on_failure: OnFailure | None = None
    find_cli_version: FindCLIVersion | None = None
    hurry: Callable[[float], object] | None = None
    at_once: AtOnce | None = None
    storage: Storage | None = None

    def with_before_prompt(self, before_prompt: BeforePrompt) -> SessionTerms:
        """Return these terms with `before_prompt` added. A callback that is there already is called after it, with its result."""
        inner = self.before_prompt
        if inner is None:
            return msgspec.structs.replace(self, before_prompt=before_prompt)

        async def both(line: bytes) -> bytes:
            return await inner(await before_prompt(line))

        return msgspec.structs.replace(self, before_prompt=both)

    def check_prompts_pass(self, *, of: str) -> None:
        """Check that no wrapper holds prompts back, for a layer that hands lines on and cannot obey. `of` names the layer.

        Raises:
            ConfigurationError: `before_prompt` is set.
        """
        if self.before_prompt is not None:
            raise ConfigurationError(
                f"{of} hands lines on as they come, so a transport with before_prompt cannot hold its prompts back: "
                "use that wrapper below a Query, or wait in its write()",
                option="before_prompt",
            )


@runtime_checkable
class TransportLike(Protocol):
    """Any object with the six methods of a transport: the type of what `Query` and the wrappers accept.

    The methods are `connect`, `write`, `read_messages`, `end_input`, `close` and `is_ready`. Transports of the official SDK have them, too.
    `isinstance()` checks only that the methods exist.
    """

    async def connect(self) -> None: ...
    async def write(self, data: str) -> None: ...
    def read_messages(self) -> AsyncIterator[dict[str, Any]]: ...
    async def end_input(self) -> None: ...
    async def close(self) -> None: ...
    def is_ready(self) -> bool: ...


class Transport(ABC):
    """The base class of all transports: a two-way stream of JSON lines to one Claude. It connects once and closes once.

    `await connect()` first. Then `await write(line)`, from any task, and `async for message in read_messages()`, in one task. `await
    end_input()` says that nothing more will be written; reading goes on. `await close()` ends it in every case. `is_ready()` is True while
    lines can be written. `async with` connects and closes.

    * `truth.always`: it is true in a boolean context, whatever its state, and has no length.

    (The official SDK's client replaces a transport whose truth value is False.)
    """

    @abstractmethod
    async def connect(self) -> None:
        """Make the connection, for example start the process. When it returns, `is_ready()` is True.

        * `connect.not-ready-before`: `is_ready()` is False until then.
        * `connect.ready-after`: and True from then on.
        * `connect.twice-is-noop`: connecting a connected transport does nothing.
        * `connect.failure-is-clean`: a failure leaves nothing behind, and `connect()` may be tried again.
        * `connect.cancel-is-clean`: so does a cancellation.
        * `connect.closed-meanwhile`: a `close()` that comes while it waits wins, and nothing stays open.
        * `connect.once-closed-stays-closed`: after `close()` it raises `TransportClosed`.

        Raises:
            ConfigurationError: the options cannot be run (`CLINotFoundError`: there is no `claude`).
            CLIConnectionError: the connection could not be made. Nothing was sent.
        """

    @abstractmethod
    async def write(self, data: str | bytes) -> None:
        """Send `data` to the peer: one or more whole lines of JSON.

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
          this side reads.

        Raises:
            UsageError: the transport is not open for writing (`NotConnected`, `InputClosed`), or the data is not text.
            TransportClosed: the peer is gone. It carries the exit code, the signal and the end of standard error, when they are known.
        """

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the messages of the peer, one at a time, as dicts. The official SDK reads this way.

        * `read.order`: in the order they were sent.
        * `read.any-chunking`: however the bytes were cut on their way, also inside a UTF-8 sequence.
        * `read.only-newline-ends-a-line`: only the byte 0x0A ends a line: U+2028, U+2029 and U+0085 inside a string are data, and a
          CR before it is dropped.
        * `read.skips-noise`: lines that hold no JSON object are left out.
        * `read.bad-line-costs-one-line`: so is a corrupt line, and the next one is delivered.
        * `read.line-limit`: so is a line over the limit; memory stays bounded.
        * `read.left-out-is-logged`: what was left out is logged as a warning, blank lines excepted.
        * `read.left-out-is-counted`: a transport that has an `info` of its own counts there what was left out.
        * `read.final-line-without-newline`: a complete last line counts without its newline.
        * `read.truncated-tail-is-reported`: an incomplete one raises `TruncatedStream`, after everything before it. When the peer failed as
          well, it is the `__cause__` of that error.
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
        """End the input of the peer: tell it that nothing more will be written.

        * `end.half-close`: reading goes on until the peer ends.
        * `end.idempotent`: ending twice does nothing.

        For the CLI this means "no more input", not "stop". The running turn finishes first. Hooks, permissions and MCP servers in this
        process can no longer be asked (docs/reference/protocol.md#end-of-input).
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection and release everything that belongs to it, in bounded time, whatever the peer does.

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
        """Return True from a successful `connect()` until the transport is closed, or is known to be broken or its peer to be gone.

        * `ready.not-after-close`: it is False once the transport is closed.
        * `ready.not-when-broken`: nor after a reader or a writer has been told that the connection is broken.
        """

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return an iterator over the lines as they came, in batches: raw bytes without newlines, one batch for each chunk that was read.

        `Query`, recorders, metrics and gateways read this way. It ends and fails as `read_messages()` does. The default encodes the dicts
        of `read_messages()`. So a transport with only the six methods works everywhere, at the price of decoding twice.

        * `lines.same-messages`: it gives the same messages: batches of one line each or more, without terminators.
        * `lines.same-position`: both views are of one stream: what one of them has read, the other does not repeat or lose.
        """
        return _EncodedMessages(self.read_messages())

    @property
    def info(self) -> TransportInfo:
        """What is known about the connection at this moment. The default knows only the name of the class."""
        return TransportInfo(kind=type(self).__name__)

    @property
    def confidential(self) -> Confidential:
        """What `redactor_for()` has to know of this transport. A wrapper tells what the wrapped transport tells. The default is empty.

        Override it in a transport that holds a token, an environment or options, so that they are removed from tapes, logs and spans.
        """
        return Confidential()

    def attach(self, client: Client) -> SessionTerms:
        """Tell the transport about `client`, the layer above it. Returns what the transport asks of that layer, as `SessionTerms`.

        `Query` calls this before `connect()`. A transport that starts a CLI turns on what `client.answers` needs. It also hands
        `client.trace` on: to a process in its environment (`TRACEPARENT`, `TRACESTATE`), to a server in the request. The method may be
        called again, and the last call counts. A wrapper attaches the wrapped transport and may add to its terms. The default ignores
        `client` and returns empty `SessionTerms`.

        Raises:
            ConfigurationError: the CLI already runs without what `client` needs, or an option prevents it; the error names the option.
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


_METHODS = ("connect", "write", "read_messages", "end_input", "close", "is_ready")


def check_transport(transport: object, *, of: str, option: str = "transport") -> None:
    """Check that the argument `option` of the class or function `of` is a transport; when it is a function, that it has returned one.

    Every wrapper and everything that takes a transport calls it, so that a wrong argument is refused where it is given.

    Raises:
        ConfigurationError: `transport` is a class, or has not the six methods.
    """
    name, must = f"{of}: {option}", "be" if option == "transport" else "return"
    if isinstance(transport, type):
        message = f"{name} must {must} a Transport, not the class {transport.__name__}: pass an instance"
        raise ConfigurationError(message, option=option)
    missing = [method for method in _METHODS if not callable(getattr(transport, method, None))]
    if missing:
        what = "None" if transport is None else f"{type(transport).__name__}, which has no {', '.join(missing)}"
        raise ConfigurationError(f"{name} must {must} a Transport, not {what}", option=option)


def check_transport_maker(make_transport: object) -> None:
    """Check that the argument `make_transport` is a plain function or None. Raises `ConfigurationError`."""
    if make_transport is not None and (not callable(make_transport) or inspect.iscoroutinefunction(make_transport)):
        what = "an async one" if callable(make_transport) else type(make_transport).__name__
        message = f"make_transport must be a function that takes the options and returns a transport, not {what}"
        raise ConfigurationError(message, option="make_transport")


def attach_to(transport: TransportLike, client: Client) -> SessionTerms:
    """Call `transport.attach(client)` and return the terms; empty terms for a transport that has only the six methods.

    Raises:
        UsageError: `attach()` has returned something else than `SessionTerms`, for example because it lacks a `return`.
    """
    if not isinstance(transport, Transport):
        return SessionTerms()
    terms: object = transport.attach(client)
    if not isinstance(terms, SessionTerms):
        what = "None" if terms is None else type(terms).__name__
        raise UsageError(f"{type(transport).__name__}.attach() returned {what}, not SessionTerms")
    return terms


def confidential_of(transport: TransportLike) -> Confidential:
    """Return `transport.confidential`; nothing for a transport that has only the six methods."""
    return transport.confidential if isinstance(transport, Transport) else Confidential()


def info_of(transport: TransportLike) -> TransportInfo:
    """Return `transport.info`; for a transport without one, a `TransportInfo` that only names its class."""
    info = getattr(transport, "info", None)
    return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(transport).__name__)


def read_lines_of(transport: TransportLike) -> AsyncIterator[Sequence[bytes]]:
    """Return `transport.read_lines()`; for a transport without that method, the encoded messages of `read_messages()`."""
    read_lines = getattr(transport, "read_lines", None)
    if read_lines is not None:
        lines: AsyncIterator[Sequence[bytes]] = read_lines()
        return lines
    return _EncodedMessages(transport.read_messages())


class PouredLines(ABC):
    """The iterator of a `read_lines()` that can also push its batches, without waking a task for each of them."""

    @abstractmethod
    def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> Coroutine[Any, Any, bool]:
        """Call `hand_on(batch)` for each batch until it returns True; return True then, and False when the peer has ended well.

        `hand_on` may be called outside every task of the caller, so it must neither wait nor start anything. Errors of the iteration and
        of `hand_on` are raised. No line is lost when the call ends or is cancelled.
        """


class PouredBlocks(ABC):
    """The iterator of a `read_lines()` that can also push its lines undivided, for a proxy that hands them on as they are."""

    @abstractmethod
    async def pour_blocks(self, hand_on: Callable[[LineBlock], bool]) -> bool:
        """Call `hand_on(block)` for each block of whole lines, as `PouredLines.pour()` does with batches."""


class DecodedLines:
    """The iterator of a `read_messages()` that decodes batches of lines: the objects on them, as dicts.

    Args:
        next_batch: returns the next lines; raises `StopAsyncIteration` at the end.
        pending: lines that were read and not yet handed out. The transport owns it, so leaving the iteration loses nothing.
        decoder: the decoder of the transport; a strict one raises an error for a line that holds no message.
        on_failure: called for each line that holds no message.
    """

    def __init__(
        self,
        next_batch: Callable[[], Awaitable[Sequence[bytes]]],
        *,
        pending: deque[bytes],
        decoder: LineDecoder,
        on_failure: OnFailure | None,
    ) -> None:
        self._next_batch = next_batch
        self._pending = pending
        self._on_failure = on_failure
        self._decoder = decoder
        self._received = len(pending)
        self._counted = 0  # lines of these that the decoder knows of

    def __aiter__(self) -> Self:
        return self

    # This runs for each message: one more coroutine on the way costs 6 % of reading small messages.
    async def __anext__(self) -> dict[str, Any]:
        pending = self._pending
        while True:
            if not pending:
                pending.extend(await self._next_batch())
                self._received += len(pending)
            line = pending.popleft()
            if line.__class__ is bytes:
                try:
                    return decode_dict(line)
                except REFUSED:
                    pass  # read below, more leniently
            # the number of the line is a part of what is said about it
            self._decoder.note_dicts(max(self._received - len(pending) - 1 - self._counted, 0))
            self._counted = self._received - len(pending)
            message = self._decoder.as_dict(line)
            if isinstance(message, dict):
                return message
            if message is not None and self._on_failure is not None:
                self._on_failure(message)


class _EncodedMessages:
    """Batches of one encoded message each."""

    def __init__(self, messages: AsyncIterator[dict[str, Any]]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        message: object = await anext(self._messages)
        if not isinstance(message, Mapping):
            raise UsageError(f"read_messages() yielded {type(message).__name__}, not a dict")
        return (encode_line(message)[:-1],)

    async def aclose(self) -> None:
        """Close the iterator of the messages, if it can be closed."""
        aclose = getattr(self._messages, "aclose", None)
        if aclose is not None:
            await aclose()
