"""One attempt at a call through a `codex app-server` process. Loaded only where Codex answers.

`plan_codex_call` refuses what Codex cannot do, before any process is started. `CodexPath` starts the process, sends the prompt, and passes
on the messages that `claude` would send for the same. `CodexTranslation` makes these, so that the text, the counts, the events and the
warnings of a `Completion` are made in one place for both agents; it is pure. Codex names its tools itself: a command is a tool call with
the name `commandExecution`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from claude_transport.agents.agent import AskedCall, Attempt, CallPlan
from claude_transport.agents.output_schema import find_misfit
from claude_transport.codex.asking import CodexCall, input_of
from claude_transport.codex.conversation import CodexTurnResult
from claude_transport.codex.items import AgentMessageItem, AnyItem, ReasoningItem
from claude_transport.codex.messages import (
    AgentMessageDelta,
    CodexMessage,
    CodexTokens,
    ErrorNotification,
    ItemCompleted,
    ItemStarted,
    ModelRerouted,
    ThreadTokenUsageUpdated,
)
from claude_transport.codex.session import CodexSession
from claude_transport.errors import ResultError
from claude_transport.launch.credentials import CredentialReport, Payer
from claude_transport.protocol.codec import decode_message
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
    return CallPlan(options=asked.options, credential=None if call.makes_transport else asked.credential(env), model=asked.options.model)


class CodexPath(Attempt):
    """One attempt through a `codex` process.

    It may have acted when the model has answered and the turn went on: it called a tool then. Codex shows no item for a command that its
    sandbox stopped.
    """

    words: Sequence[tuple[str, str]] | None = (
        ("Claude CLI", "Codex CLI"),
        ("Claude Code", "Codex"),
        ("CLAUDE_CLI_PATH", "CODEX_CLI_PATH"),
        ("cli_path", "codex_path"),
        ("`claude-transport doctor` tests it step by step", "Run `codex` by hand to see what it says"),
        ("claude", "codex"),
    )

    def __init__(self, call: AskedCall, credential: CredentialReport | None = None) -> None:
        self._asked = call
        self._call = CodexCall(call)
        self.payer: Payer = "unknown" if credential is None else credential.payer
        self.api_key_source: str | None = None if credential is None else credential.name
        self.may_have_acted: bool = False

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Send the prompt, and pass every message to `hear` until the turn has ended, then a result.

        Raises `ClaudeTransportError`, also for a turn that failed.
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
        finally:
            self.note_end(transport)


def _raise_for_error(ended: CodexTurnResult, result: ResultMessage) -> None:
    """Raise the error of a turn that did not complete, with what Codex wrote as its cause."""
    try:
        ended.raise_for_error()
    except ResultError as error:
        error.result = result
        raise


_NO_TOOLS: Final = frozenset(
    {
        *("userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction", "enteredReviewMode"),
        *("exitedReviewMode", "functionCallOutput"),
    }
)
"""Items that are no calls of a tool. One of an unknown type counts as a tool call: a run with a tool call is never repeated."""

_NOT_INPUT: Final = frozenset(
    {
        *("id", "type", "status", "startedAtMs", "completedAtMs", "durationMs", "aggregatedOutput", "exitCode", "processId"),
        *("contentItems", "success", "result", "results", "error"),
    }
)
"""Fields of an item that are not what the model asked for."""

_FAILED: Final = frozenset({"failed", "declined"})
_COUNTED: Final = re.compile(r"\b(\d{1,6})/(\d{1,6})\b")
_STATUS: Final = "httpStatusCode"


class _SpeechSoFar:
    """One message of the model while it is written: its id here, and the text so far.

    After a cut connection the model says it again from the start, often under another id. `position` is then how much of it was said again,
    else None.
    """

    def __init__(self, message_id: str) -> None:
        self.id = message_id
        self.text = ""
        self.position: int | None = None

    def add(self, delta: str) -> tuple[str, bool]:
        """Return the text that `delta` adds, and whether it takes the place of all that was said."""
        if self.position is None:
            self.text += delta
            return delta, False
        said, end = self.text, self.position + len(delta)
        if said[self.position : end] == delta:
            self.position = end if end < len(said) else None
            return "", False
        fresh = said[: self.position] + delta
        extends = fresh.startswith(said)
        self.text, self.position = fresh, None
        return (fresh[len(said) :], False) if extends else (fresh, True)


class CodexTranslation:
    """The messages of one turn in thread `session_id`: `begin()`, then `read()` for each message of Codex, then `result()`.

    `model` is the model that answers. `schema` is the JSON schema of the answer, or None.
    """

    def __init__(self, *, session_id: str, model: str | None, schema: Mapping[str, Any] | None = None) -> None:
        self._session_id = session_id
        self._model = model or ""
        self._schema = schema
        self._speeches: dict[str, _SpeechSoFar] = {}
        self._spoken: dict[str, int] = {}  # how many messages of this id are complete: the model uses ids again
        self._called: set[str] = set()
        self._texts: list[str] = []
        self._cut: _SpeechSoFar | None = None  # what the model was saying when the connection was cut
        self.answers: int = 0
        """How often the model has answered in full: with text, or with calls of tools."""

    def begin(self, *, api_key_source: str | None = None) -> Message:
        """Return the message that begins the run."""
        return self._made({"type": "system", "subtype": "init", "model": self._model, "apiKeySource": api_key_source})

    def read(self, message: CodexMessage) -> Iterator[Message]:
        """Yield what `claude` would send for this message of Codex. Often that is nothing."""
        match message:
            case ItemStarted():
                yield from self._started(message.item)
            case AgentMessageDelta():
                yield from self._wrote(message.item_id, message.delta)
            case ItemCompleted():
                yield from self._completed(message.item)
            case ThreadTokenUsageUpdated():
                self.answers += 1
                if self._cut is not None:  # it was not said again
                    yield self._taken_back(self._cut)
                    self._cut = None
            case ModelRerouted():
                self._model = message.to_model or self._model
            case ErrorNotification(will_retry=True):
                self._cut = next((speech for speech in self._speeches.values() if speech.text), self._cut)
                self._speeches.clear()
                yield self._retry(message)

    def result(self, turn: CodexTurnResult) -> ResultMessage:
        """Return the result of the turn. A failed one has `is_error`, and the words of Codex."""
        fields: dict[str, Any] = {"subtype": "success" if turn.ok else "error_during_execution", "is_error": not turn.ok}
        if not turn.ok:
            words = turn.turn_error.message if turn.turn_error is not None else "the turn was interrupted"
            fields |= {"result": words, "terminal_reason": "aborted_streaming" if turn.status == "interrupted" else "api_error"}
        else:
            fields |= {"result": "\n".join(self._texts), "stop_reason": "end_turn", **self._structured(turn.text)}
        fields |= {"duration_ms": turn.duration_ms or 0, "num_turns": max(self.answers, 1), "usage": _usage_of(turn.usage)}
        result = cast("ResultMessage", self._made({"type": "result", **fields}))
        return msgspec.structs.replace(result, expects_structured_output=self._schema is not None)

    def _structured(self, answer: str) -> dict[str, Any]:
        """Return what the result says about the schema. `claude` checks its answer; Codex passes on what the model wrote."""
        if self._schema is None:
            return {}
        try:
            value = msgspec.json.decode(answer)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}  # the answer is not data
        misfit = find_misfit(value, self._schema)
        if misfit is None:
            return {"structured_output": value}
        return {"is_error": True, "subtype": "error_max_structured_output_retries", "errors": [misfit]}

    # Items.

    def _started(self, item: AnyItem) -> Iterator[Message]:
        if isinstance(item, AgentMessageItem):
            if item.id not in self._speeches:
                yield from self._opened(item.id)
            elif self._speeches[item.id].text:
                self._speeches[item.id].position = 0
        elif item.type not in _NO_TOOLS and item.id not in self._called:
            self._called.add(item.id)
            yield self._call(item)

    def _opened(self, item_id: str) -> Iterator[Message]:
        if self._cut is not None:
            self._speeches[item_id], self._cut = self._cut, None
            self._speeches[item_id].position = 0
            return
        speech = self._speeches[item_id] = _SpeechSoFar(self._fresh_id(item_id))
        yield self._event({"type": "message_start", "message": {"id": speech.id, "role": "assistant", "model": self._model, "content": []}})
        yield self._event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})

    def _fresh_id(self, item_id: str) -> str:
        number = self._spoken[item_id] = self._spoken.get(item_id, 0) + 1
        return item_id if number == 1 else f"{item_id}#{number}"

    def _wrote(self, item_id: str, delta: str) -> Iterator[Message]:
        if item_id not in self._speeches:
            yield from self._opened(item_id)
        speech = self._speeches[item_id]
        text, replaces = speech.add(delta)
        if replaces:
            yield self._taken_back(speech)
        if text:
            yield self._event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})

    def _taken_back(self, speech: _SpeechSoFar) -> Message:
        given_up = {"api_message_id": speech.id, "from_block_index": 0}
        return self._event({"type": "message_start", "message": {"id": speech.id, "content": []}}, abandoned_blocks=given_up)

    def _completed(self, item: AnyItem) -> Iterator[Message]:
        if isinstance(item, AgentMessageItem):
            yield from self._said(item)
        elif isinstance(item, ReasoningItem):
            thought = "\n\n".join(item.content or item.summary)
            if thought:
                yield self._assistant(item.id, {"type": "thinking", "thinking": thought, "signature": ""})
        elif item.type not in _NO_TOOLS:
            if item.id not in self._called:
                yield self._call(item)
            self._called.discard(item.id)
            yield self._answered(item)

    def _said(self, item: AgentMessageItem) -> Iterator[Message]:
        if item.id not in self._speeches and self._cut is not None:
            yield from self._opened(item.id)
        speech = self._speeches.pop(item.id, None) or _SpeechSoFar(self._fresh_id(item.id))
        if speech.text:
            rest = item.text.removeprefix(speech.text)
            if not item.text.startswith(speech.text):
                yield self._taken_back(speech)
            if rest:
                yield self._event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": rest}})
            yield self._event({"type": "content_block_stop", "index": 0})
        if item.text:
            self._texts.append(item.text)
        yield self._assistant(speech.id, {"type": "text", "text": item.text})

    def _call(self, item: AnyItem) -> Message:
        fields = {name: value for name, value in item.to_dict().items() if name not in _NOT_INPUT}
        return self._assistant(item.id, {"type": "tool_use", "id": item.id, "name": item.type, "input": fields})

    def _answered(self, item: AnyItem) -> Message:
        found = item.to_dict()
        output = found.get("aggregatedOutput")
        if not isinstance(output, str):
            told = {name: found[name] for name in ("status", "exitCode", "contentItems", "result", "error") if found.get(name) is not None}
            output = msgspec.json.encode(told).decode() if told else ""
        block = {"type": "tool_result", "tool_use_id": item.id, "content": output, "is_error": found.get("status") in _FAILED}
        return self._made({"type": "user", "message": {"role": "user", "content": [block]}})

    # What else a run says.

    def _retry(self, message: ErrorNotification) -> Message:
        counted = _COUNTED.search(message.error.message)
        attempt, most = (int(counted[1]), int(counted[2])) if counted else (0, 0)
        info = message.error.codex_error_info
        inner = next(iter(info.values()), None) if isinstance(info, Mapping) else None
        status = inner.get(_STATUS) if isinstance(inner, Mapping) else None
        fields = {"attempt": attempt, "max_retries": most, "error_status": status, "error": message.error.message}
        return self._made({"type": "system", "subtype": "api_retry", **fields})

    def _assistant(self, message_id: str, block: dict[str, Any]) -> Message:
        message = {"id": message_id, "type": "message", "role": "assistant", "model": self._model, "content": [block]}
        return self._made({"type": "assistant", "message": message})

    def _event(self, event: dict[str, Any], **fields: Any) -> Message:
        return self._made({"type": "stream_event", "event": event, **fields})

    def _made(self, fields: dict[str, Any]) -> Message:
        # through the decoder: what Codex said may hold anything
        return decode_message(msgspec.json.encode({**fields, "session_id": self._session_id}))


def _usage_of(used: CodexTokens) -> dict[str, Any]:
    """Return the tokens of a turn as `claude` counts them: `input_tokens` are those that the cache took no part in."""
    return {
        "input_tokens": max(used.input_tokens - used.cached_input_tokens - used.cache_write_input_tokens, 0),
        "cache_read_input_tokens": used.cached_input_tokens,
        "cache_creation_input_tokens": used.cache_write_input_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_output_tokens},
    }
