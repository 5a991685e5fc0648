"""The real `codex app-server` behind a plain `SubprocessTransport`: it starts, answers, ends, and leaves nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from claude_transport import SubprocessTransport
from claude_transport.codex import CodexOptions

pytestmark = pytest.mark.e2e

HELLO = {"clientInfo": {"name": "test", "title": "Test", "version": "0"}}


class Talk:
    """Writes requests, and waits for what answers them."""

    def __init__(self, transport: SubprocessTransport) -> None:
        self.transport = transport
        self._messages = transport.read_messages()

    async def send(self, **message: Any) -> None:
        await self.transport.write(json.dumps(message) + "\n")

    async def result_of(self, number: int) -> dict[str, Any]:
        """The answer to the request with this id."""
        while True:
            message = await anext(self._messages)
            if message.get("id") == number and "method" not in message:
                return message["result"]

    async def wait_for(self, method: str) -> dict[str, Any]:
        """The parameters of the next notification or request with this method."""
        while True:
            message = await anext(self._messages)
            if message.get("method") == method:
                return message["params"]

    async def begin(self) -> dict[str, Any]:
        await self.send(id=0, method="initialize", params=HELLO)
        answer = await self.result_of(0)
        await self.send(method="initialized")
        return answer

    async def start_turn(self, prompt: str, **thread: Any) -> str:
        """Start a thread with one turn, and return the id of the thread."""
        await self.send(id=1, method="thread/start", params=thread)
        thread_id: str = (await self.result_of(1))["thread"]["id"]
        text = {"type": "text", "text": prompt, "text_elements": []}
        await self.send(id=2, method="turn/start", params={"threadId": thread_id, "input": [text]})
        return thread_id


def processes_with(mark: str) -> list[int]:
    """The processes whose environment has this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


async def test_it_says_who_it_is_and_ends_with_its_input(codex_options: CodexOptions) -> None:
    transport = SubprocessTransport(codex_options)
    await transport.connect()
    answer = await Talk(transport).begin()
    assert answer["codexHome"] == os.fspath(codex_options.codex_home or "")
    info = transport.info
    assert (info.cli_path, info.kind) == (codex_options.codex_path, "SubprocessTransport")
    assert f"/{info.cli_version} " in answer["userAgent"]
    await transport.close()
    assert (transport.info.exit_code, transport.info.killed) == (0, False)
