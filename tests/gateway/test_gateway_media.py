"""A real process behind the gateway, over every medium and in both modes, with a `Query` as the client."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from polling import a_moment
from rehearsal import ALICE, TOKENS

import claude_transport as ct
from claude_transport.gateway.gateway import Gateway
from claude_transport.serving.choices import DEFAULT_CHOICES
from claude_transport.streams.address import parse_address
from claude_transport.streams.sockets import SocketConnectable
from claude_transport.testing.conformance.socket_peer import certificates
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, ScriptedTurn
from claude_transport.testing.steps import Exit, Result, Stderr, Text, ToolUse
from claude_transport.transports.network import NetworkTransport

SCHEMES = ("tcp", "tls", "unix", "ws", "wss")


@pytest.fixture
def fake() -> Iterator[FakeClaude]:
    with FakeClaude(Scenario()) as fake:
        yield fake


def client_of(url: str, **more: Any) -> NetworkTransport:
    context: ssl.SSLContext | None = certificates().client_context() if url.startswith(("tls", "wss")) else None
    return NetworkTransport(url, token=ALICE, ssl_context=context, **more)


def urls(folder: Path) -> list[str]:
    return [f"unix://{folder}/door" if scheme == "unix" else f"{scheme}://127.0.0.1:0" for scheme in SCHEMES]


async def test_five_listeners_at_once_serve_both_languages(fake: FakeClaude, tmp_path: Path) -> None:
    options = ct.ClaudeOptions(cli_path=fake.path)
    async with Gateway(options, listen=urls(tmp_path), tokens=TOKENS, ssl_context=certificates().server_context()) as gateway:
        assert [url.partition(":")[0] for url in gateway.urls] == list(SCHEMES)
        with anyio.fail_after(60):
            for url in gateway.urls:
                for resume in (True, False):
                    async with ct.Query(client_of(url, resume=resume)) as query:
                        turn = await query.send(f"by {url}")
                        assert (await turn.result()).result == f"by {url}"
            while gateway.sessions:
                await a_moment()
        assert gateway.metrics.connections == dict.fromkeys(SCHEMES, 2)
        assert gateway.metrics.sessions == {"link": 5, "plain": 5}
        assert not gateway.metrics.refused


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix", "ws", "wss"])
@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
async def test_a_client_may_compress(fake: FakeClaude, tmp_path: Path, scheme: str, resume: bool) -> None:
    url = next(url for url in urls(tmp_path) if url.startswith(scheme + ":"))
    options = ct.ClaudeOptions(cli_path=fake.path)
    context = certificates().server_context() if scheme in {"tls", "wss"} else None
    async with Gateway(options, listen=[url], tokens=TOKENS, ssl_context=context, compression=True) as gateway:
        compression = "deflate" if scheme in {"ws", "wss"} else "zstd"
        with anyio.fail_after(30):
            async with ct.Query(client_of(gateway.urls[0], resume=resume, compression=compression)) as query:
                assert (await (await query.send("small")).result()).result == "small"


async def test_a_certificate_opens_the_door_where_there_are_no_tokens(fake: FakeClaude) -> None:
    context = certificates().server_context(asks_for_certificate=True)
    async with Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tls://127.0.0.1:0"], ssl_context=context) as gateway:
        with_certificate = certificates().client_context(shows_certificate=True)
        with anyio.fail_after(30):
            async with ct.Query(NetworkTransport(gateway.urls[0], ssl_context=with_certificate)) as query:
                assert (await (await query.send("it is me")).result()).result == "it is me"
                assert [session.owner for session in gateway.sessions] == ["cert:client@example.org"]
            with pytest.raises((ct.CLIConnectionError, ct.ConnectionLost)):
                await NetworkTransport(gateway.urls[0], ssl_context=certificates().client_context()).connect()


@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
async def test_permission_prompts_are_answered_by_the_client(resume: bool) -> None:
    turn = ScriptedTurn((ToolUse("Bash", input={"command": "ls"}, output="a file", ask=True), Text("done"), Result()))
    asked: list[str] = []

    async def can_use_tool(name: str, *_: Any) -> ct.Allow:
        asked.append(name)
        return ct.Allow()

    with FakeClaude(Scenario(replies=[turn])) as fake:
        async with Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"], tokens=TOKENS) as gateway:
            with anyio.fail_after(30):
                async with ct.Query(client_of(gateway.urls[0], resume=resume), can_use_tool=can_use_tool) as query:
                    await (await query.send("list")).result()
        assert asked == ["Bash"]
        assert "--permission-prompt-tool" in " ".join(fake.calls()[0].argv)


async def test_a_client_learns_how_the_far_process_failed() -> None:
    with FakeClaude(Scenario(replies=[ScriptedTurn((Stderr("out of coffee\n"), Exit(7)))])) as fake:
        async with Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"], tokens=TOKENS) as gateway:
            with anyio.fail_after(30):
                async with client_of(gateway.urls[0]) as transport:
                    await transport.write('{"type":"user","message":{"role":"user","content":"work"}}')
                    with pytest.raises(ct.ProcessError) as caught:
                        async for _ in transport.read_messages():
                            pass
    assert (caught.value.exit_code, caught.value.stderr_tail.strip()) == (7, "out of coffee")


async def test_options_are_the_clients_to_choose_as_far_as_the_gateway_lets_it(fake: FakeClaude) -> None:
    ours = ct.ClaudeOptions(cli_path=fake.path, model="haiku", max_turns=5)
    async with Gateway(ours, listen=["tcp://127.0.0.1:0"], tokens=TOKENS) as gateway:
        with anyio.fail_after(30):
            async with client_of(gateway.urls[0], options={"model": "opus", "max_turns": 99}):
                pass
            for forbidden in ({"env": {"PATH": "/tmp"}}, {"cli_path": "/bin/sh"}, {"extra_args": {"x": None}}, {"cwd": "/"}):
                with pytest.raises(ct.ConfigurationError, match="not for a client to choose"):
                    await client_of(gateway.urls[0], options=forbidden).connect()
    argv = fake.calls()[0].argv
    assert argv[argv.index("--model") + 1] == "opus" if "--model" in argv else "--model=opus" in argv
    assert "99" not in " ".join(argv)
    assert len(fake.calls()) == 1


async def test_a_client_cannot_put_another_rule_into_the_text_of_one(fake: FakeClaude) -> None:
    choices = {*DEFAULT_CHOICES, "skills", "allowed_tools", "agents"}
    agents = {"helper": {"description": "d", "prompt": "p", "tools": ["Read, Bash"]}}
    injected: list[dict[str, Any]] = [
        *({"skills": ["x),Bash(*"]}, {"skills": "pdf"}),
        *({"allowed_tools": ["Read Bash"]}, {"disallowed_tools": ["Bash("]}, {"agents": agents}),
    ]
    async with Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"], tokens=TOKENS, choices=choices) as gateway:
        with anyio.fail_after(30):
            for options in injected:
                with pytest.raises(ct.ConfigurationError) as caught:
                    await client_of(gateway.urls[0], options=options).connect()
                assert str(*options) in str(caught.value)
            async with client_of(gateway.urls[0], options={"skills": ["pdf"]}):
                pass
    (call,) = fake.calls()
    assert [argument for argument in call.argv if argument.startswith("--allowed")] == ["--allowedTools=Skill(pdf)"]


async def test_a_plain_server_answers_a_hand_made_client(fake: FakeClaude) -> None:
    async with Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"]) as gateway:
        host, port = gateway.urls[0].removeprefix("tcp://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b'{"type":"user","message":{"role":"user","content":"over netcat"}}\n')
            await stream.send_eof()
            said = b""
            with anyio.fail_after(30):
                while True:
                    try:
                        said += await stream.receive()
                    except anyio.EndOfStream:
                        break
    assert b'"result":"over netcat"' in said
    assert said.endswith(b"\n")


@pytest.mark.parametrize(
    ("path", "token", "status", "said"),
    [
        ("/healthz", None, 200, '{"status":"ok"}'),
        ("/metrics", None, 401, "A token is needed."),
        ("/metrics", "nobody's", 401, "A token is needed."),
        ("/metrics", ALICE, 200, 'claude_transport_gateway_connections_total{medium="ws"} 1'),
        ("/elsewhere", ALICE, 404, "There is nothing here."),
        ("/claude", ALICE, 426, ""),
    ],
)
async def test_a_websocket_listener_answers_plain_http(path: str, token: str | None, status: int, said: str) -> None:
    async with Gateway(listen=["ws://127.0.0.1:0/claude"], tokens=TOKENS, command=["cat"]) as gateway:
        stream = await SocketConnectable(parse_address(gateway.urls[0])).connect()
        authorization = "" if token is None else f"Authorization: Bearer {token}\r\n"
        await stream.send(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}\r\n".encode())
        answer = b""
        with anyio.fail_after(30):
            try:
                while True:
                    answer += await stream.receive()
            except anyio.EndOfStream:
                await stream.aclose()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert said in answer.decode()


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@pytest.mark.parametrize("resume", [True, False])
async def test_a_flood_arrives_whole_and_is_counted(scheme: str, resume: bool, tmp_path: Path) -> None:
    flood = 'import sys\nsys.stdin.readline()\nfor n in range(160_000): sys.stdout.write(\'{"n":%d,"text":"%s"}\\n\' % (n, \'x\' * 99))'
    listen = [url for url in urls(tmp_path) if url.startswith(f"{scheme}:")]
    async with Gateway(command=[sys.executable, "-c", flood], listen=listen, tokens=TOKENS) as gateway:
        with anyio.fail_after(60):
            async with client_of(gateway.urls[0], resume=resume) as client:
                await client.write("{}")
                await client.end_input()
                lines = [line async for batch in client.read_lines() for line in batch]
            while gateway.sessions:
                await a_moment()
        assert lines == [b'{"n":%d,"text":"%s"}' % (number, b"x" * 99) for number in range(160_000)]
        assert gateway.metrics.lines["out"] == 160_000
        assert gateway.metrics.bytes["out"] == sum(len(line) + 1 for line in lines)
