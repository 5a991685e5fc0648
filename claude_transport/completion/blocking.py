"""`complete_sync()` and `stream_sync()`: one call from a program without an event loop, such as a script.

The calls themselves are `complete()` and `stream()` in `call`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from claude_transport.backoff import RetryPolicy
from claude_transport.completion.call import CompletionStream, OnEvent, complete, stream
from claude_transport.completion.completion import Completion
from claude_transport.completion.request import MakeTransport, OnStderr, Prompt
from claude_transport.completion.resolution import AgentChoice, TransportChoice
from claude_transport.errors import TransportClosed, UsageError
from claude_transport.launch.options import AgentOptions, BillingPolicy
from claude_transport.loops.threads import Backend, LoopThread, SyncIterator, refuse_in_a_loop

if TYPE_CHECKING:
    from claude_transport.codex.options import CodexOptions

_REMEDY: Final = "use `await complete(...)`, or call it in a thread, as in `await anyio.to_thread.run_sync(complete_sync, prompt)`"


def complete_sync(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    transport: TransportChoice | None = None,
    declared: str | Mapping[str, Any] | None = None,
    timeout: float = 300.0,
    attempt_timeout: float | None = None,
    close_timeout: float | None = None,
    billing: BillingPolicy = "inherit",
    retry: RetryPolicy | None = None,
    heuristics: bool = True,
    subject: str | None = None,
    options: AgentOptions | None = None,
    fallback: bool = False,
    agent: AgentChoice | None = None,
    codex: CodexOptions | None = None,
    on_event: OnEvent | None = None,
    on_stderr: OnStderr | None = None,
    make_transport: MakeTransport | None = None,
) -> Completion:
    """Ask for one answer to `prompt` and wait for it: `complete()` for programs without an event loop, such as scripts.

    The arguments, the result and the errors are those of `complete()`. Each call runs an event loop of its own, on asyncio.

    Raises:
        UsageError: code `usage.running_loop`: an event loop runs in this thread, which the call would block. Nothing was sent. There, and
            in a notebook, use `await complete(…)`; or call this function in another thread.
    """
    refuse_in_a_loop("complete_sync()", _REMEDY)
    call = partial(
        complete,
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        transport=transport,
        declared=declared,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        close_timeout=close_timeout,
        billing=billing,
        retry=retry,
        heuristics=heuristics,
        subject=subject,
        options=options,
        fallback=fallback,
        agent=agent,
        codex=codex,
        on_event=on_event,
        on_stderr=on_stderr,
        make_transport=make_transport,
    )
    return copy_context().run(_run, call)


def _run(call: Callable[[], Coroutine[Any, Any, Completion]]) -> Completion:
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:  # a thread of asyncio.to_thread() has a copy of the context of its loop, and would seem to run one
        sniffio.current_async_library_cvar.set(None)
    return anyio.run(call)


def stream_sync(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    transport: TransportChoice | None = None,
    declared: str | Mapping[str, Any] | None = None,
    timeout: float = 300.0,
    attempt_timeout: float | None = None,
    close_timeout: float | None = None,
    billing: BillingPolicy = "inherit",
    retry: RetryPolicy | None = None,
    heuristics: bool = True,
    subject: str | None = None,
    options: AgentOptions | None = None,
    fallback: bool = False,
    agent: AgentChoice | None = None,
    codex: CodexOptions | None = None,
    on_event: OnEvent | None = None,
    on_stderr: OnStderr | None = None,
    make_transport: MakeTransport | None = None,
    backend: Backend = "asyncio",
) -> SyncCompletionStream:
    """Ask for one answer to `prompt`, and iterate over its text as it is written: `stream()` for programs without an event loop, such as
    scripts. Use it as `with stream_sync("Hello") as pieces: ...`, or iterate over it directly.

    The arguments, the result and the errors are those of `stream()`. The call runs in an event loop of its own, on `backend`, in a thread
    that ends with it. `on_event` and `on_stderr` are called in that thread. The end of the `with` block, an error of the iteration and a
    Ctrl-C end the call, and wait until its process and thread are gone. A stream that is dropped without `with`, as by `break`, ends the
    call without waiting for that.

    Raises:
        UsageError: code `usage.running_loop`: an event loop runs in this thread, which the call would block. Nothing was sent. Use
            `async for piece in stream(…)` there.
    """
    refuse_in_a_loop("stream_sync()", "use `async for piece in stream(...)`")
    inner = stream(
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        transport=transport,
        declared=declared,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        close_timeout=close_timeout,
        billing=billing,
        retry=retry,
        heuristics=heuristics,
        subject=subject,
        options=options,
        fallback=fallback,
        agent=agent,
        codex=codex,
        on_event=on_event,
        on_stderr=on_stderr,
        make_transport=make_transport,
    )
    return SyncCompletionStream(inner, backend=backend)


class SyncCompletionStream(SyncIterator[str]):
    """The text of one answer, piece by piece: iterate over it with `for`. `stream_sync()` makes it; the call starts with the first piece
    that you ask for.

    After the last piece, `completion` is the whole answer. `close()`, leaving its `with`, an error that the iteration raises, and dropping
    it end the call early. Args: `inner` is the stream to read, and `backend` the event loop to read it on.
    """

    _iterator: CompletionStream

    def __init__(self, inner: CompletionStream, *, backend: Backend = "asyncio") -> None:
        instead = "use `async for piece in stream(...)`"
        loop = LoopThread("stream_sync()", instead=instead, backend=backend, at_end=inner.aclose)
        super().__init__(loop, inner)
        self._closed = False
        weakref.finalize(self, loop.end, wait=False).atexit = False  # at exit, the loop ends by itself, and is waited for

    def __next__(self) -> str:
        if self._closed:
            raise StopIteration
        try:
            return super().__next__()
        except TransportClosed:
            if self._closed:  # by another thread, during this call
                raise StopIteration from None
            self.close()
            raise
        except UsageError:  # a call from an event loop does not end the stream
            raise
        except BaseException:
            self.close()
            raise

    @property
    def completion(self) -> Completion:
        """The whole answer as a `Completion`. Raises `UsageError` before the iteration has ended, and when it failed or was left early."""
        return self._iterator.completion

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the call now, and wait until its process and thread are gone. Safe from any thread and more than once. Iterating then
        ends.
        """
        self._closed = True
        self._loop.end()
