"""The real CLI behind a gateway, and a client process that is killed: nothing of it outlives the lease, and nobody else gets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from live_session import bash
from polling import a_moment
from relay import Relay, relay_to

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI
from claude_transport.testing.replies import MessageReply

pytestmark = [
    pytest.mark.both_loops,
    pytest.mark.skipif(sys.platform != "linux", reason="what is left of a session is found in Linux's /proc"),
]

PATIENCE = 90.0  # seconds for one session, on a machine with much else to do
ALICE, BOB = "the-token-of-the-killed-client", "a-token-of-somebody-else-here"
CLIENT = str(Path(__file__).with_name("far_client.py"))
STRANGER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as connection:
    connection.sendall(sys.stdin.buffer.read())
    sys.stdout.buffer.write(connection.makefile("rb").readline())
"""
NEVER_ENDS = "tail -f /dev/null"

AtWork: TypeAlias = Callable[..., Any]
Client: TypeAlias = subprocess.Popen[bytes]
Launch: TypeAlias = Callable[[ct.ClaudeOptions], ct.Transport]


@pytest.fixture
def at_work(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> AtWork:
    """`at_work(…)`: a gateway to the real binary, the relay before it, and a client process whose tools run; killed by the test."""

    @asynccontextmanager
    async def working(
        *, lease: float, launch: Launch = ct.SubprocessTransport
    ) -> AsyncIterator[tuple[ct.Gateway, Relay, subprocess.Popen[bytes]]]:
        def work(_request: object) -> MessageReply:
            report = f"""'{sys.executable}' -c 'import urllib.request as r; r.urlopen("{api.url}/api/hello").read()'"""
            return bash(f"setsid {NEVER_ENDS} & {NEVER_ENDS} & {report} ; wait")

        async with FakeMessagesAPI(work) as api:
            options = ct.ClaudeOptions(
                cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", allowed_tools=["Bash"]
            )
            tokens, limits = {"alice": ALICE, "bob": BOB}, ct.gateway.GatewayLimits(lease=lease)
            with anyio.fail_after(PATIENCE):
                async with (
                    ct.Gateway(options, listen=["tcp://127.0.0.1:0"], tokens=tokens, limits=limits, launch=launch) as gateway,
                    relay_to(gateway.urls[0]) as relay,
                ):
                    with client_process(relay.url) as client:
                        await api.wait_for_requests(1, kind="probe", timeout=PATIENCE)
                        yield gateway, relay, client

    return working


@contextmanager
def client_process(url: str) -> Iterator[Client]:
    with subprocess.Popen([sys.executable, CLIENT, url], env={"PATH": "/usr/bin:/bin", "GATEWAY_TOKEN": ALICE}) as client:
        try:
            yield client
        finally:
            client.kill()


def commands_of(home: Path) -> list[str]:
    """What is alive of everything that was started with this HOME, in whatever group it is."""
    mark = f"HOME={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:
            continue  # it ended while we looked, or belongs to somebody else
    return found


async def until(condition: Callable[[], object]) -> None:
    """Return when it holds; for what settles in a moment."""
    while not condition():
        await a_moment()


@contextmanager
def end_of(pid: int | None) -> Iterator[int]:
    """A descriptor that is readable when this process has ended."""
    assert pid is not None
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def test_of_a_client_that_is_killed_no_claude_and_no_tool_is_left_after_the_lease(at_work: AtWork, cli_home: Any) -> None:
    async with at_work(lease=0.5) as (gateway, _, client):
        # one in the tool's group, one in a session of its own, and the CLI
        await until(lambda: commands_of(cli_home.home).count(NEVER_ENDS) == 2)
        assert len(commands_of(cli_home.home)) > 2
        with end_of(gateway.sessions[0].pid) as end:
            client.kill()
            await anyio.wait_readable(end)
        await until(lambda: not gateway.sessions)
        assert gateway.metrics.ended == {"lease": 1}
        await until(lambda: not commands_of(cli_home.home))


async def test_the_session_of_a_client_that_was_killed_is_no_other_tokens_to_take(at_work: AtWork, cli_home: Any) -> None:
    hurried = partial(ct.SubprocessTransport, close_timeout=1.0)  # how it ends is not what this is about
    async with at_work(lease=PATIENCE, launch=hurried) as (gateway, relay, client):
        client.kill()
        await until(lambda: not gateway.sessions[0].attached)
        hello = first_frame(relay.passages[0].carried["up"])
        key = first_frame(relay.passages[0].carried["down"])["session"]
        assert await refusal(gateway, {**hello, "session": key, "token": BOB}) == "session"
        assert await refusal(gateway, {**hello, "session": "no-such-key", "token": ALICE}) == "session"
        assert await refusal(gateway, {**hello, "session": key, "token": ALICE}) != "session"  # it is the key
        assert [session.owner for session in gateway.sessions] == ["alice"]
        assert commands_of(cli_home.home)
    assert not commands_of(cli_home.home)


def first_frame(carried: bytearray) -> dict[str, Any]:
    """The hello or the welcome at the beginning of a connection."""
    frame: dict[str, Any] = json.loads(bytes(carried).partition(b"\n")[0][2:])
    return frame


async def refusal(gateway: ct.Gateway, hello: dict[str, Any]) -> str | None:
    """The code by which another process is refused that says this hello; None when it is welcome."""
    port = gateway.urls[0].rpartition(":")[2]
    said = b"H " + json.dumps(hello).encode() + b"\n"
    answer = (await anyio.run_process([sys.executable, "-I", "-S", "-c", STRANGER, port], input=said)).stdout
    return str(json.loads(answer[2:])["code"]) if answer.startswith(b"R ") else None
