"""Control requests: each method writes exactly the recorded request, types the recorded answer, and fails as the CLI says it failed."""

from __future__ import annotations

import inspect
import json
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport import Query
from claude_transport.client.controls import Asking, Controls
from claude_transport.errors import ClaudeTransportError, ConnectionLost, ControlRequestFailed, ControlTimeout, TransportClosed
from claude_transport.exchange.outcomes import InterruptOutcome
from claude_transport.protocol.answers import (
    ContextUsage,
    FileContents,
    McpServersChange,
    McpServerStatus,
    RewindResult,
    UsageInfo,
)

RECORDING = Path(__file__).parent.parent / "recordings" / "08a_control_requests.ndjson"


class Peer:
    """The six methods and a CLI behind them: `initialize` succeeds, every other request is answered by `reply` (None: with silence)."""

    def __init__(self, reply: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._reply = reply
        self._lines: deque[dict[str, Any]] = deque()
        self._change = anyio.Event()
        self._open = False
        self._over = False

    async def connect(self) -> None:
        self._open = True
        await anyio.lowlevel.checkpoint()

    def is_ready(self) -> bool:
        return self._open

    async def write(self, data: str | bytes) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            if message["type"] == "control_request":
                self._take(message["request_id"], message["request"])
        await anyio.lowlevel.checkpoint()

    def _take(self, request_id: str, request: dict[str, Any]) -> None:
        reply: dict[str, Any] | None = {"subtype": "success", "response": {}}
        if request["subtype"] != "initialize":
            self.asked.append(request)
            reply = self._reply(request)
        if reply is not None:
            self._lines.append({"type": "control_response", "response": {"request_id": request_id, **reply}})
        self._change.set()

    def say(self, request_id: str, payload: Mapping[str, Any]) -> None:
        """Answer a request that was met with silence."""
        self._lines.append({"type": "control_response", "response": {"request_id": request_id, **success(payload)}})
        self._change.set()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while not self._over or self._lines:
            while self._lines:
                yield self._lines.popleft()
            if not self._over:
                self._change = anyio.Event()
                await self._change.wait()

    async def end_input(self) -> None:
        self.hang_up()
        await anyio.lowlevel.checkpoint()

    async def close(self) -> None:
        self._open = False
        self.hang_up()
        await anyio.lowlevel.checkpoint()

    def hang_up(self) -> None:
        """The CLI has ended."""
        self._over = True
        self._change.set()


def success(payload: Mapping[str, Any] | None) -> dict[str, Any]:
    """As the CLI says it: many successes have no `response` at all."""
    return {"subtype": "success"} if payload is None else {"subtype": "success", "response": payload}


def recorded_exchanges() -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Every request of the recording with its answer (None for one that was cut while recording)."""
    asked: dict[str, dict[str, Any]] = {}
    answered: dict[str, dict[str, Any]] = {}
    for text in RECORDING.read_text("utf-8").splitlines():
        entry = json.loads(text)
        if "trimmed_from_chars" in entry or entry["dir"] not in {"in", "out"}:
            continue
        message = json.loads(entry["line"])
        if message["type"] == "control_request" and entry["dir"] == "in":
            asked[message["request_id"]] = message["request"]
        elif message["type"] == "control_response" and entry["dir"] == "out":
            answered[message["response"].pop("request_id")] = message["response"]
    return [(request, answered.get(request_id)) for request_id, request in asked.items()]


EXCHANGES = recorded_exchanges()
Call = Callable[[Query], Awaitable[Any]]
UUID = "44444444-4444-4444-8444-444444444444"
FALSE = {"type": "stdio", "command": "/bin/false", "args": []}
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

# What was recorded: the call, and the request that it must make. The answer is the recorded one.
RECORDED: list[tuple[Call, dict[str, Any]]] = [
    (lambda q: q.set_model("claude-sonnet-4-5"), {"subtype": "set_model", "model": "claude-sonnet-4-5"}),
    (lambda q: q.set_model(), {"subtype": "set_model", "model": None}),
    (lambda q: q.set_permission_mode("plan"), {"subtype": "set_permission_mode", "mode": "plan"}),
    (lambda q: q.set_permission_mode("nonsense"), {"subtype": "set_permission_mode", "mode": "nonsense"}),
    (lambda q: q.set_permission_mode("bypassPermissions"), {"subtype": "set_permission_mode", "mode": "bypassPermissions"}),
    (lambda q: q.set_max_thinking_tokens(2048), {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 2048}),
    (lambda q: q.set_max_thinking_tokens(None), {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": None}),
    (lambda q: q.mcp_status(), {"subtype": "mcp_status"}),
    (lambda q: q.session_cost(), {"subtype": "get_session_cost"}),
    (lambda q: q.usage(skip_behaviors=True), {"subtype": "get_usage", "skip_behaviors": True}),
    (lambda q: q.list_models(), {"subtype": "list_models"}),
    (lambda q: q.binary_version(), {"subtype": "get_binary_version"}),
    (lambda q: q.mcp_reconnect("nope"), {"subtype": "mcp_reconnect", "serverName": "nope"}),
    (lambda q: q.mcp_toggle("nope", enabled=False), {"subtype": "mcp_toggle", "serverName": "nope", "enabled": False}),
    (lambda q: q.mcp_toggle("s1", enabled=False), {"subtype": "mcp_toggle", "serverName": "s1", "enabled": False}),
    (lambda q: q.mcp_set_servers({}), {"subtype": "mcp_set_servers", "servers": {}}),
    (lambda q: q.mcp_set_servers({"s1": FALSE}), {"subtype": "mcp_set_servers", "servers": {"s1": FALSE}}),
    (lambda q: q.mcp_call("mcp__nope__x"), {"subtype": "mcp_call", "tool": "mcp__nope__x", "arguments": {}}),
    (lambda q: q.mcp_read_resource("nope", "ui://x"), {"subtype": "mcp_read_resource", "serverName": "nope", "uri": "ui://x"}),
    (lambda q: q.mcp_message("nope", LIST_CHANGED), {"subtype": "mcp_message", "server_name": "nope", "message": LIST_CHANGED}),
    (lambda q: q.mcp_authenticate("nope"), {"subtype": "mcp_authenticate", "serverName": "nope"}),
    (lambda q: q.mcp_clear_auth("nope"), {"subtype": "mcp_clear_auth", "serverName": "nope"}),
    (lambda q: q.reload_connectors(), {"subtype": "reload_connectors"}),
    (lambda q: q.stop_task("nope"), {"subtype": "stop_task", "task_id": "nope"}),
    (lambda q: q.background(), {"subtype": "background_tasks"}),
    (lambda q: q.background("nope"), {"subtype": "background_tasks", "tool_use_id": "nope"}),
    (lambda q: q.task_output("nope"), {"subtype": "get_task_output", "task_id": "nope"}),
    (lambda q: q.rewind_files(UUID, dry_run=True), {"subtype": "rewind_files", "user_message_id": UUID, "dry_run": True}),
    (lambda q: q.rewind_files(UUID), {"subtype": "rewind_files", "user_message_id": UUID}),
    (lambda q: q.file_suggestions("w"), {"subtype": "file_suggestions", "query": "w"}),
    (lambda q: q.read_file(Path("r.txt")), {"subtype": "read_file", "path": "r.txt"}),
    (lambda q: q.read_file("/etc/hostname"), {"subtype": "read_file", "path": "/etc/hostname"}),
    (lambda q: q.seed_read_state("r.txt", mtime=0.001), {"subtype": "seed_read_state", "path": "r.txt", "mtime": 1}),
    (lambda q: q.settings(), {"subtype": "get_settings"}),
    (
        lambda q: q.apply_flag_settings({"model": "claude-haiku-4-5"}),
        {"subtype": "apply_flag_settings", "settings": {"model": "claude-haiku-4-5"}},
    ),
    (lambda q: q.apply_flag_settings({}), {"subtype": "apply_flag_settings", "settings": {}}),
    (
        lambda q: q.update_settings("localSettings", {"outputStyle": "default"}),
        {"subtype": "update_settings", "source": "localSettings", "settings": {"outputStyle": "default"}},
    ),
    (
        lambda q: q.update_settings("localSettings", {"foo": "x"}),
        {"subtype": "update_settings", "source": "localSettings", "settings": {"foo": "x"}},
    ),
    (lambda q: q.hooks_listing(), {"subtype": "get_hooks_listing"}),
    (lambda q: q.permission_rules(), {"subtype": "list_permission_rules"}),
    (lambda q: q.register_repo_root("/nonexistent"), {"subtype": "register_repo_root", "directory": "/nonexistent"}),
    (lambda q: q.reload_skills(), {"subtype": "reload_skills"}),
    (lambda q: q.reload_output_styles(), {"subtype": "reload_output_styles"}),
    (lambda q: q.rename_session("My title"), {"subtype": "rename_session", "title": "My title"}),
    (lambda q: q.set_has_subscribers(False), {"subtype": "set_has_subscribers", "has_subscribers": False}),
    (lambda q: q.cancel_message("x"), {"subtype": "cancel_async_message", "message_uuid": "x"}),
    (lambda q: q.status(), {"subtype": "get_status"}),
    (lambda q: q.workspace_diff(), {"subtype": "get_workspace_diff"}),
    (lambda q: q.plan(), {"subtype": "get_plan"}),
    (lambda q: q.skills_info(), {"subtype": "get_skills_dialog"}),
    (lambda q: q.memory_info(), {"subtype": "get_memory_dialog"}),
    (lambda q: q.sandbox_info(), {"subtype": "get_sandbox_dialog"}),
    (lambda q: q.export_conversation(), {"subtype": "export_conversation"}),
    (lambda q: q.fork_conversation(), {"subtype": "fork_conversation"}),
    (lambda q: q.side_question("what?"), {"subtype": "side_question", "question": "what?"}),
    (lambda q: q.set_prompt_suggestions_paused(True), {"subtype": "set_prompt_suggestions_paused", "paused": True}),
    (lambda q: q.set_proactivity_level("x"), {"subtype": "set_proactivity_level", "level": "x"}),
    (lambda q: q.prompt_draft_activity(), {"subtype": "prompt_draft_activity"}),
    (lambda q: q.interrupt(), {"subtype": "interrupt"}),
    (lambda q: q.end_session(reason="test"), {"subtype": "end_session", "reason": "test"}),
]

# Requests that were not recorded in this form, or whose answer was cut.
UNRECORDED: list[tuple[Call, dict[str, Any]]] = [
    (lambda q: q.context_usage(), {"subtype": "get_context_usage"}),
    (lambda q: q.context_usage(detail="summary"), {"subtype": "get_context_usage", "detail": "summary"}),
    (lambda q: q.usage(), {"subtype": "get_usage"}),
    (
        lambda q: q.set_max_thinking_tokens(1, display="omitted"),
        {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 1, "thinking_display": "omitted"},
    ),
    (
        lambda q: q.mcp_call("mcp__a__b", {"x": 1}, call_timeout=1.5),
        {"subtype": "mcp_call", "tool": "mcp__a__b", "arguments": {"x": 1}, "timeout_ms": 1500},
    ),
    (lambda q: q.channel_enable("a"), {"subtype": "channel_enable", "serverName": "a"}),
    (lambda q: q.interrupt_all(), {"subtype": "interrupt", "cancel_queued": True}),
    (
        lambda q: q.read_file("a", max_bytes=3, encoding="base64"),
        {"subtype": "read_file", "path": "a", "max_bytes": 3, "encoding": "base64"},
    ),
    (lambda q: q.seed_read_state("a", mtime=1.5), {"subtype": "seed_read_state", "path": "a", "mtime": 1500}),
    (lambda q: q.reload_plugins(), {"subtype": "reload_plugins"}),
    (
        lambda q: q.reload_plugins(hold_on_cache_impact=True, refuse_if_busy=True),
        {"subtype": "reload_plugins", "hold_on_cache_impact": True, "refuse_if_busy": True},
    ),
    (
        lambda q: q.register_repo_root(Path("/a"), reload_claude_md=True, reload_plugins=False, reload_skills=False),
        {"subtype": "register_repo_root", "directory": "/a", "reload_claude_md": True, "reload_plugins": False, "reload_skills": False},
    ),
    (lambda q: q.generate_session_title("sums"), {"subtype": "generate_session_title", "description": "sums"}),
    (lambda q: q.rewind_conversation("u"), {"subtype": "rewind_conversation", "target_message_uuid": "u"}),
    (lambda q: q.set_cwd(Path("/a")), {"subtype": "set_cwd", "path": "/a"}),
    (
        lambda q: q.set_cwd("/a", trusted_directory=Path("/a")),
        {"subtype": "set_cwd", "path": "/a", "trust_accepted": True, "trusted_directory": "/a"},
    ),
    (lambda q: q.set_message_waiting(True), {"subtype": "set_message_waiting", "waiting": True}),
    (
        lambda q: q.rate_message("u", sentiment="negative", surface="tool_use", cleared=True),
        {"subtype": "message_rated", "messageUuid": "u", "sentiment": "negative", "surface": "tool_use", "cleared": True},
    ),
    (lambda q: q.set_color("red"), {"subtype": "set_color", "color": "red"}),
    (lambda q: q.end_session(), {"subtype": "end_session"}),
]


def recorded_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to this request; an empty success where it was cut. A request that was not recorded is an `AssertionError`."""
    answers = [answer for asked, answer in EXCHANGES if asked == request]
    assert answers, f"{request} is not in the recording"
    return next((answer for answer in answers if answer is not None), success(None))


def names(calls: list[tuple[Call, dict[str, Any]]]) -> list[str]:
    return [f"{number}-{request['subtype']}" for number, (_, request) in enumerate(calls)]


def public_methods() -> set[str]:
    methods = {name for name, member in inspect.getmembers(Controls, inspect.iscoroutinefunction) if not name.startswith("_")}
    return methods - {"request"}


# ------------------------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize(("call", "request_"), RECORDED, ids=names(RECORDED))
async def test_a_method_makes_the_recorded_request_and_takes_the_recorded_answer(call: Call, request_: dict[str, Any]) -> None:
    answer = recorded_answer(request_)
    peer = Peer(lambda _: answer)
    async with Query(peer) as query:
        if answer["subtype"] == "error":
            with pytest.raises(ControlRequestFailed) as caught:
                await call(query)
            assert str(caught.value) == answer["error"]
            assert caught.value.error_code == answer.get("error_code")
            assert caught.value.subtype == request_["subtype"]
            assert not query.has_ended
        else:
            await call(query)
        assert query.pending_requests == {}
    assert peer.asked == [request_]


@pytest.mark.parametrize(("call", "request_"), UNRECORDED, ids=names(UNRECORDED))
async def test_a_method_makes_exactly_this_request_and_needs_no_payload(call: Call, request_: dict[str, Any]) -> None:
    peer = Peer(lambda _: success(None))
    async with Query(peer) as query:
        await call(query)
    assert peer.asked == [request_]


@pytest.mark.parametrize(("call", "request_"), RECORDED + UNRECORDED, ids=names(RECORDED + UNRECORDED))
async def test_an_answer_of_another_shape_is_no_error(call: Call, request_: dict[str, Any]) -> None:
    odd = dict.fromkeys(["mcpServers", "models", "skills", "text", "rules", "state", "contents", "available_output_styles", "title"], 7)
    peer = Peer(lambda _: success(odd))
    async with Query(peer) as query:
        await call(query)
    assert [asked["subtype"] for asked in peer.asked] == [request_["subtype"]]


async def test_every_method_is_in_these_tables() -> None:
    called: set[str] = set()

    class Notebook:
        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return lambda *_, **__: None

    for call, _ in RECORDED + UNRECORDED:
        call(Notebook())  # type: ignore[arg-type]
    assert called == public_methods()


def test_every_method_has_a_timeout_and_a_docstring() -> None:
    for name in public_methods():
        method = getattr(Controls, name)
        parameter = inspect.signature(method).parameters["timeout"]
        assert parameter.kind is parameter.KEYWORD_ONLY, name
        assert parameter.default > 0, name
        assert method.__doc__, name


def test_no_method_hides_something_else_of_the_query() -> None:
    for name in public_methods():
        assert getattr(Query, name) is getattr(Controls, name)


# ----------------------------------------------------------------------------------------------------------- what comes back


async def ask(call: Call, payload: Mapping[str, Any] | None) -> Any:
    async with Query(Peer(lambda _: success(payload))) as query:
        return await call(query)


async def test_the_answers_are_typed() -> None:
    usage = await ask(lambda q: q.context_usage(), {"totalTokens": 5, "categories": [{"id": "messages", "tokens": 3}]})
    assert isinstance(usage, ContextUsage)
    assert (usage.total_tokens, usage.categories[0].tokens) == (5, 3)
    (server,) = await ask(lambda q: q.mcp_status(), {"mcpServers": [{"name": "s1", "status": "failed", "error": "gone"}]})
    assert isinstance(server, McpServerStatus)
    assert (server.name, server.status, server.error) == ("s1", "failed", "gone")
    change = await ask(lambda q: q.mcp_set_servers({"s1": FALSE}), {"added": ["s1"], "removed": [], "errors": {"s1": "Connection closed"}})
    assert isinstance(change, McpServersChange)
    assert (change.added, change.errors) == (("s1",), {"s1": "Connection closed"})
    rewound = await ask(lambda q: q.rewind_files("u", dry_run=True), {"canRewind": True, "filesChanged": ["a"], "deletions": 1})
    assert isinstance(rewound, RewindResult)
    assert (rewound.can_rewind, rewound.files_changed, rewound.deletions) == (True, ("a",), 1)
    file = await ask(lambda q: q.read_file("a"), {"contents": "x", "absPath": "/a"})
    assert isinstance(file, FileContents)
    assert (file.data, file.abs_path) == (b"x", "/a")
    assert isinstance(await ask(lambda q: q.usage(), None), UsageInfo)


async def test_single_values_come_by_themselves() -> None:
    assert await ask(lambda q: q.set_model("haiku"), {"model": "claude-haiku-5-5"}) == "claude-haiku-5-5"
    assert await ask(lambda q: q.session_cost(), {"text": "$0.01"}) == "$0.01"
    assert await ask(lambda q: q.cancel_message("u"), {"cancelled": True}) is True
    assert await ask(lambda q: q.background("t"), {"backgrounded": False}) is False
    assert await ask(lambda q: q.background(), {}) is None
    assert await ask(lambda q: q.reload_output_styles(), {"available_output_styles": ["default"]}) == ("default",)
    assert await ask(lambda q: q.generate_session_title("x"), {"title": "A title"}) == "A title"
    assert await ask(lambda q: q.register_repo_root("/a"), {"directory": "/real/a"}) == "/real/a"


async def test_interrupting_everything_tells_what_was_dropped() -> None:
    receipt = await ask(lambda q: q.interrupt_all(), {"still_queued": [], "cancelled": ["u1", "u2"]})
    assert receipt.cancelled == ("u1", "u2")


# ------------------------------------------------------------------------------------------------------------------ failures

REFUSED = [(request, answer) for request, answer in EXCHANGES if answer is not None and answer["subtype"] == "error"]


def test_there_are_recorded_refusals() -> None:
    assert len(REFUSED) >= 30


@pytest.mark.parametrize(("request_", "answer"), REFUSED, ids=[f"{n}-{request['subtype']}" for n, (request, _) in enumerate(REFUSED)])
async def test_every_recorded_refusal_is_typed(request_: dict[str, Any], answer: dict[str, Any]) -> None:
    fields = {name: value for name, value in request_.items() if name != "subtype"}
    async with Query(Peer(lambda _: answer)) as query:
        with pytest.raises(ControlRequestFailed) as caught:
            await query.request(request_["subtype"], **fields)
        assert query.pending_requests == {}
    assert (str(caught.value), caught.value.error_code, caught.value.subtype) == (
        answer["error"],
        answer.get("error_code"),
        request_["subtype"],
    )
    assert caught.value.request_id
    assert not caught.value.retryable


async def test_an_unknown_mode_and_an_unsupported_request_have_their_codes() -> None:
    for code in ("invalid_mode", "bypass_not_launched", "unsupported_request"):
        reply = {"subtype": "error", "error": "no", "error_code": code}
        async with Query(Peer(lambda _, reply=reply: reply)) as query:  # type: ignore[misc]
            with pytest.raises(ControlRequestFailed) as caught:
                await query.set_permission_mode("x")
        assert (caught.value.error_code, caught.value.reason) == (code, "no")


@pytest.mark.parametrize(("call", "request_"), RECORDED + UNRECORDED, ids=names(RECORDED + UNRECORDED))
async def test_silence_is_a_timeout_that_names_the_request(call: Call, request_: dict[str, Any]) -> None:
    class Impatient:
        """The same call, with no time for the answer."""

        def __init__(self, query: Query) -> None:
            self._query = query

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._query, name)
            return lambda *arguments, **keywords: method(*arguments, **keywords, timeout=0)

    async with Query(Peer(lambda _: None)) as query:
        impatient: Any = Impatient(query)
        if request_ == {"subtype": "interrupt"}:
            assert await call(impatient) is InterruptOutcome.TIMED_OUT
        else:
            with pytest.raises(ControlTimeout) as caught:
                await call(impatient)
            assert (caught.value.subtype, caught.value.waited) == (request_["subtype"], 0)
        assert query.pending_requests == {}


