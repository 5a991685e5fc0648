"""The reason that a link server sends is shown on one printable line: in the log, in the error and in its traceback."""

from __future__ import annotations

import contextlib
import json
import logging
import traceback
from collections.abc import Callable

import anyio
import pytest
from hostile_words import SHORTER, assert_lines_are_safe, assert_records_are_safe

from claude_transport.backoff import Backoff
from claude_transport.errors import ClaudeTransportError
from claude_transport.link.carrier import LinkConnectable
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.transports.stream import StreamTransport

WELCOME = b'W {"version":1,"session":"s","lease":0.05}\n'
SAYS: dict[str, Callable[[str], bytes]] = {
    "a refusal": lambda words: b"R " + json.dumps({"code": "limit", "text": words}).encode(),
    "a code": lambda words: b"R " + json.dumps({"code": words, "text": words}).encode(),
    "a refusal of the token": lambda words: b"R " + json.dumps({"code": "auth", "text": words}).encode(),
    "a goodbye": lambda words: WELCOME + b"B " + json.dumps({"code": words, "reason": words}).encode(),
    "last words": lambda words: WELCOME + b"X " + json.dumps({"after": 0, "exit_code": 1, "stderr_tail": words}).encode(),
    "how it failed": lambda words: WELCOME + b"X " + json.dumps({"after": 0, "error": words}).encode(),
    "no frame": lambda words: WELCOME + words.encode("utf-8", "surrogatepass"),
    "no welcome": lambda words: words.encode("utf-8", "surrogatepass"),
}


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
@pytest.mark.parametrize("says", SAYS.values(), ids=SAYS)
async def test_whatever_a_server_says_of_its_reasons_is_one_line(
    says: Callable[[str], bytes], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport")
    door = MemoryConnectable()
    failure: list[ClaudeTransportError] = []

    async def serve() -> None:
        stream = await door.accept()
        with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            await stream.send(says(words) + b"\n")
            while True:
                await stream.receive()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            try:
                link = LinkConnectable(door, backoff=Backoff(first=0, maximum=0), connect_timeout=0.05)
                async with StreamTransport(link) as transport:
                    async for _ in transport.read_lines():
                        pass
            except ClaudeTransportError as exc:
                failure.append(exc)
            tasks.cancel_scope.cancel()
    (error,) = failure
    assert_lines_are_safe([str(error), repr(error), *"".join(traceback.format_exception_only(error)).rstrip("\n").split("\n")])
    assert_records_are_safe(caplog.records)
