"""The real CLI behind a gateway, over a network that cuts every connection after a little while: the conversation does not notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute

import claude_transport as ct
from claude_transport.gateway.gateway import Gateway
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops

TOKEN = "only-for-this-test-of-cuts"
PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do


class CuttingRelay:
    """Carries connections to `port`, and cuts each one inside a line, after so many whole ones (seeded)."""

    def __init__(self, port: int, *, seed: int) -> None:
        self._target = port
        self._random = random.Random(seed)
        self.cuts = 0

    async def carry(self, near: ByteStream) -> None:
        left = self._random.randrange(4, 13)
        far = await anyio.connect_tcp("127.0.0.1", self._target)
        async with near, far, anyio.create_task_group() as tasks:

            async def pump(source: ByteStream, sink: ByteStream) -> None:
                nonlocal left
                try:
                    while left > 0:
                        *lines, rest = (await source.receive()).split(b"\n")
                        whole = b"".join(line + b"\n" for line in lines[:left])
                        # a cut is inside the line behind the last one, or in front of the one that has not come yet
                        rest = rest if left > len(lines) else b"\n".join([*lines[left:], rest])[:9]
                        left -= len(lines)
                        await sink.send(whole + rest)
                    self.cuts += 1
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass  # one side has gone by itself
                tasks.cancel_scope.cancel()

            tasks.start_soon(pump, far, near)
            await pump(near, far)


async def test_a_turn_with_a_permission_question_survives_its_connection_being_cut_every_few_lines(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    tool = replies.tool_use("Bash", input={"command": "touch asked.txt", "description": "leave a trace"})
    asked: list[str] = []

    async def decide(name: str, _input: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        asked.append(name)
        return ct.Allow()

    async with FakeMessagesAPI([tool, replies.text(words, chunks=200)]) as api:
        options = ct.ClaudeOptions(
            cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", include_partial_messages=True
        )
        gateway = Gateway(options, listen=["tcp://127.0.0.1:0"], tokens={"tester": TOKEN})
        listening = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with gateway, listening as listener, anyio.create_task_group() as tasks:
            relay = CuttingRelay(int(gateway.urls[0].rpartition(":")[2]), seed=6)
            tasks.start_soon(listener.serve, relay.carry)
            url = f"tcp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            with anyio.fail_after(2 * PATIENCE):
                transport = ct.NetworkTransport(url, token=TOKEN, heartbeat=5.0)
                async with ct.Query(transport, can_use_tool=decide) as query:
                    turn = await query.send("Leave a trace, then say a lot.")
                    messages = [message async for message in turn]
                    result = await turn.result()
                assert transport.info.exit_code == 0
            assert (result.outcome.ok, result.result) == (True, words)
            assert "".join(text_of(message) for message in messages) == words
            assert asked == ["Bash"]
            assert (cli_home.project / "asked.txt").exists()
            assert relay.cuts > 20
            tasks.cancel_scope.cancel()


def text_of(message: ct.Message) -> str:
    """The text of a delta, "" of anything else."""
    return message.event.get("delta", {}).get("text", "") if isinstance(message, ct.StreamEvent) else ""
