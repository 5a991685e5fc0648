"""`complete_sync()`: one call from a program without an event loop, such as a script.

The call itself is `complete()` in `call`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from claude_transport.background import HostLoop
from claude_transport.backoff import RetryPolicy
from claude_transport.completion.call import OnEvent, complete
from claude_transport.completion.completion import Completion
from claude_transport.completion.request import Prompt
from claude_transport.completion.resolution import AgentChoice, TransportChoice
from claude_transport.errors import UsageError
from claude_transport.launch.options import BillingPolicy, ClaudeOptions

if TYPE_CHECKING:
    from claude_transport.codex.options import CodexOptions


def complete_sync(
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
    agent: AgentChoice | None = None,
    codex: CodexOptions | None = None,
    on_event: OnEvent | None = None,
) -> Completion:
    """Ask for one answer to `prompt` and wait for it: `complete()` for programs without an event loop, such as scripts.

    The arguments, the result and the errors are those of `complete()`. Each call runs an event loop of its own, on asyncio.

    Raises:
        UsageError: code `usage.running_loop`: an event loop runs in this thread, which the call would block. Nothing was sent. There, and
            in a notebook, use `await complete(…)`; or call this function in another thread.
    """
    _refuse_in_a_loop()
    call = partial(
        complete,
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        transport=transport,
        declared=declared,
        timeout=timeout,
        billing=billing,
        retry=retry,
        heuristics=heuristics,
        subject=subject,
        options=options,
        fallback=fallback,
        agent=agent,
        codex=codex,
        on_event=on_event,
    )
    return copy_context().run(_run, call)


def _refuse_in_a_loop() -> None:
    try:
        HostLoop()
    except RuntimeError:
        return  # as it should be: no event loop runs here
    raise UsageError(
        "complete_sync() would block the event loop that runs in this thread: use `await complete(...)`, "
        "or call it in a thread, as in `await anyio.to_thread.run_sync(complete_sync, prompt)`",
        code="usage.running_loop",
    )


def _run(call: Callable[[], Coroutine[Any, Any, Completion]]) -> Completion:
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:  # a thread of asyncio.to_thread() has a copy of the context of its loop, and would seem to run one
        sniffio.current_async_library_cvar.set(None)
    return anyio.run(call)
