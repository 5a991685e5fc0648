"""`complete()`: one prompt, one answer, through the CLI or the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from claude_transport.backoff import RetryPolicy
from claude_transport.completion.call import Call, OnEvent, Sleep
from claude_transport.completion.completion import Completion
from claude_transport.completion.request import Prompt, build_request
from claude_transport.completion.resolution import TransportChoice
from claude_transport.launch.options import BillingPolicy, ClaudeOptions

__all__ = ["complete"]


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
