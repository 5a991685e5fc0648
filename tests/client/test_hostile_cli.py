"""What a CLI, an MCP server and a model say is harmless where a log or the model shows it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hostile_words import HOSTILE, assert_lines_are_safe, assert_records_are_safe
from mcp_peers import Cli, OddServer
from peers import ForeignTransport, Frame, permission, soon

from claude_transport import Allow, Query
from claude_transport.client import create_sdk_mcp_server, tool
from claude_transport.exchange.failures import CallbackFailures

KINDS = [kind for kind in HOSTILE if kind != "a megabyte of controls"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_id_of_an_answer_that_no_call_waits_for(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def answers_another(server: OddServer, message: Frame) -> None:
        await server.answer(HOSTILE[kind], of="another")
        await server.answer(message["id"], of="this")

    cli = Cli()
    with caplog.at_level("DEBUG", "claude_transport.client.mcp"):
        async with Query(cli.transport, mcp_servers={"box": OddServer(answers_another)}):
            await cli.shake_hands()
            assert (await cli.reply(cli.call("any")))["result"] == {"of": "this"}
    (record,) = [each for each in caplog.records if "not pending" in each.getMessage()]
    assert_records_are_safe([record])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_without_an_id(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        transport.say({"type": "control_request", "request": {"subtype": HOSTILE[kind]}})
        assert await query.request("still_there") == {}
    (record,) = [each for each in caplog.records if "without an id" in each.getMessage()]
    assert_records_are_safe([record])


@pytest.mark.parametrize("kind", KINDS)
async def test_the_id_of_a_question_whose_callback_resists_the_close(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    let_go = anyio.Event()
    asked = anyio.Event()

    async def resists(*_: Any) -> Any:
        with anyio.CancelScope(shield=True):
            asked.set()
            await let_go.wait()
        return Allow()

    transport = ForeignTransport()
    with caplog.at_level("INFO", "claude_transport.client.query"):
        async with anyio.create_task_group() as tasks, Query(transport, can_use_tool=resists) as query:
            transport.say(permission(HOSTILE[kind]))
            await asked.wait()
            tasks.start_soon(query.aclose)
            await soon(lambda: any("still at work" in each.getMessage() for each in caplog.records))
            let_go.set()
    (record,) = [each for each in caplog.records if "still at work" in each.getMessage()]
    assert_records_are_safe([record])


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_a_callback_that_fails_and_what_it_returned(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    words = HOSTILE[kind]
    failures = CallbackFailures()
    with caplog.at_level("DEBUG", "claude_transport.exchange.failures"):
        failures.note(words, what="it returned nothing")
        failures.note("can_use_tool", what=words)
        failures.note(words, ValueError("broken"))
        failures.note("can_use_tool", ValueError(words))
        failures.note_late(words)
    assert (len(caplog.records), failures.failed, failures.late) == (5, 4, 1)
    assert_records_are_safe(caplog.records)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_arguments_and_the_blocks_of_a_tool(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    @tool("weigh", "Weighs one of them.", {"type": "object", "properties": {"n": {"enum": [1, 2]}}})
    async def weigh(arguments: dict[str, Any]) -> Any:
        return {"content": [{"type": HOSTILE[kind]}, {"type": "text", "text": "light"}]}

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": create_sdk_mcp_server("box", tools=[weigh])}):
        await cli.shake_hands()
        refused = (await cli.reply(cli.call("weigh", n=HOSTILE[kind])))["result"]
        shown = (await cli.reply(cli.call("weigh", id=3, n=1)))["result"]["content"]
    assert refused["isError"]
    assert refused["content"][0]["text"].startswith("Input validation error: ")
    assert_lines_are_safe([refused["content"][0]["text"]])
    assert shown == [{"type": "text", "text": "light"}]
    (record,) = [each for each in caplog.records if "left out" in each.getMessage()]
    assert_records_are_safe([record])
