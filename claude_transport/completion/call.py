"""`Call`: one call, made as often as it takes, on the path that was chosen: the engine of `complete()` and `stream()`."""

from __future__ import annotations

import inspect
import logging
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import anyio
import anyio.to_thread
import msgspec

from claude_transport.background import BackgroundTask, HostLoop
from claude_transport.backoff import RetryPolicy
from claude_transport.client.query import Query
from claude_transport.client.storage import AllMessages, Turn
from claude_transport.completion.api_path import APIPath
from claude_transport.completion.assembly import TextFlow, advise, assemble, may_have_side_effects
from claude_transport.completion.classification import classify_cli_exception, classify_result, retry_after_of
from claude_transport.completion.classification import timed_out as error_of_timeout
from claude_transport.completion.completion import Completion, attach_completion
from claude_transport.completion.models import cost_of
from claude_transport.completion.readiness import check_billing, preflight
from claude_transport.completion.request import CompletionRequest, Prompt, build_request, find_credential
from claude_transport.completion.resolution import TRANSPORT_VARIABLE, Resolution, TransportChoice, TransportKind, resolve_transport
from claude_transport.errors import (
    APIFailed,
    ClaudeTransportError,
    CLINotFoundError,
    ConfigurationError,
    MissingResult,
    NotExecutableError,
    SpawnError,
    UsageError,
)
from claude_transport.launch.credentials import Payer
from claude_transport.launch.discovery import find_cli
from claude_transport.launch.options import BillingPolicy, ClaudeOptions
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import InitMessage, StreamEvent
from claude_transport.transports.subprocess import SubprocessTransport

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[object]]
OnEvent = Callable[[Message], object]


async def complete(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    transport: TransportChoice | None = None,
    declared: str | Mapping[str, Any] | None = None,
    timeout: float = 300.0,
    billing: BillingPolicy = "inherit",
    retry: RetryPolicy | None = None,
    heuristics: bool = True,
    subject: str | None = None,
    options: ClaudeOptions | None = None,
    fallback: bool = False,
    on_event: OnEvent | None = None,
    sleep: Sleep = anyio.sleep,
) -> Completion:
    """The answer to `prompt`, through the CLI or the Messages API: the same result, the same errors, the same retries.

    Args:
        prompt: text, or content blocks as the Messages API has them.
        model: a full name, or an alias as the CLI knows them (`haiku`); None is the path's default.
        system: the system prompt. Without options there is none on either path.
        max_tokens: of each API request. The CLI goes on three times by itself before it gives up.
        transport: `cli`, `api` or `auto`; None asks the environment (`CLAUDE_TRANSPORT`), then `declared`, and then it is `auto`.
        declared: what a project declares: the value, or the mapping that holds it under `transport`.
        timeout: seconds for the whole call, all attempts and waits included; `math.inf` for no limit.
        billing: who may pay, as `ClaudeOptions.billing`; `inherit` leaves it to `options`.
        retry: how often, after which failures; None is `RetryPolicy()`. Never after a tool was called, or into a session with a name.
        heuristics: whether to look for runs that report success and are none (warnings and a category, never an error).
        subject: what this call is about: put behind log lines and beside errors, so that many calls can be told apart.
        options: how to run the CLI, complete; None runs it with no tools, no servers and no system prompt. What the API path cannot do
            for them it refuses to leave out.
        fallback: whether the API may be asked, and paid, when the CLI has failed before it was given the prompt. The result says so.
        on_event: told each message as it comes, of every attempt: what will be in `Completion.events`, so the tools that the CLI calls and
            what they said. An ordinary function. When it raises, that is logged, and it is told nothing more.
        sleep: does the waiting between attempts, in seconds; give your own to wait without time passing.

    Raises `ClaudeTransportError`; `partial_completion(error)` is what there was of the call:

        ResultError: the run failed: `RateLimited`, `Overloaded`, `AuthFailed`, `BillingFailed`, `ModelNotFound`, `APIFailed`, ….
        MissingResult: there was no answer; with code `exec.cli.timeout`, not in `timeout` seconds.
        CLINotFoundError, CLIConnectionError, ProcessError: the CLI path broke; these never come from the API path.
        ProtocolError: the CLI, or the API, said something that its protocol does not allow.
        ConfigurationError, UsageError: it cannot be done as asked.
    """
    request = build_request(
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        billing=billing,
        options=options,
        transport=transport,
        declared=declared,
        timeout=timeout,
        retry=RetryPolicy() if retry is None else retry,
        heuristics=heuristics,
        subject=subject,
        fallback=fallback,
    )
    return await Call(request, on_event=on_event, sleep=sleep).run()


