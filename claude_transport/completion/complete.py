"""`complete()`: one prompt, one answer, through the CLI or the API."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import anyio

from claude_transport.background import BackgroundTask, HostLoop
from claude_transport.backoff import RetryPolicy
from claude_transport.completion.call import Call, OnEvent, Sleep
from claude_transport.completion.completion import Completion
from claude_transport.completion.request import CompletionRequest, Prompt, build_request
from claude_transport.completion.resolution import TransportChoice
from claude_transport.errors import UsageError
from claude_transport.launch.options import BillingPolicy, ClaudeOptions

# --- `stream()`: one prompt, its answer as it is written, through the CLI or the API.


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
