"""A gateway in front of Codex: it waits for running turns, and interrupts them before the input of their process ends."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from rehearsal import Rehearsal, Talker, rehearsal
from virtual_time import virtual_time

from claude_transport.codex.agent import CodexFields
from claude_transport.codex.options import CodexOptions
from claude_transport.errors import CLINotFoundError
from claude_transport.link.machine import Bye, End

START = b'{"id":1,"method":"turn/start","params":{"threadId":"t","input":[]}}'
ANSWER = b'{"id":1,"result":{"turn":{"id":"one","status":"inProgress"}}}'
STARTED = b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"one"}}}'
DELTA = b'{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"one","delta":"word"}}'
INTERRUPTED = b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"one","status":"interrupted"}}}'
COMPLETED = b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"one","status":"completed"}}}'


async def until_busy(stage: Rehearsal, *, busy: bool = True) -> None:
    with anyio.fail_after(30):
        while [session.busy for session in stage.gateway.sessions] != [busy]:
            await anyio.lowlevel.checkpoint()


async def plain_turn(stage: Rehearsal) -> tuple[Talker, Talker]:
    """A client in plain mode and its process, with a turn that runs."""
    client = await stage.plain()
    process = await stage.processes.next()
    await client.say(START)
    assert await process.hear() == START
    await process.say(ANSWER, STARTED)
    assert [await client.hear(), await client.hear()] == [ANSWER, STARTED]
    await until_busy(stage)
    return client, process


async def link_turn(stage: Rehearsal) -> tuple[Talker, Talker]:
    """A client in link mode and its process, with a turn that runs."""
    client = await stage.link()
    process = await stage.processes.next()
    await client.send_line(START)
    assert await process.hear() == START
    await process.say(ANSWER, STARTED)
    assert [await client.hear_line(), await client.hear_line()] == [ANSWER, STARTED]
    await until_busy(stage)
    return client, process


def is_interrupt(line: bytes) -> bool:
    request: dict[str, Any] = json.loads(line)
    return request["method"] == "turn/interrupt" and request["params"] == {"threadId": "t", "turnId": "one"}


async def test_a_drain_waits_for_the_running_turn_and_interrupts_nothing() -> None:
    async with rehearsal() as stage:
        client, process = await plain_turn(stage)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.gateway.drain)
            await anyio.wait_all_tasks_blocked()
            await process.say(DELTA, COMPLETED)
            assert [await client.hear(), await client.hear()] == [DELTA, COMPLETED]
            assert await process.rest() == b""
            await client.stream.aclose()
        assert stage.gateway.sessions == ()
        assert stage.gateway.metrics.ended == {"drained": 1}


@pytest.mark.parametrize("turn", [plain_turn, link_turn])
async def test_a_gateway_that_is_closed_interrupts_the_turn_before_the_input_ends(turn: Any) -> None:
    async with rehearsal() as stage:
        client, process = await turn(stage)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.gateway.aclose)
            assert is_interrupt(await process.hear())
            await process.say(b'{"id":"claude-transport-end-1","result":{}}', INTERRUPTED)
            hear = client.hear if turn is plain_turn else client.hear_line
            assert [json.loads(await hear())["id"], await hear()] == ["claude-transport-end-1", INTERRUPTED]
            assert await process.rest() == b""
            await client.stream.aclose()


async def test_a_client_that_ends_its_input_gets_the_end_of_its_turn() -> None:
    async with rehearsal() as stage:
        client, process = await plain_turn(stage)
        await client.stream.send_eof()
        assert is_interrupt(await process.hear())
        await process.say(INTERRUPTED)
        assert await process.rest() == b""
        await process.stream.aclose()
        assert await client.rest() == INTERRUPTED + b"\n"


async def test_over_a_link_the_end_of_the_input_waits_for_the_end_of_the_turn_too() -> None:
    async with rehearsal() as stage:
        client, process = await link_turn(stage)
        await client.frame(End(after=len(START) + 1))
        assert is_interrupt(await process.hear())
        await process.say(INTERRUPTED)
        assert await client.hear_line() == INTERRUPTED
        assert await process.rest() == b""
        await stage.end(client, process)


async def test_a_client_that_says_goodbye_during_a_turn_leaves_a_turn_that_was_interrupted() -> None:
    async with rehearsal() as stage:
        client, process = await link_turn(stage)
        await client.frame(Bye(code="", reason="done"))
        assert is_interrupt(await process.hear())
        await process.say(INTERRUPTED)
        assert await process.rest() == b""
        await process.stream.aclose()


@virtual_time
async def test_a_turn_that_does_not_end_holds_the_end_of_the_input_up_for_five_seconds() -> None:
    async with rehearsal() as stage:
        client, process = await plain_turn(stage)
        began = anyio.current_time()
        await client.stream.send_eof()
        assert is_interrupt(await process.hear())
        assert await process.rest() == b""
        assert anyio.current_time() - began == pytest.approx(5.0, abs=1.0)
        await process.stream.aclose()


async def test_a_process_that_dies_during_the_wait_ends_it() -> None:
    async with rehearsal() as stage:
        client, process = await plain_turn(stage)
        await client.stream.send_eof()
        assert is_interrupt(await process.hear())
        await process.stream.aclose()
        assert await client.rest() == b""
        await stage.until(sessions=0)


async def test_an_idle_codex_is_ended_at_once() -> None:
    async with rehearsal() as stage:
        client, process = await plain_turn(stage)
        await process.say(COMPLETED)
        await client.hear()
        await until_busy(stage, busy=False)
        await client.stream.send_eof()
        assert await process.rest() == b""
        await process.stream.aclose()


def request(method: str, **params: Any) -> bytes:
    return json.dumps({"id": 1, "method": method, "params": params}).encode()


@pytest.mark.parametrize("method", ["thread/start", "thread/resume", "thread/fork"])
def test_the_options_of_the_gateway_hold_for_every_thread(method: str) -> None:
    fields = CodexFields({"approvalPolicy": "untrusted", "sandbox": "read-only"})
    (line,) = fields.merged([request(method, cwd="/x", sandbox="danger-full-access")])
    assert json.loads(line) == {
        "id": 1,
        "method": method,
        "params": {"cwd": "/x", "sandbox": "read-only", "approvalPolicy": "untrusted"},
    }
    (hidden,) = fields.merged([request(method, sandbox="danger-full-access").replace(b"/", b"\\/").replace(b"thr", b"\\u0074hr")])
    assert json.loads(hidden)["params"]["sandbox"] == "read-only"
    assert b"\n" not in line  # it is still one line
    (bare,) = fields.merged([b'{"id":1,"method":"%s"}' % method.encode()])
    assert json.loads(bare)["params"] == {"approvalPolicy": "untrusted", "sandbox": "read-only"}


def test_a_prompt_gets_no_sandbox_and_no_policy_of_its_own() -> None:
    fields = CodexFields({"approvalPolicy": "untrusted", "sandbox": "read-only"})
    asked = request("turn/start", threadId="t", approvalPolicy="never", sandboxPolicy={"type": "dangerFullAccess"})
    (line,) = fields.merged([asked])
    assert json.loads(line)["params"] == {"threadId": "t", "approvalPolicy": "untrusted"}
    (plain,) = fields.merged([request("turn/start", threadId="t")])
    assert json.loads(plain)["params"] == {"threadId": "t"}


def test_other_lines_and_a_gateway_without_such_options_keep_every_byte() -> None:
    lines = [b'{ "method":"thread/list" }', b"thread/start", b'["thread/start"]', b'{"id":1,"result":{"x":"thread/start"}}', b'"\\u0074"']
    assert CodexFields({"sandbox": "read-only"}).merged(lines) == lines
    asked = [request("thread/start", sandbox="danger-full-access")]
    assert CodexFields({}).merged(asked) is asked


async def test_a_gateway_with_options_of_codex_lays_them_over_the_threads_of_its_clients() -> None:
    async with rehearsal(options=CodexOptions(approval_policy="untrusted", sandbox="read-only")) as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await client.say(request("thread/start", sandbox="danger-full-access"))
        assert json.loads(await process.hear())["params"] == {"approvalPolicy": "untrusted", "sandbox": "read-only"}


async def test_a_client_of_a_gateway_with_codex_chooses_no_options() -> None:
    async with rehearsal(options=CodexOptions()) as stage:
        client = await stage.plain(options={"model": "another"})
        refused = json.loads(await client.hear())
        assert refused["error"]["code"] == "options"
        assert "thread/start" in refused["error"]["message"]


async def test_a_client_that_chooses_much_is_told_of_the_first_eight() -> None:
    async with rehearsal(options=CodexOptions()) as stage:
        client = await stage.plain(options={f"o{number:02}": number for number in range(100)})
        refused = json.loads(await client.hear())
        assert refused["error"]["message"].partition(": ")[2].partition(". ")[0] == "o00, o01, o02, o03, o04, o05, o06, o07"
        client = await stage.plain(options={"o" * 300: 1, "p": 2})
        refused = json.loads(await client.hear())
        assert refused["error"]["message"].partition(": ")[2].partition(". ")[0] == f"{'o' * 64}, p"


async def test_the_log_of_a_failed_start_has_one_line_whatever_the_failure_says(caplog: pytest.LogCaptureFixture) -> None:
    def launch(_: CodexOptions) -> Any:
        raise CLINotFoundError("no codex\nhere\x1b[2J")

    async with rehearsal(options=CodexOptions(), launch=launch) as stage:
        await (await stage.plain()).hear()
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said.startswith("codex could not be started for alice: ")
    assert [each for each in "\n\x1b" if each in said] == []


async def test_a_codex_that_does_not_start_is_named() -> None:
    def launch(_: CodexOptions) -> Any:
        raise CLINotFoundError("no codex here")

    async with rehearsal(options=CodexOptions(), launch=launch) as stage:
        refused = json.loads(await (await stage.plain()).hear())
        assert refused["error"]["message"] == "codex could not be started (exec.cli.binary_not_found)"


def test_lines_that_a_gateway_changes_stay_lines_and_broken_ones_stay_as_they_are() -> None:
    fields = CodexFields({"approvalPolicy": "untrusted", "sandbox": "read-only"})
    broken = [
        b'{"method":"thread/start"',
        b'["thread/start"]',
        b'{"method":"other","x":"thread/start"}',
        b'{"method":["turn/start"],"a":"turn/start"}',
    ]
    assert fields.merged(broken) == broken
    (changed,) = fields.merged([b'{"id":1,"method":"thread/start","params":[1]}'])
    assert not changed.endswith(b"\n")
    assert json.loads(changed) == {"id": 1, "method": "thread/start", "params": {"approvalPolicy": "untrusted", "sandbox": "read-only"}}