def stream(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    transport: TransportChoice | None = None,
    declared: str | Mapping[str, Any] | None = None,
    timeout: float = 300.0,
    billing: BillingPolicy = "inherit",
    retry: RetryPolicy | None = None,
    heuristics: bool = True,
    subject: str | None = None,
    options: ClaudeOptions | None = None,
    fallback: bool = False,
    on_event: OnEvent | None = None,
    sleep: Sleep = anyio.sleep,
) -> CompletionStream:
    """The answer to `prompt`, piece by piece: `async for piece in stream("Hello"): ...`. Safe to break out of.

    Takes what `complete()` takes, and iterating raises what it raises. The pieces add up to the text; after the last one, `.completion`
    is the whole `Completion`. Once there was a piece, a failure is final: another attempt would begin another answer.
    The pieces wait for a reader who is slower than the model; `timeout` is the model's time, not the reader's.
    """
    request = build_request(
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        billing=billing,
        options=options,
        transport=transport,
        declared=declared,
        timeout=timeout,
        retry=RetryPolicy() if retry is None else retry,
        heuristics=heuristics,
        subject=subject,
        fallback=fallback,
    )
    return CompletionStream(request, on_event=on_event, sleep=sleep)


class CompletionStream:
    """The iteration behind `stream()`. `aclose()` ends it early; so do leaving its `async with`, an error, and dropping it."""

    def __init__(self, request: CompletionRequest, *, on_event: OnEvent | None = None, sleep: Sleep = anyio.sleep) -> None:
        self._flow = _Flow(request, on_event, sleep)
        # an object and a task of its own, not a generator: those must be finished where they were begun
        weakref.finalize(self, self._flow.abandon).atexit = False

    @property
    def completion(self) -> Completion:
        """The whole answer, once the iteration has ended. Raises `UsageError` before, and when it has failed or was left early."""
        if self._flow.completion is None:
            raise UsageError("there is no whole answer: the stream has not come to its end")
        return self._flow.completion

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            piece = await self._flow.next()
        except BaseException:
            await self.aclose()
            raise
        if piece is None:
            await self.aclose()
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End it now, and wait until nothing of it is left; from any task, and again."""
        await self._flow.aclose()


class _Flow:
    """What a stream and the task that fills it share. It does not know the stream, so that one may be dropped while it is filled."""

    def __init__(self, request: CompletionRequest, on_event: OnEvent | None, sleep: Sleep) -> None:
        self._call = Call(request, on_text=self._put, on_event=on_event, sleep=sleep)
        # not bounded: an answer is no longer than the model may make it, and holding the model up would use up its time
        self._pieces: deque[str] = deque()
        self._news = anyio.Event()
        self._task: BackgroundTask | None = None
        self._loop: HostLoop | None = None
        self._error: Exception | None = None
        self._over = False
        self.completion: Completion | None = None

    async def next(self) -> str | None:
        """The next piece; None when there is none any more. Raises what the call failed with, once, behind the last piece."""
        if self._task is None and not self._over:
            self._loop = HostLoop()
            self._task = BackgroundTask.spawn(self._run, name="claude stream", at_end=self._end)
        while not self._pieces:
            if self._over:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                return None
            if self._news.is_set():  # replaced before the wait: after it, another reader may be waiting for the new one already
                self._news = anyio.Event()
            await self._news.wait()
        return self._pieces.popleft()

    async def aclose(self) -> None:
        self._over = True
        self._pieces.clear()
        if self._task is not None:
            self._task.cancel()
            await self._task.join()

    def abandon(self) -> None:
        """Begin to end without waiting for it, from any thread."""
        task, loop = self._task, self._loop
        if task is not None and loop is not None and not task.finished:
            loop.call_soon(_canceller(task))

    async def _run(self) -> None:
        try:
            self.completion = await self._call.run()
        except Exception as exc:  # noqa: BLE001 - the reader gets it, whatever it is
            self._error = exc

    def _put(self, piece: str) -> None:
        if not self._over:  # until it is gone, the task may still hear something
            self._pieces.append(piece)
            self._news.set()

    def _end(self) -> None:
        self._over = True
        self._news.set()


def _canceller(task: BackgroundTask) -> Callable[[], object]:
    return task.cancel


# --- `CLIPath`: one attempt at a call through a `claude` of its own.


NO_EXIT_CODE: Final = -1
"""The exit code of a run that has none: the CLI was never started, or was ended by a signal or by the timeout."""

_SETTLE: Final = 2.0
"""Seconds that a CLI gets to say that it is idle, once there is a result. It says so within milliseconds; an older one never does."""


class CLIPath:
    """One attempt: `run()` it once. The process is started for it, and gone when it is over, however that comes about."""

    kind: TransportKind = "cli"

    def __init__(self, request: CompletionRequest, *, payer: Payer = "unknown") -> None:
        self._request = request
        self.dispatched: bool = False
        """Whether the prompt may have reached the CLI."""
        self.payer: Payer = payer
        self.api_key_source: str | None = None
        self.exit_code: int | None = NO_EXIT_CODE

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Ask, and tell `hear` every message, until there is a result and nothing is left at work that will add to it.

        Returns also when the CLI ends well without a result. Raises `ClaudeTransportError` with a fixed sentence (see `classification`);
        a result that reports a failure is not raised.
        """
        transport = SubprocessTransport(self._request.cli_options())
        try:
            async with Query(transport) as query:
                everything = query.messages()
                self.dispatched = True
                turn = await query.send(self._request.prompt)
                while (message := await _next(everything, query=query, turn=turn)) is not None:
                    self._note(message)
                    hear(message)
        except ClaudeTransportError as exc:
            classified = classify_cli_exception(exc)
            if classified is exc:
                raise
            raise classified from exc
        finally:
            if transport.info.exit_code is not None:
                self.exit_code = transport.info.exit_code

    def _note(self, message: Message) -> None:
        if isinstance(message, InitMessage) and message.api_key_source and self.api_key_source is None:
            self.api_key_source = message.api_key_source
            if message.api_key_source != "none" and self.payer != "cloud account":
                self.payer = "api account"  # the CLI knows better than we what it has found


