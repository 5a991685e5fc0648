"""One attempt at a call through a `codex app-server` process. Loaded only where Codex answers.

`check_for_codex` refuses what Codex cannot do, before any process is started. `CodexPath` starts the process, sends the prompt, and passes
on the messages that `claude` would send for the same (`codex_messages`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from claude_transport.codex.conversation import CodexTurnResult
from claude_transport.codex.session import CodexSession
from claude_transport.completion.classification import classify_codex_exception
from claude_transport.completion.codex_messages import CodexTranslation
from claude_transport.completion.codex_request import CodexCall, input_of
from claude_transport.completion.request import NO_EXIT_CODE, CompletionRequest, end_of
from claude_transport.completion.resolution import AgentResolution, Resolution, TransportKind
from claude_transport.errors import ClaudeTransportError, ConfigurationError, ResultError
from claude_transport.launch.credentials import CredentialReport, Payer
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import ResultMessage
from claude_transport.transport import TransportLike


def call_of(request: CompletionRequest) -> CodexCall:
    """Return what this call asks of Codex."""
    return CodexCall(request.options, request.codex, arguments=request.arguments, plain=request.plain)


def check_for_codex(request: CompletionRequest, agent: AgentResolution, resolution: Resolution) -> CredentialReport | None:
    """Check that Codex can answer this call, and return the credential that it would use, as far as can be told before it runs: None for a
    transport of the caller, which may lead to another machine.

    Raises `ConfigurationError` that names the option which Codex cannot honour.
    """
    if request.fallback:
        raise ConfigurationError("fallback: a call to Codex cannot fall back to the Messages API. Remove it", option="fallback")
    call = call_of(request)
    call.check(agent, resolution)
    input_of(request.prompt)
    return call.credential(os.environ) if request.make_transport is None else None


class CodexPath:
    """One attempt through a `codex` process. Call `run()` once: it starts the process, and ends it in every case."""

    kind: TransportKind = "cli"

    def __init__(self, request: CompletionRequest, *, payer: Payer = "unknown", api_key_source: str | None = None) -> None:
        self._request = request
        self._call = call_of(request)
        self.dispatched: bool = False
        """Whether the prompt may have reached Codex."""
        self.payer: Payer = payer
        self.api_key_source: str | None = api_key_source
        self.exit_code: int | None = NO_EXIT_CODE
        self.stderr_tail: str = ""
        self.may_have_acted: bool = False
        """Whether the model has answered, and the turn went on: it called a tool then. Codex shows no item for a command that its sandbox
        stopped."""

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Send the prompt, and pass every message to `hear` until the turn has ended, then a result.

        Raises `ClaudeTransportError` with a fixed message (see `classification`), also for a turn that failed.
        """
        transport: TransportLike | None = None
        try:
            transport = self._request.transport_with(self._call.options)
            resume, settings = self._request.options.resume, self._call.thread_settings
            patience = self._request.close_timeout
            async with CodexSession(transport, resume=resume, thread=settings, close_timeout=patience) as session:
                schema = self._call.schema
                translation = CodexTranslation(session_id=session.thread_id, model=session.thread.data.model, schema=schema)
                hear(translation.begin(api_key_source=self.api_key_source))
                self.dispatched = True
                turn = await session.send(input_of(self._request.prompt), **({} if schema is None else {"outputSchema": schema}))
                async for message in turn:
                    for said in translation.read(message):
                        hear(said)
                    self.may_have_acted = translation.answers > 0
                ended = await turn.result()
                result = translation.result(ended)
                hear(result)
                _raise_for_error(ended, result)
        except ClaudeTransportError as exc:
            classified = classify_codex_exception(exc)
            if classified is exc:
                raise
            raise classified from exc
        finally:
            self.exit_code, self.stderr_tail = end_of(transport)


def _raise_for_error(ended: CodexTurnResult, result: ResultMessage) -> None:
    """Raise the error of a turn that did not complete, with what Codex wrote as its cause."""
    try:
        ended.raise_for_error()
    except ResultError as error:
        error.result = result
        raise
