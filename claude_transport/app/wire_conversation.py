"""A scripted conversation with a claude, which makes it say as much of the wire as can be had in half a minute.

The host is one of plain lines, not a `Query`: it must go on whatever a newer claude says. The claude lives in a clean world, and asks a
Messages API in this program. Nothing leaves the machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from claude_transport.app.clean_world import isolated_options
from claude_transport.errors import ClaudeTransportError, ConnectTimeout
from claude_transport.launch.features import supports
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.control import encode_control_request, encode_control_success, encode_user_message
from claude_transport.protocol.hooks import HookEvent
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.transport import Client
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wire.documents import WireDirection, schema_on_tape

Line = tuple[WireDirection, bytes]

_STEP_TIME: Final = 20.0
"""Seconds for one turn or one answer. A step that takes longer is left, and the conversation goes on."""
_ANSWER_TIME: Final = 5.0
"""Seconds for the answer to a control request: some versions never answer some of them."""
_NOT_ASKED: Final = frozenset({"end_session", "initialize", "interrupt", "reload_connectors"})
"""Requests without fields that are not asked like the others: they end something, or some versions fall silent."""
_QUESTION: Final = {
    "questions": [
        {
            "question": "Which?",
            "header": "H",
            "multiSelect": False,
            "options": [{"label": "One", "description": "1"}, {"label": "Two", "description": "2"}],
        }
    ]
}
_SCHEMA: Final = {"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}
_COMMAND_HOOK: Final = [{"hooks": [{"type": "command", "command": "echo hook"}]}]
_SETTINGS: Final = {"hooks": {"SessionStart": _COMMAND_HOOK, "PreToolUse": _COMMAND_HOOK}}
_TOOL: Final = {"name": "add", "description": "adds", "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}}}
_PROMPT_UUID: Final = "44444444-4444-4444-8444-444444444444"

_SCRIPT: Final[Mapping[str, Any]] = {
    "SUB": [replies.tool_use("Bash", {"command": "echo sub"}), replies.text("Sub done.")],
    "say hello": [replies.thinking("Let me think.", text="Hello.")],
    "use tools": [
        replies.tool_use("Bash", {"command": "echo one", "description": "says one"}, text_before="First this."),
        replies.tool_use("Bash", {"command": "exit 3"}),
        replies.tool_use("Read", {"file_path": "/no/such/file"}),
        replies.tool_use("mcp__sums__add", {"a": 1}),
        replies.text("Used."),
    ],
    "be refused": [replies.tool_use("Bash", {"command": "touch refused"}), replies.text("No.")],
    "ask me": [replies.tool_use("AskUserQuestion", _QUESTION), replies.text("Thanks.")],
    "delegate": [
        replies.tool_use(
            "Agent", {"description": "do it", "prompt": "SUB", "subagent_type": "general-purpose", "run_in_background": False}
        ),
        replies.text("Delegated."),
    ],
    "in the background": [replies.tool_use("Bash", {"command": "echo late", "run_in_background": True}), replies.text("Started.")],
    "make a plan": [replies.tool_use("ExitPlanMode", {"plan": "1. do it"}), replies.text("Go.")],
    "try again": [replies.error(529, times=1, headers={"retry-after": "0"}), replies.text("Fine.")],
    "fail": [replies.error(400)],
    "be interrupted": [replies.gated("Never finished.", gate="never")],
    "answer by the schema": [replies.tool_use("StructuredOutput", {"answer": 42}), replies.text("Done.")],
    "stop": [replies.tool_use("Bash", {"command": "echo again"}, times=3)],
}
"""What the model answers, by a part of the prompt."""

_ASKED: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("get_context_usage", {"detail": "summary"}),
    ("get_usage", {"skip_behaviors": True}),
    ("file_suggestions", {"query": "a"}),
    ("read_file", {"path": "notes.txt"}),
    ("rewind_files", {"user_message_id": _PROMPT_UUID, "dry_run": True}),
    ("cancel_async_message", {"message_uuid": _PROMPT_UUID}),
    ("set_model", {"model": "claude-opus-5-5"}),
    ("set_max_thinking_tokens", {"max_thinking_tokens": 2000}),
    ("rename_session", {"title": "A title"}),
    ("generate_session_title", {"description": "talk"}),
    ("side_question", {"question": "Why?"}),
    ("mcp_toggle", {"serverName": "sums", "enabled": True}),
)
"""Requests with fields, which are asked after a turn."""


class WireConversation:
    """Holds the conversation with the claude at `cli_path`, which has `version`. `lines` has every line, in order, and `left` what did not
    come to an end.
    """

    def __init__(self, cli_path: str, *, version: str | None) -> None:
        self.lines: list[Line] = []
        self.left: list[str] = []
        self._cli_path = cli_path
        self._version = version
        self._transport: SubprocessTransport | None = None

    async def hold(self, *, timeout: float) -> None:
        """Hold the whole conversation, in two processes.

        Raises:
            ConnectTimeout: It took longer than `timeout` seconds.
            ClaudeTransportError: claude could not be started, or did not accept the conversation.
        """
        try:
            with anyio.fail_after(timeout):
                with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as folder:
                    async with FakeMessagesAPI(_SCRIPT) as api:
                        await self._first(Path(folder), api)
                        await self._second(Path(folder), api)
                        if not api.conversation:
                            self.left.append("claude never asked the API of this check: managed settings send it to another one")
        except TimeoutError:
            raise ConnectTimeout(
                f"the scripted conversation did not end in {timeout:g} s", waited=timeout, code="exec.cli.timeout"
            ) from None

    async def give_up(self) -> None:
        """End the child at once."""
        if self._transport is not None:
            await self._transport.close()

    async def _first(self, folder: Path, api: FakeMessagesAPI) -> None:
        options = isolated_options(
            self._cli_path, folder, api, max_retries=1, include_partial_messages=True, settings=_SETTINGS, **self._flags()
        )
        (folder / "project" / "notes.txt").write_text("notes\n", "utf-8")
        events = [event for event in HookEvent if self._has(f"hook.{event}") and event not in _UNHELPFUL]
        hooks = {event: [{"matcher": None, "hookCallbackIds": [f"hook_{event}"]}] for event in events}
        async with self._host(options) as host:
            await host.ask("initialize", hooks=hooks, sdkMcpServers=["sums"])
            for prompt in ("say hello", "use tools", "be refused", "ask me", "delegate", "in the background", "try again", "fail"):
                await host.turn(prompt, uuid=_PROMPT_UUID if prompt == "say hello" else None)
            await host.ask("set_permission_mode", mode="plan")
            await host.turn("make a plan")
            await host.ask("set_permission_mode", mode="default")
            for subtype in self._requests_without_fields():
                await host.ask(subtype)
            for subtype, fields in _ASKED:
                if self._has(subtype):
                    await host.ask(subtype, **fields)
            await host.interrupted("be interrupted")
            await host.turn("/compact")
            await host.turn("/clear")
            await host.turn("say hello")

    async def _second(self, folder: Path, api: FakeMessagesAPI) -> None:
        options = isolated_options(
            self._cli_path,
            folder,
            api,
            max_turns=2,
            output_format={"type": "json_schema", "schema": _SCHEMA},
            allowed_tools=("Bash",),
        )
        async with self._host(options) as host:
            await host.ask("initialize")
            await host.turn("answer by the schema")
            await host.turn("stop")

    def _flags(self) -> dict[str, Any]:
        wanted = {
            "include_hook_events": "--include-hook-events",
            "replay_user_messages": "--replay-user-messages",
            "session_mirror": "--session-mirror",
            "prompt_suggestions": "--prompt-suggestions",
            "forward_subagent_text": "--forward-subagent-text",
        }
        return {option: True for option, flag in wanted.items() if self._has(flag)}

    def _has(self, feature: str) -> bool:
        return supports(feature, version=self._version) is not False

    def _requests_without_fields(self) -> list[str]:
        """Return the requests that can be asked without a field, which the schema knows."""
        definitions: Mapping[str, Any] = schema_on_tape("in", cli_version=self._version)["$defs"]
        named = {name.partition(".")[2]: each for name, each in definitions.items() if name.startswith("request.")}
        return [name for name, each in named.items() if each["required"] == ["subtype"] and name not in _NOT_ASKED and self._has(name)]

    @asynccontextmanager
    async def _host(self, options: ClaudeOptions) -> AsyncIterator[_Host]:
        """Yield a host that talks to a claude, until its input is ended and it has ended."""
        self._transport = transport = SubprocessTransport(options)
        transport.attach(Client(answers=frozenset({"can_use_tool", "hooks", "mcp"})))
        async with transport:
            host = _Host(transport, self.lines, self.left)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.read)
                yield host
                host.is_ending = True
                await transport.end_input()
                with anyio.move_on_after(_STEP_TIME):
                    await host.ended.wait()
                tasks.cancel_scope.cancel()


_UNHELPFUL: Final = frozenset({HookEvent.WORKTREE_CREATE, HookEvent.WORKTREE_REMOVE})
"""Events whose hook has to do something."""


class _Host:
    """Writes lines, answers every question, and keeps all lines of both sides."""

    def __init__(self, transport: SubprocessTransport, lines: list[Line], left: list[str]) -> None:
        self.ended = anyio.Event()
        self.is_ending = False
        self._transport = transport
        self._lines = lines
        self._left = left
        self._asked = 0
        self._answers: dict[str, anyio.Event] = {}
        self._result = anyio.Event()
        self._begun = anyio.Event()

    async def read(self) -> None:
        """Keep every line of claude, and answer its questions, until it ends."""
        try:
            async for batch in self._transport.read_lines():
                for line in batch:
                    self._lines.append(("out", bytes(line)))
                    await self._take(line)
        except ClaudeTransportError as error:  # what was said until then is worth a look
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: ClaudeTransportError | None) -> None:
        """Let go of everything that waits for claude, which has ended."""
        if not self.is_ending and not self.ended.is_set():  # a turn that failed gives the whole process a code that is not 0
            self._left.append(f"claude ended: {error or 'its output is at its end'}")
        self.ended.set()
        for waiting in (self._result, self._begun, *self._answers.values()):
            waiting.set()

    async def _take(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return  # it is counted as unreadable
        match message:
            case {"type": "result"}:
                self._result.set()
            case {"type": "stream_event"}:
                self._begun.set()
            case {"type": "control_response", "response": {"request_id": str(request_id)}} if request_id in self._answers:
                self._answers[request_id].set()
            case {"type": "control_request", "request_id": str(request_id), "request": {"subtype": str(subtype)} as request}:
                await self._write(encode_control_success(request_id, _answer(subtype, request)))

    async def ask(self, subtype: str, **fields: Any) -> None:
        """Send a control request, and wait for its answer."""
        self._asked += 1
        request_id = f"wire_{self._asked}"
        answered = self._answers[request_id] = anyio.Event()
        await self._write(encode_control_request(request_id, subtype, **fields))
        await self._wait(answered, _STEP_TIME if subtype == "initialize" else _ANSWER_TIME, f"the answer to {subtype}")

    async def turn(self, prompt: str, *, uuid: str | None = None) -> None:
        """Send a prompt, and wait for a result."""
        self._result = anyio.Event()
        await self._write(encode_user_message(prompt, uuid=uuid))
        await self._wait(self._result, _STEP_TIME, f"the result of {prompt!r}")

    async def interrupted(self, prompt: str) -> None:
        """Send a prompt, interrupt it in the middle of the answer, and wait for the result."""
        self._result, self._begun = anyio.Event(), anyio.Event()
        await self._write(encode_user_message(prompt, uuid=None))
        await self._wait(self._begun, _STEP_TIME, f"the beginning of {prompt!r}")
        await self.ask("interrupt")
        await self._wait(self._result, _STEP_TIME, f"the result of {prompt!r}")

    async def _write(self, line: bytes) -> None:
        if not self.ended.is_set():
            self._lines.append(("in", line.rstrip(b"\n")))
            try:
                await self._transport.write(line)
            except ClaudeTransportError as error:
                self._end(error)

    async def _wait(self, event: anyio.Event, seconds: float, what: str) -> None:
        if self.ended.is_set():
            return
        with anyio.move_on_after(seconds):
            await event.wait()
            return
        self._left.append(f"{what} did not come in {seconds:g} s")


def _answer(subtype: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the host answers to a question of claude."""
    given = request.get("input")
    match subtype:
        case "can_use_tool" if isinstance(given, dict) and "refused" in str(given.get("command")):
            return {"behavior": "deny", "message": "Not that."}
        case "can_use_tool":
            answers = {"answers": {"Which?": "One"}} if request.get("tool_name") == "AskUserQuestion" else {}
            return {"behavior": "allow", "updatedInput": {**(given if isinstance(given, dict) else {}), **answers}}
        case "mcp_message":
            message = request.get("message")
            return {"mcp_response": _answer_of_the_server(message if isinstance(message, dict) else {})}
        case "elicitation":
            return {"action": "decline"}
    return {}


def _answer_of_the_server(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the MCP server of the host answers."""
    params = message.get("params")
    asked = params.get("protocolVersion") if isinstance(params, dict) else None
    results: Mapping[str, Any] = {
        "initialize": {"protocolVersion": asked, "capabilities": {"tools": {}}, "serverInfo": {"name": "sums", "version": "1"}},
        "tools/list": {"tools": [_TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "3"}]},
    }
    return {"jsonrpc": "2.0", "id": message.get("id", 0), "result": results.get(str(message.get("method")), {})}