async def _next(everything: AllMessages, *, query: Query, turn: Turn) -> Message | None:
    """The next message of the run; None when it is over: the prompt has its end, and no agent is at work whose words are still to come."""
    message = everything.take()
    if message is not None:
        return message
    if turn.is_open():
        return await anext(everything, None)
    if query.is_quiet:
        return None  # never so after a bad end, which the next line raises
    with anyio.move_on_after(math.inf if query.background_tasks else _SETTLE):
        return await anext(everything, None)
    return None


def find_payer(options: ClaudeOptions) -> Payer:
    """Who would pay for a call to the CLI, as far as can be told before anything runs; looks at the disk."""
    found = preflight("cli", options=options).cli_credential
    return "unknown" if found is None else found.payer


# --- Said once per process: a call whose path nobody chose goes through the CLI (S1.4).


_logger = logging.getLogger("claude_transport.completion")
_logger.addHandler(logging.NullHandler())  # without one, logging itself would write warnings to stderr

_WHO: Final[dict[Payer, str]] = {
    "subscription": "the subscription pays",
    "api account": "an API account pays, because its key wins over the login",
    "cloud account": "a cloud account pays",
    "token owner": "the owner of ANTHROPIC_AUTH_TOKEN pays",
    "nobody": "no credential was found for it",
    "unknown": "its login pays",
}


def announcement_of(resolution: Resolution, *, payer: Payer = "unknown") -> str | None:
    """The line that is due for this resolution: only for `auto` that came to the CLI. An explicit choice surprises nobody."""
    if resolution.kind != "cli" or resolution.choice != "auto":
        return None
    return f'using the Claude CLI ({_WHO[payer]}); transport="api" or {TRANSPORT_VARIABLE}=api chooses the API instead'


