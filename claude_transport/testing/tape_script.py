"""`script_of_tape`: writes a tape as a pytest test that people can read, with a scripted `MockTransport` in place of the CLI."""

from __future__ import annotations

import pprint
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from claude_transport.agents.registry import agent_of
from claude_transport.errors import ConfigurationError
from claude_transport.protocol.envelope import JSONTextError, parse_json
from claude_transport.protocol.tape import CLOSED, OUTPUT_ENDED, Tape, read_exit_note, without_withdrawn

_WIDTH: Final = 110
_LEFT_OUT: Final = frozenset({"keep_alive", "transcript_mirror", "control_cancel_request"})
_DOC: Final = '"""Made from {name} by `claude-transport record --to-script`. Edit it as you like; the tape is not needed any more."""'
_HEAD: Final = """\
{doc}

from __future__ import annotations

from collections import deque
from typing import Any

import anyio

import claude_transport as ct
from claude_transport.testing import assistant, result, tool_use

ANSWERS: list[tuple[str, dict[str, Any] | None]] = {answers}
\"\"\"The questions of Claude (permissions, hooks, tools of the host), in order, each with the answer of the host; None refuses.\"\"\"


def scripted_claude() -> ct.MockTransport:
    return (
        ct.MockTransport.script()
{script}
    )


async def converse(claude: ct.MockTransport) -> list[str | None]:
    \"\"\"The code under test: put yours here.\"\"\"
    answers = deque(ANSWERS)

    async def answer(subtype: str, fields: Any) -> dict[str, Any] | None:
        expected, response = answers.popleft()
        assert subtype == expected
        return response

    said: list[str | None] = []
    async with ct.Query(claude, on_request=answer) as query:
{body}
    return said


async def test_the_recorded_conversation() -> None:
    claude = scripted_claude()
    assert await converse(claude) == {said}
    claude.assert_exhausted()
"""


def script_of_tape(tape: Tape, *, name: str) -> str:
    """Return the Python source of a test that has the conversation of `tape`, whose file is called `name`.

    The test runs under anyio's pytest plugin. It has prompts, control requests, questions with their answers, and messages. What Claude
    says about itself at the start is left out. Raises `ConfigurationError` for a tape of another agent, and for one without a prompt.
    """
    agent = agent_of(record.line for record in tape if record.dir in ("in", "out"))
    if agent.program != "claude":
        raise ConfigurationError(f"{name} is a tape of {agent.title}; a script plays lines of claude only", option="tape")
    writer = _ScriptWriter()
    for record in without_withdrawn(tape):
        if record.dir == "note" and record.line in (OUTPUT_ENDED, CLOSED):
            break
        if record.dir in ("in", "out"):
            _take(writer, record.dir, record.whole_line)
    if not writer.has_prompt:
        raise ConfigurationError(f"{name} has no prompt of a host, so there is nothing to test", option="tape")
    exits = [found for record in tape if record.dir == "note" and (found := read_exit_note(record.line)) is not None]
    return writer.source(name, *(exits[-1] if exits else (None, None)))


def _take(writer: _ScriptWriter, direction: str, line: bytes) -> None:
    try:
        message, _ = parse_json(line)
    except JSONTextError:
        return
    if isinstance(message, dict):
        (writer.heard if direction == "in" else writer.said)(message)