async def test_a_peer_that_ends_settles_every_request_that_waits() -> None:
    peer = Peer(lambda _: None)
    failures: list[ClaudeTransportError] = []
    outcomes: list[InterruptOutcome] = []

    async def fail(call: Call) -> None:
        with pytest.raises(ClaudeTransportError) as caught:
            await call(query)
        failures.append(caught.value)

    async def interrupt() -> None:
        outcomes.append(await query.interrupt(timeout=math.inf))

    calls: list[Call] = [lambda q: q.mcp_status(timeout=math.inf), lambda q: q.settings(timeout=math.inf)]
    async with Query(peer) as query:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(fail, call)
            tasks.start_soon(interrupt)
            while len(query.pending_requests) < 3:
                await anyio.lowlevel.checkpoint()
            peer.hang_up()
        assert [type(failure) for failure in failures] == [ConnectionLost, ConnectionLost]
        assert outcomes == [InterruptOutcome.DEAD]
        with pytest.raises(TransportClosed):
            await query.mcp_status()
        assert await query.interrupt() is InterruptOutcome.DEAD


async def test_answers_out_of_order_reach_those_who_asked() -> None:
    held: list[str] = []

    def reply(request: dict[str, Any]) -> dict[str, Any] | None:
        held.append(request["subtype"])
        return None

    peer = Peer(reply)
    async with Query(peer) as query:
        got: dict[str, str] = {}

        async def cost() -> None:
            got["cost"] = await query.session_cost()

        async def model() -> None:
            got["model"] = await query.set_model("haiku")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cost)
            while len(held) < 1:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(model)
            while len(held) < 2:
                await anyio.lowlevel.checkpoint()
            by_subtype = {subtype: request_id for request_id, subtype in query.pending_requests.items()}
            peer.say(by_subtype["set_model"], {"model": "claude-haiku-5-5"})
            peer.say(by_subtype["get_session_cost"], {"text": "$1"})
        assert got == {"cost": "$1", "model": "claude-haiku-5-5"}


def test_the_base_has_nothing_but_the_way_to_ask() -> None:
    assert {name for name in vars(Asking) if not name.startswith("_")} == {"request", "is_running", "has_ended"}
