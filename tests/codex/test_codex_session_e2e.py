"""`CodexSession` with the real binary, in empty homes, on a Responses API that a test plays."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from claude_transport import SubprocessTransport, errors
from claude_transport.bridge import HostTool
from claude_transport.client import InterruptOutcome
from claude_transport.codex import (
    AgentMessageDelta,
    ApprovalRequest,
    CodexNotification,
    CodexOptions,
    CodexSession,
    CodexThread,
    CodexTurn,
    CommandApproval,
    CommandExecutionItem,
    ErrorNotification,
    FileChangeApproval,
    ItemCompleted,
    ItemStarted,
)
from claude_transport.testing import FakeResponsesAPI, replies

pytestmark = pytest.mark.e2e

PATIENCE = 60.0  # seconds; a hang fails instead of hanging the suite


@asynccontextmanager
async def talking(options: CodexOptions, **arguments: Any) -> AsyncIterator[CodexSession]:
    with anyio.fail_after(PATIENCE):
        async with CodexSession(SubprocessTransport(options), **arguments) as session:
            yield session


async def heard(turn: CodexTurn, kind: type[CodexNotification]) -> CodexNotification:
    """The next message of this kind."""
    async for message in turn:
        if isinstance(message, kind):
            return message
    raise AssertionError(f"the turn ended without a {kind.__name__}")


def unguarded(options: CodexOptions, **changes: Any) -> CodexOptions:
    """Commands run, and Codex asks for each: no sandbox, which a test machine may not allow."""
    return options.replace(approval_policy="untrusted", sandbox="danger-full-access", **changes)


@pytest.mark.codex_versions
async def test_a_prompt_is_answered(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    usage = replies.Usage(input_tokens=100, output_tokens=7, cache_read_input_tokens=40, reasoning_output_tokens=2)
    responses_api.replace([replies.text("Hello, world", chunks=["Hello", ", ", "world"], usage=usage), replies.text("again", usage=usage)])
    async with talking(codex_options) as session:
        turn = await session.send("Say hello")
        said = [message async for message in turn]
        result = await turn.result()
        second = await (await session.send("And again")).result()
    assert (result.status, result.ok, result.error) == ("completed", True, None)
    assert result.text == turn.text == "Hello, world"
    assert [message.delta for message in said if isinstance(message, AgentMessageDelta)] == ["Hello", ", ", "world"]
    assert {message.turn_id for message in said if isinstance(message, ItemStarted)} == {turn.turn_id}
    assert said[-1].type == "turn/completed"
    assert second.text == "again"
    for each in (result, second):  # each turn has its own tokens
        counts = each.usage
        assert (counts.input_tokens, counts.output_tokens) == (100, 7)
        assert (counts.cached_input_tokens, counts.reasoning_output_tokens) == (40, 2)
    assert second.thread_usage.input_tokens == 200
    assert session.info.exit_code == 0


async def test_the_text_comes_piece_by_piece(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello, world", chunks=["Hello", ", ", "world"])])
    async with talking(codex_options) as session:
        turn = await session.send("Say hello")
        assert [piece async for piece in turn.new_text()] == ["Hello", ", ", "world"]


DECISIONS = {"accept": True, "accept_for_session": True, "decline": False, "cancel": False}


@pytest.mark.codex_versions
@pytest.mark.parametrize("decision", DECISIONS)
async def test_an_approval_decides_whether_a_command_runs(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: Any, decision: str
) -> None:
    command = replies.exec_command("touch made-by-command")
    responses_api.replace([command, command, replies.text("done")])
    asked: list[ApprovalRequest] = []

    async def on_approval(request: ApprovalRequest) -> Any:
        asked.append(request)
        return decision

    async with talking(unguarded(codex_options), on_approval=on_approval) as session:
        result = await (await session.send("Make a file")).result()
    assert (codex_home.project / "made-by-command").exists() is DECISIONS[decision]
    assert result.status == ("interrupted" if decision == "cancel" else "completed")
    assert isinstance(asked[0], CommandApproval)
    assert "touch made-by-command" in (asked[0].command or "")
    assert Path(asked[0].cwd or "") == codex_home.project
    # the model asks for the same command twice: it is not asked for again once it was accepted for the session
    assert len(asked) == (2 if decision in ("accept", "decline") else 1)


async def unasked(_: ApprovalRequest) -> Any:
    raise ValueError("broken")


async def nonsense(_: ApprovalRequest) -> Any:
    return "yes"


def plain(_: ApprovalRequest) -> Any:
    return "accept"


@pytest.mark.codex_versions
@pytest.mark.parametrize("callback", [None, unasked, nonsense, plain])
async def test_an_approval_fails_closed(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: Any, callback: Any
) -> None:
    responses_api.replace([replies.exec_command("touch made-by-command"), replies.text("so be it")])
    async with talking(unguarded(codex_options), on_approval=callback) as session:
        turn = await session.send("Make a file")
        items = [message.item async for message in turn if isinstance(message, ItemCompleted)]
        result = await turn.result()
        assert session.failed_callbacks == (0 if callback is None else 1)
    assert not (codex_home.project / "made-by-command").exists()
    assert [item.status for item in items if isinstance(item, CommandExecutionItem)] == ["declined"]
    assert (result.status, result.text) == ("completed", "so be it")


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+first line\n*** End Patch\n"


@pytest.mark.codex_versions
@pytest.mark.parametrize("decision", ["accept", "decline"])
async def test_an_approval_decides_whether_files_change(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: Any, decision: str
) -> None:
    responses_api.replace([replies.apply_patch(PATCH), replies.text("done")])
    asked: list[ApprovalRequest] = []

    async def on_approval(request: ApprovalRequest) -> Any:
        asked.append(request)
        return decision

    # with "danger-full-access", a patch is not asked for
    options = codex_options.replace(approval_policy="untrusted", sandbox="read-only")
    async with talking(options, on_approval=on_approval) as session:
        result = await (await session.send("Make a file")).result()
    assert (codex_home.project / "made.txt").exists() is (decision == "accept")
    assert result.status == "completed"
    (request,) = asked
    assert isinstance(request, FileChangeApproval)
    assert [(Path(change.path).name, change.diff) for change in request.changes] == [("made.txt", "first line\n")]


async def test_an_interrupt_ends_the_turn_and_the_thread_goes_on(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.gated("slow and more", chunks=["slow ", "and more"]), replies.text("Hello, world")])
    async with talking(codex_options) as session:
        assert await session.interrupt() is InterruptOutcome.NOT_RUNNING
        turn = await session.send("Count")
        await heard(turn, AgentMessageDelta)
        assert await session.interrupt() is InterruptOutcome.ACKNOWLEDGED
        result = await turn.result()
        after = await (await session.send("And now?")).result()
    assert (result.status, result.text, result.error) == ("interrupted", "slow ", None)
    with pytest.raises(errors.RunInterrupted):
        result.raise_for_error()
    assert after.text == "Hello, world"


@pytest.mark.codex_versions
async def test_an_interrupt_settles_a_question_for_approval(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.exec_command("touch made-by-command"), replies.text("done")])
    asked, cancelled = anyio.Event(), anyio.Event()

    async def on_approval(_: ApprovalRequest) -> Any:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with talking(unguarded(codex_options), on_approval=on_approval) as session:
        turn = await session.send("Make a file")
        await asked.wait()
        (waiting,) = session.pending_approvals
        assert isinstance(waiting, CommandApproval)
        assert await session.interrupt() is InterruptOutcome.ACKNOWLEDGED
        result = await turn.result()
        await cancelled.wait()
        assert session.pending_approvals == ()
    assert result.status == "interrupted"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_an_interrupt_leaves_a_command_running_until_the_session_is_closed(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: Any
) -> None:
    pipe = codex_home.project / "pid"
    os.mkfifo(pipe)
    # Codex ends a command that has only just begun; this one says its pid after a second
    command = f"sleep 1; echo $$ > {pipe}; exec sleep 297"
    responses_api.replace([replies.exec_command(command, yield_time_ms=30000), replies.text("done")])
    async with talking(codex_options.replace(approval_policy="never", sandbox="danger-full-access")) as session:
        turn = await session.send("Sleep")
        pid = int((await anyio.Path(pipe).read_text()).strip())
        assert await session.interrupt() is InterruptOutcome.ACKNOWLEDGED
        assert (await turn.result()).status == "interrupted"
        assert is_running(pid)
    assert not is_running(pid)


@pytest.mark.codex_versions
async def test_a_thread_is_resumed_in_a_new_process_and_forked(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("one"), replies.text("two"), replies.text("three")])
    async with talking(codex_options) as session:
        thread_id = session.thread_id
        await (await session.send("First")).result()
    async with talking(codex_options, resume=thread_id) as session:
        assert session.thread_id == thread_id
        second = await (await session.send("Second")).result()
        branch = await session.fork()
        assert isinstance(branch, CodexThread)
        assert branch.thread_id != thread_id
        assert branch.data.forked_from_id == thread_id
        third = await (await branch.send("Third")).result()
    assert (second.text, third.text) == ("two", "three")
    assert second.usage != second.thread_usage  # the thread counts on, the turn does not
    history = [str(request.body["input"]) for request in responses_api.conversation]
    assert "First" in history[1]
    assert "First" in history[2]
    assert "Second" in history[2]


async def test_a_thread_that_does_not_exist_cannot_be_resumed(codex_options: CodexOptions) -> None:
    transport = SubprocessTransport(codex_options)
    session = CodexSession(transport, resume="00000000-0000-7000-8000-000000000000")
    with anyio.fail_after(PATIENCE), pytest.raises(errors.ConfigurationError, match="there is no thread") as caught:
        await session.start()
    assert caught.value.option == "resume"
    assert not transport.is_ready()
    assert transport.info.exit_code == 0


FAILURES = {
    "401": (replies.error(401), errors.AuthFailed, "exec.cli.auth_failed"),
    "429": (replies.error(429, headers={"retry-after": "0"}), errors.RateLimited, "result.rate_limited"),
    "500": (replies.error(500), errors.APIFailed, "result.server_error"),
    "400": (replies.error(400), errors.APIFailed, "result.invalid_request"),
    "usage limit": (replies.usage_limit(), errors.RateLimited, "result.rate_limited"),
    "context": (replies.failed("context_length_exceeded"), errors.PromptTooLong, "result.prompt_too_long"),
    "cut": (replies.cut(times=None), errors.APIFailed, "result.connection_failed"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_of_the_model_has_the_code_that_it_has_with_claude(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, name: str
) -> None:
    reply, kind, code = FAILURES[name]
    responses_api.replace([reply])
    async with talking(codex_options) as session:
        result = await (await session.send("Say hello")).result()
        assert result.status == "failed"
        assert result.error is not None
        assert isinstance(result.error, kind)
        assert result.error.code == code
        with pytest.raises(kind):
            result.raise_for_error()
        responses_api.replace([replies.text("Hello again", times=None)])  # a full context is summarised first
        assert (await (await session.send("And now?")).result()).text == "Hello again"  # the process lives on


async def test_a_retry_is_no_failure_and_its_text_is_there_once(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    whole = replies.text("Hello, world", chunks=["Hello", ", ", "world"])
    responses_api.replace([replies.cut(whole, after_events=4), whole])
    async with talking(codex_options) as session:
        turn = await session.send("Say hello")
        said = [message async for message in turn]
        result = await turn.result()
    assert any(isinstance(message, ErrorNotification) and message.will_retry for message in said)
    deltas = [message.delta for message in said if isinstance(message, AgentMessageDelta)]
    assert deltas.count("Hello") == 2  # Codex says it again from the start
    assert (result.status, result.error, result.text, turn.text) == ("completed", None, "Hello, world", "Hello, world")
    assert result.retries == 1


async def test_the_model_calls_a_tool_of_this_program(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    called: list[Any] = []

    async def add(arguments: dict[str, Any], context: Any) -> str:
        called.append((arguments, context.tool, context.turn_id))
        return str(arguments["a"] + arguments["b"])

    numbers = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
    tool = HostTool(name="add", call=add, description="Adds two numbers", input_schema=numbers)
    responses_api.replace([replies.tool_use("add", {"a": 1, "b": 2}), replies.tool_use("add", {"a": 1}), replies.text("3")])
    async with talking(codex_options, tools=[tool]) as session:
        turn = await session.send("Add")
        result = await turn.result()
        assert called == [({"a": 1, "b": 2}, "add", turn.turn_id)]
    assert result.text == "3"
    outputs = [tool_result for request in responses_api.conversation for tool_result in request.tool_results]
    assert "3" in str(outputs[0])
    assert "add needs b" in str(outputs[-1])


async def test_two_threads_run_at_once_in_one_process(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    one, two = replies.gated("slow one", chunks=["slow ", "one"]), replies.gated("slow two", chunks=["slow ", "two"])
    responses_api.replace({"One": one, "Two": two})
    async with talking(codex_options) as session:
        other = await session.start_thread()
        first, second = await session.send("One"), await other.send("Two")
        await heard(first, AgentMessageDelta)
        await heard(second, AgentMessageDelta)
        assert set(session.running_turns) == {first.turn_id, second.turn_id}
        responses_api.open_gate()
        results = [await first.result(), await second.result()]
    assert [result.text for result in results] == ["slow one", "slow two"]
    assert [result.thread_id for result in results] == [session.thread_id, other.thread_id]


@pytest.mark.codex_needs("a steer cuts the answer short")
async def test_a_turn_is_steered_and_a_prompt_during_it_is_folded_in(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.gated("slow and more", chunks=["slow ", "and more"]), replies.text("steered", times=None)])
    async with talking(codex_options) as session:
        with pytest.raises(errors.ControlRequestFailed, match="no turn is running"):
            await session.steer("Faster")
        turn = await session.send("Count")
        await heard(turn, AgentMessageDelta)
        await session.steer("Faster")
        folded = await session.send("A second prompt while one runs")
        assert folded.turn_id == turn.turn_id
        result, same = await turn.result(), await folded.result()
    assert result is same
    assert (result.status, result.text) == ("completed", "steered")
    last = str(responses_api.conversation[-1].body["input"])
    assert "Faster" in last
    assert "A second prompt" in last


async def test_a_prompt_that_is_too_long_is_refused_before_it_is_sent(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    async with talking(codex_options) as session:
        with pytest.raises(errors.PromptTooLong, match="1,048,577") as caught:
            await session.send("x" * 1_048_577)
        assert caught.value.code == "result.prompt_too_long"
        params = {"threadId": session.thread_id, "input": [{"type": "text", "text": "x" * 1_048_577, "text_elements": []}]}
        with pytest.raises(errors.PromptTooLong):  # and so does Codex itself
            await session.request("turn/start", params)
        assert responses_api.conversation == []
        assert (await (await session.send("x" * 1_048_576)).result()).ok


async def test_closing_during_a_turn_interrupts_it_and_says_so(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.gated("slow and more", chunks=["slow ", "and more"])])
    async with talking(codex_options) as session:
        turn = await session.send("Count")
        await heard(turn, AgentMessageDelta)
        report = await session.aclose()
        result = await turn.result()
    assert result.status == "interrupted"
    assert report.interrupted_turns == (turn.turn_id,)
    assert report.lost_turns == ()
    assert (report.ended_by_itself, report.exit_code, report.killed) == (True, 0, False)
    assert await session.aclose() == report


@pytest.mark.codex_needs("SIGTERM ends with code 0", when="15")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_killed_process_raises_to_everything_that_waits(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, how: signal.Signals
) -> None:
    responses_api.replace([replies.gated("slow and more", chunks=["slow ", "and more"])])
    raised: list[errors.ProcessError] = []
    async with talking(codex_options) as session:
        turn = await session.send("Count")
        await heard(turn, AgentMessageDelta)
        assert session.info.pid is not None
        os.kill(session.info.pid, how)
        for wait in (turn.result, turn.__anext__, lambda: session.send("And now?"), lambda: session.request("model/list")):
            with pytest.raises(errors.ProcessError) as caught:
                await wait()
            raised.append(caught.value)
        assert await session.interrupt() is InterruptOutcome.DEAD
        report = await session.aclose()
    expected = (0, None) if how is signal.SIGTERM else (None, signal.SIGKILL)  # a SIGTERM is a good end for Codex
    for error in raised:
        assert (error.exit_code, error.signal) == expected
        assert "WARNING" in error.stderr_tail  # standard error is always busy, and never a failure
    assert report.lost_turns == (turn.turn_id,)


async def test_many_deltas_that_nothing_reads_all_arrive(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    words = [f"word{number:05d} " for number in range(5000)]
    responses_api.replace([replies.text("".join(words), chunks=words)])
    async with talking(codex_options) as session:
        turn = await session.send("Count")
        result = await turn.result()
        deltas = [message.delta async for message in turn if isinstance(message, AgentMessageDelta)]
    assert deltas == words
    assert result.text == "".join(words)


async def test_a_resumed_thread_calls_the_tools_of_its_new_host(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    called: list[str] = []

    def stock(name: str) -> HostTool:
        async def in_stock(_: dict[str, Any], __: Any) -> str:
            called.append(name)
            return "7"

        return HostTool(name="in_stock", call=in_stock, description="How many there are")

    ask = replies.tool_use("in_stock", {})
    responses_api.replace([ask, replies.text("seven"), ask, replies.text("still seven"), ask, replies.text("none")])
    async with talking(codex_options, tools=[stock("first")]) as session:
        thread_id = session.thread_id
        assert (await (await session.send("How many?")).result()).text == "seven"
    async with talking(codex_options, tools=[stock("second")], resume=thread_id) as session:
        assert (await (await session.send("And now?")).result()).text == "still seven"
    async with talking(codex_options, resume=thread_id) as session:  # this host has none, so the call fails
        assert (await (await session.send("And now?")).result()).text == "none"
    assert called == ["first", "second"]


async def test_a_prompt_into_the_full_pipe_of_a_stopped_process_is_a_typed_error(codex_options: CodexOptions) -> None:
    transport = SubprocessTransport(codex_options, close_timeout=0.2)
    with anyio.fail_after(PATIENCE):
        async with CodexSession(transport, timeout=0.3) as session:
            pid = session.info.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(errors.ControlTimeout, match="turn/start"):
                await session.send("x" * 1_000_000)
            report = await session.aclose(timeout=0.1)
    assert not report.ended_by_itself
    assert not is_running(pid)
