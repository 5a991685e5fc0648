"""One attempt at a call through a `codex app-server` process. Loaded only where Codex answers.

`plan_codex_call` refuses what Codex cannot do, before any process is started. `CodexPath` starts the process, sends the prompt, and passes
on the messages that `claude` would send for the same (`codex_messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from claude_transport.agents.agent import AskedCall, Attempt, CallPlan
from claude_transport.codex.asking import CodexCall, input_of
from claude_transport.codex.conversation import CodexTurnResult
from claude_transport.codex.session import CodexSession
from claude_transport.codex.translation import CodexTranslation
from claude_transport.completion.classification import classify_codex_exception
from claude_transport.completion.request import NO_EXIT_CODE, end_of
from claude_transport.errors import ClaudeTransportError, ResultError
from claude_transport.launch.credentials import CredentialReport, Payer
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import ResultMessage
from claude_transport.transport import TransportLike


def plan_codex_call(call: AskedCall, env: Mapping[str, str]) -> CallPlan:
    """Check that Codex can answer this call, and find the credential that it would use, as far as can be told before it runs.

    Nothing can be told of a transport of the caller, which may lead to another machine. Raises `ConfigurationError` that names the option
    which Codex cannot honour.
    """
    asked = CodexCall(call)
    asked.check()
    input_of(call.prompt)
    return CallPlan(options=asked.options, credential=None if call.makes_transport else asked.credential(env))


class CodexPath(Attempt):
    """One attempt through a `codex` process.

    It may have acted when the model has answered and the turn went on: it called a tool then. Codex shows no item for a command that its
    sandbox stopped.
    """

    def __init__(self, call: AskedCall, credential: CredentialReport | None = None) -> None:
        self._asked = call
        self._call = CodexCall(call)
        self.payer: Payer = "unknown" if credential is None else credential.payer
        self.api_key_source: str | None = None if credential is None else credential.name
        self.dispatched: bool = False
        self.may_have_acted: bool = False
        self.exit_code: int | None = NO_EXIT_CODE
        self.stderr_tail: str = ""

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Send the prompt, and pass every message to `hear` until the turn has ended, then a result.

        Raises `ClaudeTransportError` with a fixed message (see `classification`), also for a turn that failed.
        """
        transport: TransportLike | None = None
        try:
            transport = self._asked.transport_with(self._call.options)
            resume, settings = self._asked.options.resume, self._call.thread_settings
            patience = self._asked.close_timeout
            async with CodexSession(transport, resume=resume, thread=settings, close_timeout=patience) as session:
                schema = self._call.schema
                translation = CodexTranslation(session_id=session.thread_id, model=session.thread.data.model, schema=schema)
                hear(translation.begin(api_key_source=self.api_key_source))
                self.dispatched = True
                turn = await session.send(input_of(self._asked.prompt), **({} if schema is None else {"outputSchema": schema}))
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