class Announcer:
    """Says it the first time, from any thread, and never again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_spoken = False

    def announce(self, resolution: Resolution, *, payer: Payer = "unknown", say: Callable[[str], object] | None = None) -> bool:
        """Whether it was said now. `say` gets the line in place of the log; what it raises is the caller's."""
        text = announcement_of(resolution, payer=payer)
        if text is None:
            return False
        with self._lock:
            if self._has_spoken:
                return False
            self._has_spoken = True
        if say is None:
            _logger.warning("%s", text)
        else:
            say(text)
        return True


_of_this_process = Announcer()


def announce(resolution: Resolution, *, payer: Payer = "unknown", say: Callable[[str], object] | None = None) -> bool:
    """Say it once in this process; see `Announcer.announce`."""
    return _of_this_process.announce(resolution, payer=payer, say=say)


class Path(Protocol):
    """One attempt on one of the two paths."""

    @property
    def kind(self) -> TransportKind: ...
    @property
    def dispatched(self) -> bool: ...
    @property
    def payer(self) -> Payer: ...
    @property
    def api_key_source(self) -> str | None: ...
    @property
    def exit_code(self) -> int | None: ...
    async def run(self, hear: Callable[[Message], object]) -> None: ...


class Call:
    """One call: `run()` it once.

    Args:
        request: what is asked.
        on_text: told each piece of the answer's text as it is written. Once it was told one, there is no other attempt.
        on_event: told each message of each attempt as it comes. When it raises, that is logged, and it is told nothing more.
        sleep: does the waiting between attempts, in seconds.
    """

    def __init__(
        self,
        request: CompletionRequest,
        *,
        on_text: Callable[[str], object] | None = None,
        on_event: OnEvent | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        _check_observer(on_event)
        self._request = request
        self._on_text = on_text
        self._on_event = on_event
        self._sleep = sleep
        self._errors: list[ClaudeTransportError] = []
        self._earlier_attempts = 0
        self._started = 0.0

    async def run(self) -> Completion:
        """The completion of the first attempt that succeeds; raises the error of the last one that does not."""
        self._started = anyio.current_time()
        request = self._request
        try:
            plan = await _in_thread(_plan, request)
        except ClaudeTransportError as exc:
            self._note_unplanned(exc)
            raise
        notes: tuple[str, ...] = ()
        while True:
            attempt = _Attempt(request, plan, notes=notes, on_text=self._on_text, on_event=self._tell)
            error = await attempt.run(timeout=self._time_left)
            if error is None:
                return self._finished(attempt)
            delay = self._delay_after(error, attempt)
            if delay is not None:
                logger.info("attempt %d failed (%s); again in %.1f s%s", self._attempts + 1, error.code, delay, self._subject)
                self._errors.append(error)
                await self._sleep(delay)
            elif self._time_left > 0 and attempt.may_fall_back(error) and await _in_thread(_has_key, request):
                logger.warning("the CLI cannot be used (%s); this call goes to the API instead%s", error.code, self._subject)
                self._earlier_attempts += len(self._errors) + 1
                self._errors = []
                notes = (f"fallback: the API was asked, because the CLI failed before it was given the prompt ({error.code})",)
                plan = _Plan(_fallen_back(plan.resolution, error))
            else:
                raise self._failed(error, attempt)

    def _tell(self, event: Message) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            # what watches a call must not decide how it ends
            self._on_event = None
            logger.exception("on_event failed: it is told nothing more of this call")

    @property
    def _attempts(self) -> int:
        """Attempts that are over and have failed."""
        return self._earlier_attempts + len(self._errors)

    @property
    def _time_left(self) -> float:
        return self._started + self._request.timeout - anyio.current_time()

    @property
    def _subject(self) -> str:
        return f" ({self._request.subject})" if self._request.subject else ""

    def _delay_after(self, error: ClaudeTransportError, attempt: _Attempt) -> float | None:
        """Seconds until the next attempt; None when there is none."""
        delay = self._request.retry.next_delay(
            error, earlier=self._errors, retry_after=retry_after_of(error), side_effects=attempt.has_left_traces
        )
        # a wait that ends when the time is up would only make the caller wait for the same error
        return None if delay is None or delay >= self._time_left else delay

    def _finished(self, attempt: _Attempt) -> Completion:
        completion = attempt.completion(attempts=self._attempts + 1, duration=anyio.current_time() - self._started)
        logger.info("apiKeySource=%s, paid by %s%s", completion.api_key_source, completion.billing_source, self._subject)
        return completion

    def _note_unplanned(self, error: ClaudeTransportError) -> None:
        """Let `error`, which came before a path was chosen, remember what there was of the call: the time that it took."""
        kind: TransportKind = "api" if self._request.transport == "api" else "cli"
        completion = Completion(
            text="",
            transport=kind,
            resolution=Resolution(kind=kind, layer="argument" if self._request.transport else "default", reason=str(error)),
            exit_code=NO_EXIT_CODE if kind == "cli" else None,
            duration=anyio.current_time() - self._started,
            attempts=0,
            category=error.category,
        )
        attach_completion(error, completion)

    def _failed(self, error: ClaudeTransportError, attempt: _Attempt) -> ClaudeTransportError:
        """`error`, with what there was of the call."""
        attempts = self._attempts + 1
        attach_completion(error, attempt.completion(attempts=attempts, duration=anyio.current_time() - self._started))
        if attempts > 1:
            error.add_note(f"{attempts} attempts were made")
        if self._request.subject:
            error.add_note(f"subject: {self._request.subject}")
        return error


class _Attempt:
    """One attempt, and what it has heard."""

    def __init__(
        self,
        request: CompletionRequest,
        plan: _Plan,
        *,
        notes: tuple[str, ...],
        on_text: Callable[[str], object] | None,
        on_event: OnEvent,
    ) -> None:
        self._request = request
        self._on_event = on_event
        self._resolution = plan.resolution
        self._notes = notes
        self._on_text = on_text
        self._path: Path = CLIPath(request, payer=plan.payer) if plan.resolution.kind == "cli" else APIPath(request)
        self._messages: list[Message] = []
        self._flow = TextFlow()
        self._calls_tools = False
        self._error: ClaudeTransportError | None = None

    async def run(self, *, timeout: float) -> ClaudeTransportError | None:
        """The error it failed with; None when there is an answer."""
        raised = None
        with anyio.move_on_after(timeout) as scope:
            try:
                await self._path.run(self._hear)
            except ClaudeTransportError as exc:
                raised = exc
        self._error = self._error_of(raised, timed_out=scope.cancel_called)
        return self._error

    def _error_of(self, raised: ClaudeTransportError | None, *, timed_out: bool) -> ClaudeTransportError | None:
        """What the attempt failed with: what was `raised`, what its result says, or that there is none. What came after it is too late."""
        assembly = assemble(self._messages)
        if assembly.failure is not None and raised is None:
            return classify_result(assembly.failure)
        if timed_out and assembly.result is None:
            late = error_of_timeout(self._path.kind, seconds=self._request.timeout, messages=self._messages)
            late.__cause__ = raised
            return late
        if raised is None and assembly.result is None and not assembly.text:
            return classify_cli_exception(MissingResult("the conversation ended without a result", messages=self._messages))
        return raised

    def _hear(self, message: Message) -> None:
        self._calls_tools = self._calls_tools or may_have_side_effects((message,))
        if not isinstance(message, StreamEvent) or self._request.options.include_partial_messages:
            self._messages.append(message)
            self._on_event(message)
        piece = self._flow.hear(message)
        if piece and self._on_text is not None:
            if self._flow.was_taken_back:
                raise _begun_again()
            self._on_text(piece)

    @property
    def has_left_traces(self) -> bool:
        """Whether the attempt may have changed anything that another one would change again, or find changed."""
        if self._on_text is not None and (self._flow or self._flow.was_taken_back):
            return True  # somebody has read the beginning, and another attempt would begin otherwise
        said = self._path.dispatched and self._path.kind == "cli" and self._request.names_a_session
        return self._calls_tools or said

    def may_fall_back(self, error: ClaudeTransportError) -> bool:
        """Whether `error` of the CLI path is one that the API path may make good: nobody was asked yet, and nobody has asked wrongly."""
        if not self._request.fallback or self._path.kind != "cli" or self._path.dispatched or isinstance(error, UsageError):
            return False
        return not isinstance(error, ConfigurationError) or isinstance(error, CLINotFoundError)

    def completion(self, *, attempts: int, duration: float) -> Completion:
        """What it came to, or what there is of it."""
        assembly = assemble(self._messages)
        api = self._path.kind == "api"
        timed_out = self._error is not None and self._error.code == "exec.cli.timeout"
        advice = advise(self._messages) if self._request.heuristics and self._error is None else None
        cost = cost_of(assembly.model or "", usage=assembly.usage) if api and assembly.result is not None else assembly.cost_usd
        # an answer that was cut off has not all of its text in whole messages
        text = assembly.text if assembly.result is not None else self._flow.text or assembly.text
        return Completion(
            text=text,
            text_blocks=assembly.text_blocks or ((text,) if text else ()),
            usage=assembly.usage,
            cost_usd=cost,
            model=assembly.model,
            stop_reason=assembly.stop_reason,
            transport=self._path.kind,
            resolution=self._resolution,
            api_key_source=self._path.api_key_source or assembly.api_key_source,
            billing_source=self._path.payer,
            session_id=assembly.session_id,
            exit_code=NO_EXIT_CODE if timed_out and not api else self._path.exit_code,
            duration=duration,
            attempts=attempts,
            warnings=(*self._notes, *assembly.warnings, *(() if advice is None else (advice.warning,))),
            category=self._error.category if self._error is not None else None if advice is None else advice.category,
            events=assembly.events,
        )


def _check_observer(on_event: object) -> None:
    if on_event is not None and (not callable(on_event) or inspect.iscoroutinefunction(on_event)):
        raise ConfigurationError(f"on_event is an ordinary function, which is called and not awaited, not {on_event!r}", option="on_event")


def _begun_again() -> ClaudeTransportError:
    """For a stream whose reader has the beginning of one answer, and would get the end of another: the API path raises the same."""
    text = "The API could not be reached. (transport=cli, category=transport)"
    return APIFailed(text, code="result.connection_failed", category="transport", retryable=True)


def _fallen_back(resolution: Resolution, error: ClaudeTransportError) -> Resolution:
    reason = f"{resolution.reason}; the CLI failed before it was given the prompt ({error.code}), and a fallback was allowed"
    return msgspec.structs.replace(resolution, kind="api", reason=reason)


class _Plan(msgspec.Struct, frozen=True):
    """Where a call goes first, and who pays for it there."""

    resolution: Resolution
    payer: Payer = "unknown"


def _plan(request: CompletionRequest) -> _Plan:
    """What will be done. Looks for a CLI and a key only when nobody has chosen; raises `ConfigurationError` when there is neither."""
    decide = partial(resolve_transport, request.transport, env=os.environ, declared=request.declared)
    resolution = decide(cli_available=True, api_key_available=True)
    if resolution.choice == "auto":
        resolution = decide(cli_available=_has_cli(request), api_key_available=_has_key(request))
    if resolution.kind == "api":
        return _Plan(resolution)
    payer = find_payer(request.options)
    announce(resolution, payer=payer)
    return _Plan(resolution, payer)


def _has_key(request: CompletionRequest) -> bool:
    """Whether the API path could authenticate, and may be paid for."""
    try:
        check_billing("api", request.options.billing)
    except ConfigurationError:
        return False
    return find_credential(request.options) is not None


def _has_cli(request: CompletionRequest) -> bool:
    try:
        find_cli(request.options.cli_path, env=os.environ)
    except (CLINotFoundError, NotExecutableError):
        return False
    return True


async def _in_thread(func: Callable[[CompletionRequest], T], request: CompletionRequest) -> T:
    try:
        return await anyio.to_thread.run_sync(func, request)
    except RuntimeError as exc:  # "can't start new thread"
        raise SpawnError(f"a call needs a thread to look for claude and for a key: {exc}", path="claude") from exc
