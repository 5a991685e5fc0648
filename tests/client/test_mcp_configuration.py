"""MCP servers that are given to a Query as configurations: the CLI is told of them before the first prompt, whatever the transport."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from peers import in_time

from claude_transport import MockTransport, Query
from claude_transport.errors import ConfigurationError, ConnectTimeout, ControlRequestFailed

STDIO = {"command": "server", "args": ["--fast"], "env": {"A": "b"}}
HTTP = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer x"}}
KEY = "sk-ant-api03-" + "Ab1-" * 12


def answering(*, errors: dict[str, str] | None = None) -> MockTransport:
    claude = MockTransport.script().expect_control("initialize").reply({})
    return claude.expect_control("mcp_set_servers").reply({"added": ["a"], "removed": [], "errors": errors or {}})


async def test_configurations_are_set_after_initialize_and_before_the_first_prompt() -> None:
    claude = answering().expect(type="user").reply({"type": "result", "is_error": False, "result": "done"})
    async with Query(claude, mcp_servers={"a": STDIO, "b": HTTP}) as query:
        assert (await in_time((await query.send("Hello")).result())).result == "done"
    initialize, servers, _ = claude.written
    assert "sdkMcpServers" not in initialize["request"]
    assert servers["request"]["servers"] == {"a": STDIO, "b": HTTP}


async def test_a_program_without_arguments_has_none_and_says_so() -> None:
    claude = answering().expect_control("mcp_set_servers").reply({})
    async with Query(claude, mcp_servers={"a": {"command": "server"}}) as query:
        await query.mcp_set_servers({"b": {"type": "stdio", "command": "server"}, "c": HTTP})
    told = [frame["request"]["servers"] for frame in claude.written[1:]]
    assert told[0] == {"a": {"command": "server", "args": []}}
    assert told[1] == {"b": {"type": "stdio", "command": "server", "args": []}, "c": HTTP}


async def test_servers_of_this_program_are_named_beside_them_or_the_cli_would_drop_them() -> None:
    claude, box = answering(), MCPServer("box")
    async with Query(claude, mcp_servers={"box": box, "a": STDIO, "wrapped": {"type": "sdk", "name": "x", "instance": box}}):
        pass
    initialize, servers = claude.written
    assert initialize["request"]["sdkMcpServers"] == ["box", "wrapped"]
    here = {name: {"type": "sdk", "name": name} for name in ("box", "wrapped")}
    assert servers["request"]["servers"] == {"a": STDIO, **here}


async def test_servers_of_this_program_alone_need_no_second_request() -> None:
    claude = MockTransport()
    async with Query(claude, mcp_servers={"box": MCPServer("box")}):
        pass
    assert [frame["request"]["subtype"] for frame in claude.written] == ["initialize"]


async def test_a_server_that_cannot_be_connected_fails_the_start_by_its_name_and_without_its_secrets() -> None:
    query = Query(answering(errors={"b": f"ECONNREFUSED http://x/?key={KEY}"}), mcp_servers={"a": STDIO, "b": HTTP})
    with pytest.raises(ControlRequestFailed, match=r"could not be connected: 'b': ECONNREFUSED") as caught:
        await in_time(query.start())
    assert (caught.value.subtype, caught.value.error_code) == ("mcp_set_servers", "mcp_server_failed")
    assert KEY not in str(caught.value)
    assert query.has_ended


async def test_a_peer_that_knows_no_such_request_is_told_of_with_the_servers() -> None:
    claude = MockTransport.script().expect_control("initialize").reply({})
    claude.expect_control("mcp_set_servers").reply_error("Unsupported", error_code="unsupported_request")
    with pytest.raises(ControlRequestFailed, match=r"could not be set \(a, b\): Unsupported") as caught:
        await in_time(Query(claude, mcp_servers={"a": STDIO, "b": HTTP}).start())
    assert (caught.value.subtype, caught.value.error_code) == ("mcp_set_servers", "unsupported_request")
    cause = caught.value.__cause__
    assert isinstance(cause, ControlRequestFailed)
    assert (caught.value.request_id, bool(cause.request_id)) == (cause.request_id, True)


async def test_a_peer_that_does_not_answer_is_a_connect_timeout_that_says_to_what() -> None:
    claude = MockTransport.script().expect_control("initialize").reply({}).expect_control("mcp_set_servers").emit({"type": "keep_alive"})
    with pytest.raises(ConnectTimeout, match=r"no answer to mcp_set_servers in 1 s"):
        with anyio.fail_after(30):
            await Query(claude, mcp_servers={"a": STDIO}, initialize_timeout=1.0).start()  # time for the first answer on a busy machine


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "needs a command"),
        ({"type": "stdio", "command": ""}, "needs a command"),
        ({"command": "server", "args": "--fast"}, "args are a list of texts"),
        ({"command": "server", "args": [1]}, "args are a list of texts"),
        ({"command": "server", "env": {"A": 1}}, "env are texts by name"),
        ({"type": "http"}, "needs a url"),
        ({"type": "sse", "url": 5}, "needs a url"),
        ({"type": "http", "url": "http://x", "headers": ["A"]}, "headers are texts by name"),
        ({"type": "sdk", "name": "a"}, "give the server object itself"),
        ({"type": 5}, "its type is a text"),
        ({"type": "sdk", "instance": 5}, "neither an mcp.server.Server nor an MCPServer"),
    ],
)
def test_a_configuration_that_could_only_fail_is_refused_by_name(config: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        Query(MockTransport(), mcp_servers={"odd": config})
    assert caught.value.option == "mcp_servers"
    assert "'odd'" in str(caught.value)


async def test_a_kind_that_is_not_known_here_is_for_the_cli_to_judge() -> None:
    claude = answering()
    async with Query(claude, mcp_servers={"a": {"type": "pigeon", "loft": 3}}):
        pass
    assert claude.written[1]["request"]["servers"] == {"a": {"type": "pigeon", "loft": 3}}


def test_two_names_that_are_written_alike_are_refused_whatever_they_name() -> None:
    with pytest.raises(ConfigurationError, match="rename one of them"):
        Query(MockTransport(), mcp_servers={"my box": MCPServer("box"), "my_box": STDIO})
