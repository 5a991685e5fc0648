"""Hostile text from a bridge or its host forges no log record and no line of standard error."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import anyio
import pytest
from bridge_peers import PATIENCE
from hostile_words import SHORTER, assert_lines_are_safe, assert_records_are_safe

import claude_transport as ct
from claude_transport.bridge.configuration import Greeting, encode_greeting
from claude_transport.streams.address import parse_address
from claude_transport.streams.sockets import SocketConnectable

TOKEN = "a-token-that-is-long-enough"


async def fail(given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
    raise ValueError(f"no: {given}\n{given['text']}")


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
async def test_what_a_bridge_says_is_logged_on_one_line(words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport")
    call = {"jsonrpc": "2.0", "id": words[:100], "method": "tools/call", "params": {"name": "fail", "arguments": {"text": words}}}
    unknown = {**call, "id": 2, "params": {"name": words}}
    async with ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="fail", call=fail)]}, token=TOKEN, listen="tcp://127.0.0.1:0") as host:
        for greeting, answers in (
            (encode_greeting(Greeting(server=words, token=TOKEN)), 1),
            (encode_greeting(Greeting(server="box", token=words)), 1),
            (words.encode("utf-8", "surrogatepass") + b"\n", 0),
            (
                encode_greeting(Greeting(server="box", token=TOKEN))
                + b"".join(json.dumps(each).encode() + b"\n" for each in (call, unknown)),
                3,
            ),
        ):
            stream = await SocketConnectable(parse_address(host.url)).connect()
            heard = b""
            with anyio.fail_after(PATIENCE):
                try:
                    await stream.send(greeting)
                    while heard.count(b"\n") < answers or not answers:
                        heard += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
            await stream.aclose()
        assert host.failed_calls == 1
    assert_records_are_safe(caplog.records)
    assert any("failed (ValueError)" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
def test_what_a_host_answers_a_bridge_with_is_told_on_one_line(words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(json.dumps({"mcp_bridge": 1, "refused": words}).encode() + b"\n")

        host = threading.Thread(target=serve)
        host.start()
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        argv = [sys.executable, "-m", "claude_transport", "mcp-bridge", "--url", url, "--server", words[:60].replace("\0", "")]
        done = subprocess.run(
            argv, input=b"", capture_output=True, timeout=PATIENCE, check=False, env={**os.environ, "CLAUDE_TRANSPORT_BRIDGE_TOKEN": TOKEN}
        )
        host.join()
    assert done.stdout == b""
    lines = done.stderr.decode("utf-8").rstrip("\n").split("\n")
    assert_lines_are_safe(lines)
    assert len(lines) == 1
    assert lines[0].startswith("claude-transport: ")


async def test_a_failing_tool_is_logged_without_the_secrets_of_this_process(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-route: Bearer Bramble-Curlew-1137")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail", "arguments": {"text": "Bramble-Curlew-1137"}}}
    async with ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="fail", call=fail)]}, token=TOKEN) as host:
        stream = await SocketConnectable(parse_address(host.url)).connect()
        heard = b""
        with anyio.fail_after(PATIENCE):
            await stream.send(encode_greeting(Greeting(server="box", token=TOKEN)) + json.dumps(call).encode() + b"\n")
            while heard.count(b"\n") < 2:
                heard += await stream.receive()
        await stream.aclose()
    assert "failed (ValueError)" in caplog.text
    assert "[secret]" in caplog.text
    assert "Curlew" not in caplog.text