class _ScriptWriter:
    """The parts of the source, which grow with each message."""

    def __init__(self) -> None:
        self.has_prompt = False
        self._script: list[list[str]] = []  # each step with what answers it
        self._written = 1  # `initialize`
        self._has_answered = False
        self._replies: list[str] = []
        self._body: list[str] = []
        self._answers: list[tuple[str, Any]] = []
        self._results: list[Any] = []
        self._questions: dict[str, str] = {}
        self._asked: dict[Any, tuple[list[str], int]] = {}
        self._is_open = False

    def heard(self, message: Mapping[str, Any]) -> None:
        """Take a message of the host."""
        match message:
            case {"type": "user", "message": {"content": content}}:
                if self._is_open:
                    raise ConfigurationError("the host asked while a turn was running; such a tape makes no test", option="tape")
                self._expect(f".expect(type='user', message={_text({'content': content})})")
                self._act(f"turn = await query.send({_text(content)})")
                self.has_prompt = self._is_open = True
            case {"type": "control_request", "request": {"subtype": str(subtype), **fields}} if subtype != "initialize":
                given = "".join(f", {name}={_text(value)}" for name, value in fields.items() if str(name).isidentifier())
                self._expect(f".expect_control({_text(subtype)}{given})")
                self._act(f"await query.request({_text(subtype)}{given})")
                self._asked[message.get("request_id")] = self._script[-1], len(self._body) - 1
            case {"type": "control_response", "response": {"request_id": identity, **rest}} if identity in self._questions:
                self._expect(f".expect(type='control_response', response={_text({'request_id': identity})})")
                answer = rest.get("response", {}) if rest.get("subtype") == "success" else None
                self._answers.append((self._questions.pop(identity), answer if isinstance(answer, dict) else None))
                self._written += 1
                self._has_answered = True

    def said(self, message: Mapping[str, Any]) -> None:
        """Take a message of Claude."""
        match message:
            case {"type": "control_response", "response": {"request_id": identity, **rest}}:
                if identity in self._asked:
                    self._reply_to_request({str(name): value for name, value in rest.items()}, *self._asked.pop(identity))
            case {"type": "control_request", "request_id": str(identity), "request": {"subtype": subtype}}:
                self._questions[identity] = str(subtype)
                self._replies.append(_text(message))
            case {"type": "result"}:
                self._replies.append(_result(message))
                if self._is_open:
                    self._results.append(message.get("result"))
                    self._body.append("said.append((await turn.result()).result)")
                    self._is_open = self._has_answered = False
            case {"type": str(kind)} if kind not in _LEFT_OUT and message.get("subtype") != "init":
                self._replies.append(_assistant(message) if kind == "assistant" else _text(message))

    def source(self, name: str, exit_code: int | None, signal: int | None) -> str:
        """Return the whole source."""
        self._flush()
        body = list(self._body)
        if exit_code or signal is not None:
            self._expect(f".end({exit_code or 0}{'' if signal is None else f', signal={signal}'})")
            if self._is_open:
                body += ["try:", "    await turn.result()", "except ct.ProcessError:", "    said.append('ended')"]
                self._results.append("ended")
        return _HEAD.format(
            doc=_DOC.format(name=name.replace('"""', "").replace("\\", "/")),
            answers=_text(self._answers),
            script=_indented("\n".join(line for step in self._script for line in step), 8),
            body=_indented("\n".join(body), 8),
            said=_text(self._results),
        )

    def _act(self, call: str) -> None:
        """Have the host do something, after the answers that it gave before."""
        if self._has_answered:
            self._body.append(f"while len(claude.written) < {self._written}:  # the answers come first\n    await anyio.sleep(0)")
        self._has_answered = False
        self._body.append(call)
        self._written += 1

    def _reply_to_request(self, response: Mapping[str, Any], step: list[str], act: int) -> None:
        if response.get("subtype") == "error":
            step.insert(1, f".reply_error({_text(response.get('error', ''))})")
            self._body[act] = f"try:\n    {self._body[act]}\nexcept ct.ControlRequestFailed:\n    pass"
        else:
            payload = response.get("response")
            step.insert(1, f".reply({_text(payload) if payload else ''})")

    def _expect(self, call: str) -> None:
        self._flush()
        self._script.append([call])

    def _flush(self) -> None:
        if not self._replies:
            return
        said = "".join(f"{_indented(reply, 4)},\n" for reply in self._replies)
        if self._script and self._script[-1][0].startswith(".expect("):
            self._script[-1].append(f".reply(\n{said})")
        else:
            self._script.append([f".emit(\n{said})"])
        self._replies.clear()


def _assistant(message: Mapping[str, Any]) -> str:
    """Return a call of `assistant()` or `tool_use()`, where the message has nothing else to say."""
    body = message.get("message")
    content = body.get("content") if isinstance(body, dict) else None
    parent = message.get("parent_tool_use_id")
    more = "" if parent is None else f", parent_tool_use_id={_text(parent)}"
    match content:
        case [{"type": "text", "text": str(text)}]:
            return f"assistant({_text(text)}{more})"
        case [{"type": "tool_use", "id": identity, "name": name, "input": given}]:
            return f"tool_use({_text(name)}, {_text(given)}, id={_text(identity)}{more})"
        case list():
            return f"assistant({_text(content)}{more})"
    return _text(message)


_KEPT: Final = ("is_error", "api_error_status", "num_turns", "structured_output", "permission_denials", "stop_reason")


def _result(message: Mapping[str, Any]) -> str:
    """Return a call of `result()` with what a test may look at."""
    plain: dict[str, Any] = {
        "is_error": False,
        "api_error_status": None,
        "num_turns": 1,
        "permission_denials": [],
        "stop_reason": "end_turn",
    }
    subtype = message.get("subtype")
    text = message.get("result") if subtype == "success" else " ".join(map(str, message.get("errors") or ()))
    parts = [_text(text or "")]
    if subtype != "success":
        parts.append(f"subtype={_text(subtype)}")
        plain["is_error"] = True
    parts += [f"{name}={_text(message[name])}" for name in _KEPT if name in message and message[name] != plain.get(name)]
    return f"result({', '.join(parts)})"


def _text(value: Any) -> str:
    return pprint.pformat(value, width=_WIDTH, sort_dicts=False)


def _indented(text: str, spaces: int) -> str:
    return textwrap.indent(text, " " * spaces, lambda line: bool(line.strip()))
