"""What a session of Codex says about one turn and one thread: steering, tokens, messages after the end, a thread that is not there."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from codex_player import Codex, acting, connected, sent

from claude_transport import errors
from claude_transport.codex import ApprovalDecision, ApprovalRequest, CodexNotification, CodexOptions, CodexPool, SyncCodexSession
from claude_transport.codex.agent import plan_codex
from claude_transport.codex.discovery import find_codex
from claude_transport.codex.messages import ItemCompleted, decode_message
from claude_transport.codex.options import check_options
from claude_transport.codex.pool import LateApproval, PooledCodex
from claude_transport.codex.testing.scenario import RunCommand, Say
from claude_transport.codex.tool_calls import ToolCall, tool_call_of
from claude_transport.launch.launcher import Launcher
from claude_transport.testing import CodexScenario, FakeCodex
from claude_transport.transports.subprocess import SubprocessTransport

NOTHING_RUNS = "no turn is running that could be steered: send() starts one"


async def test_only_a_running_turn_can_be_steered_and_the_request_names_it() -> None:
    async with connected() as (session, codex):
        for steer in (session.steer, session.thread.steer):
            with pytest.raises(errors.ControlRequestFailed) as caught:
                await steer("too early")
            assert (caught.value.args, caught.value.subtype) == ((NOTHING_RUNS,), "turn/steer")
        await sent(session, codex, "hello")
        for steer in (session.steer, session.thread.steer):
            asked: dict[str, Any] = {}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(steer, "and more")
                asked |= await codex.answer({}, method="turn/steer")
            given = [{"type": "text", "text": "and more", "text_elements": []}]
            assert asked["params"] == {"threadId": "T", "expectedTurnId": "U", "input": given}

        async def refuse() -> None:
            request = await codex.hear()
            await codex.say({"id": request["id"], "error": {"code": -32600, "message": "cannot be steered"}})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse)
            with pytest.raises(errors.JSONRPCError, match="cannot be steered"):
                await session.steer("again")
        await codex.complete()


def usage(total: int, last: int) -> dict[str, Any]:
    def counts(tokens: int) -> dict[str, int]:
        return {"totalTokens": tokens, "inputTokens": tokens, "cachedInputTokens": 0, "outputTokens": 0, "reasoningOutputTokens": 0}

    return {"total": counts(total), "last": counts(last)}


async def test_tokens_that_codex_reports_again_are_counted_once() -> None:
    async with connected() as (session, codex):
        turn = await sent(session, codex, "hello")
        for total, last in ((10, 10), (10, 10), (25, 15), (25, 15)):
            await codex.tell("thread/tokenUsage/updated", turnId="U", tokenUsage=usage(total, last))
        await codex.complete()
        result = await turn.result()
        assert result.usage is not None
        assert result.usage.total_tokens == 25


async def test_every_iteration_over_the_messages_ends_with_the_error_that_ended_codex() -> None:
    async def part(codex: Codex) -> None:
        await codex.begin()
        await codex.stream.send(b'{"torn":')
        await codex.stream.aclose()

    async with acting(part) as (session, _):
        messages = session.messages()
        found: list[BaseException] = []
        for _ in range(2):
            with pytest.raises(errors.TruncatedStream) as caught:
                await anext(messages)
            found.append(caught.value)
        assert found[0] is not found[1]  # each reader has a traceback of its own
        assert str(found[0]) == str(found[1])


@pytest.mark.parametrize("message", ["no rollout found for thread id X", "another reason"])
async def test_only_a_thread_that_is_not_there_is_a_wrong_option(message: str) -> None:
    async with connected() as (session, codex):

        async def refuse() -> None:
            request = await codex.hear()
            assert (request["method"], request["params"]["threadId"]) == ("thread/resume", "X")
            await codex.say({"id": request["id"], "error": {"code": -32600, "message": message}})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse)
            if message == "another reason":
                with pytest.raises(errors.JSONRPCError, match="another reason"):
                    await session.resume_thread("X")
                return
            with pytest.raises(errors.ConfigurationError) as caught:
                await session.resume_thread("X")
            said = "there is no thread 'X' in this CODEX_HOME: resume one that was started with the same CODEX_HOME"
            assert str(caught.value).startswith(said)
            assert caught.value.option == "resume"
            assert isinstance(caught.value.__cause__, errors.JSONRPCError)


@pytest.mark.parametrize("answer", ["result", "error", "nothing"])
async def test_a_pool_asks_a_session_whether_it_answers_in_its_time(answer: str) -> None:
    async with connected() as (session, codex):
        pooled = PooledCodex(session, approval=LateApproval(None))

        async def play() -> None:
            request = await codex.hear()
            assert request["method"] == "thread/loaded/list"
            if answer != "nothing":
                said = {"data": []} if answer == "result" else {"code": -32601, "message": "unknown"}
                await codex.say({"id": request["id"], answer: said})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            if answer == "nothing":
                with pytest.raises(errors.ControlTimeout):
                    await pooled.check(timeout=0.02)
            else:
                await pooled.check(timeout=30.0)
        assert codex.heard[-1]["method"] == "thread/loaded/list"


def test_a_blocking_session_that_is_started_by_hand_steers_and_asks_as_the_other_one() -> None:
    with FakeCodex() as fake:
        session = SyncCodexSession(SubprocessTransport(CodexOptions(codex_path=fake.path)))
        session.start()
        soon: Any = "soon"
        try:
            for each in (session, session.thread):
                with pytest.raises(errors.ControlRequestFailed, match=r"send\(\) starts one"):
                    each.steer("hello")
                with pytest.raises(errors.UsageError, match="timeout"):
                    each.interrupt(timeout=soon)
            with pytest.raises(errors.ControlTimeout):
                session.request("model/list", timeout=1e-9)
        finally:
            session.close()
        assert [call.prompts for call in fake.calls()] == [[]]


REFUSED = [
    ({"cwd": 5}, "cwd", "must be a path or None, not int"),
    ({"codex_path": 5}, "codex_path", "must be a path or None, not int"),
    ({"codex_home": 5}, "codex_home", "must be a path or None, not int"),
    ({"model": 5}, "model", "must be a text or None, not int"),
    ({"config": ["a"]}, "config", "must be a mapping of settings by name, not list"),
    *(
        ({name: value}, name, said)
        for name in ("extra_args", "env_allow")
        for value, said in (
            ("text", "must be a sequence of texts, not str"),
            (b"text", "must be a sequence of texts, not bytes"),
            (5, "must be a sequence of texts, not int"),
            (["a", ""], "must hold non-empty texts only"),
            (["a", 5], "must hold non-empty texts only"),
        )
    ),
]


@pytest.mark.parametrize(("given", "option", "said"), REFUSED)
def test_an_option_of_a_wrong_type_is_refused_by_name(given: Any, option: str, said: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        check_options(CodexOptions(**given))
    assert caught.value.option == option
    assert str(caught.value).endswith(said)


CALLS: list[tuple[dict[str, Any], bool, ToolCall | None]] = [
    ({"type": "agentMessage", "text": "hi"}, True, None),
    (
        {"type": "mcpToolCall", "server": "s", "tool": "t", "status": "completed", "arguments": {"a": 1}, "result": {"r": 1}},
        True,
        ToolCall(name="s/t", input={"a": 1}, output={"r": 1}, status="ok"),
    ),
    (
        {"type": "mcpToolCall", "server": "", "tool": "t", "status": "failed", "arguments": [1], "error": {"message": "no"}},
        True,
        ToolCall(name="t", input={"arguments": [1]}, output={"message": "no"}, status="error"),
    ),
    (
        {"type": "mcpToolCall", "server": "", "tool": "", "status": "inProgress", "arguments": None},
        False,
        ToolCall(name="mcpToolCall", input={}, output=None, status="open"),
    ),
    (
        {"type": "commandExecution", "command": "ls", "cwd": "/", "status": "completed", "exitCode": 1, "aggregatedOutput": "out"},
        True,
        ToolCall(name="commandExecution", input={"command": "ls", "cwd": "/"}, output="out", status="error"),
    ),
    (
        {"type": "commandExecution", "command": "ls", "cwd": "/", "status": "completed", "exitCode": 0, "aggregatedOutput": "out"},
        False,
        ToolCall(name="commandExecution", input={"command": "ls", "cwd": "/"}, output=None, status="ok"),
    ),
    (
        {"type": "commandExecution", "command": "ls", "cwd": "/", "status": "inProgress"},
        True,
        ToolCall(name="commandExecution", input={"command": "ls", "cwd": "/"}, output=None, status="ok"),
    ),
    ({"type": "new", "status": 5, "id": "i"}, True, None),
    ({"type": "new", "status": "failed", "id": "i", "x": 1}, True, ToolCall(name="new", input={"x": 1}, output=None, status="error")),
    ({"type": "", "status": "completed", "id": "i"}, True, ToolCall(name="item", input={}, output=None, status="ok")),
]


@pytest.mark.parametrize(("item", "is_over", "call"), CALLS)
def test_an_item_is_the_call_that_it_says(item: dict[str, Any], is_over: bool, call: ToolCall | None) -> None:
    params = {"threadId": "T", "turnId": "U", "item": {"id": "i", **item}}
    message = decode_message(json.dumps({"method": "item/completed", "params": params}).encode())
    assert isinstance(message, ItemCompleted)
    assert tool_call_of(message.item, is_over=is_over) == call


PLACES = [
    *((f"{{home}}/{below}", {}) for below in (".local/bin", ".npm-global/bin", "node_modules/.bin", ".yarn/bin", ".bun/bin", ".volta/bin")),
    ("{home}/prefix/bin", {"NPM_CONFIG_PREFIX": "{home}/prefix"}),
]


@pytest.mark.parametrize(("place", "env"), PLACES)
def test_codex_is_found_in_the_places_where_it_is_usually_installed(place: str, env: dict[str, str], tmp_path: Path) -> None:
    folder = Path(place.format(home=tmp_path))
    folder.mkdir(parents=True)
    (folder / "codex").write_bytes(b"\x7fELF")
    (folder / "codex").chmod(0o700)
    given = {name: value.format(home=tmp_path) for name, value in env.items()}
    assert find_codex(env={"PATH": str(tmp_path), **given}, home=tmp_path, platform="linux").path == str(folder / "codex")


def test_a_command_of_its_own_is_what_runs_behind_a_launcher() -> None:
    launcher = Launcher.ssh("box", program=sys.executable)
    given = plan_codex(CodexOptions(), inherited={}, command=["codex-of-mine", "app-server"], launcher=launcher)
    assert (given.launch.argv, given.launcher) == (("codex-of-mine", "app-server"), launcher)
    assert given.remote is not None
    assert given.remote.assign == {}
    options = CodexOptions(codex_path="/opt/codex", env={"tracestate": "own"})
    own = plan_codex(options, inherited={"HOME": "/home"}, launcher=launcher, trace={"traceparent": "t", "tracestate": "s"})
    assert own.launch.argv[0] == "/opt/codex"
    assert own.launch.env == {}
    assert own.remote is not None
    assert own.remote.assign == {"traceparent": "t", "tracestate": "own"}


async def test_a_thread_that_was_opened_is_known_before_its_first_turn() -> None:
    async with connected() as (session, codex):
        opened: list[Any] = []

        async def fork() -> None:
            opened.append(await session.fork())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fork)
            await codex.answer({"thread": {"id": "F"}, "model": "m-1"}, method="thread/fork")
        (thread,) = opened
        assert thread.thread_id == "F"


@pytest.mark.parametrize("name", ["warm", "cap", "idle_ttl", "max_age", "max_rss_bytes"])
def test_each_limit_of_a_pool_is_one_of_its_arguments(name: str) -> None:
    given: Any = {name: -5}
    with pytest.raises(errors.ConfigurationError) as caught:
        CodexPool(CodexOptions(), **given)
    assert caught.value.option == name


@pytest.mark.parametrize("more", [{}, {"unknown": {"x": 1}}, {"turn": {"id": "U", "status": 5}}])
def test_a_message_says_when_it_was_sent_also_when_not_all_of_it_fits(more: dict[str, Any]) -> None:
    params = {"threadId": "T", "turn": {"id": "U", "status": "inProgress"}, **more}
    for when in ({"emittedAtMs": 1234}, {}):
        message = decode_message(json.dumps({"method": "turn/started", "params": params, **when}).encode())
        assert isinstance(message, CodexNotification)
        assert message.emitted_at_ms == when.get("emittedAtMs")


def test_a_blocking_wait_for_a_result_ends_in_its_time_and_the_turn_goes_on() -> None:
    go = threading.Event()

    async def decide(_: ApprovalRequest) -> ApprovalDecision:
        with anyio.move_on_after(2.0):  # a wait without an end fails, and does not hang
            while not go.is_set():
                await anyio.sleep(0.005)
        return "decline"

    with FakeCodex(CodexScenario.turns([[RunCommand(command="ls", ask=True), Say(text="done")]])) as fake:
        transport = SubprocessTransport(CodexOptions(codex_path=fake.path))
        with SyncCodexSession(transport, on_approval=decide) as session:
            turn = session.send("hello")
            with pytest.raises(TimeoutError, match=r"the turn goes on: wait again, or call interrupt\(\)"):
                turn.result(timeout=0.01)
            go.set()
            assert turn.result(timeout=30.0).status == "completed"
