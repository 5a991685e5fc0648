"""`claude-transport watch`: a running session of a gateway on the terminal."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from program_process import PATIENCE, Program

from claude_transport import Gateway, NetworkTransport
from claude_transport.inspection import summarize
from claude_transport.streams.memory import MemoryConnectable, MemoryStream
from claude_transport.transports.stream import StreamTransport

ALICE = "alice-has-a-token-0123456789"
SECRET = "sk-ant-api03-" + "a" * 80
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Done.", "session_id": "s"}


class Session:
    def __init__(self, gateway: Gateway, client: NetworkTransport, process: MemoryStream) -> None:
        self.gateway = gateway
        self.url = gateway.urls[0].rstrip("/")
        self.id = gateway.sessions[0].id
        self.client = client
        self.process = process

    async def talk(self) -> None:
        prompt = {"type": "user", "message": {"role": "user", "content": f"Use {SECRET}."}, "uuid": "7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e6f"}
        await self.client.write(json.dumps(prompt))
        await self.process.receive()
        said = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "I \x1b[31m will."}]}
        rows: list[dict[str, Any]] = [{"type": "assistant", "message": said, "session_id": "s", "parent_tool_use_id": None}, RESULT]
        await self.process.send(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


@asynccontextmanager
async def session() -> AsyncIterator[Session]:
    opener = MemoryConnectable()
    settings: dict[str, Any] = {"tokens": {"alice": ALICE}, "launch": lambda _: StreamTransport(opener), "observable": True}
    with anyio.fail_after(PATIENCE):
        async with Gateway(listen=["ws://127.0.0.1:0"], **settings) as gateway:
            client = NetworkTransport(gateway.urls[0], token=ALICE)
            await client.connect()
            yield Session(gateway, client, await opener.accept())
            await client.close()


@asynccontextmanager
async def watching(program: Program, *arguments: str, token: str = ALICE) -> AsyncIterator[Process]:
    async with await anyio.open_process(program.argv("watch", *arguments), env={**program.env, "TOKEN": token}) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def until(process: Process, word: bytes) -> bytes:
    assert process.stdout is not None
    said = b""
    try:
        while word not in said:
            said += await process.stdout.receive()
    except anyio.EndOfStream:
        assert process.stderr is not None
        pytest.fail(f"{word!r} never came: {said!r} {await process.stderr.receive()!r}")
    return said


async def test_it_shows_what_happens_without_secrets_and_ends_with_the_session(tmp_path: Path) -> None:
    async with session() as played:
        await played.talk()
        async with watching(Program(tmp_path), f"http{played.url[2:]}/observe/{played.id}", "--token-env", "TOKEN") as process:
            said = await until(process, b"Result")
            await played.process.aclose()
            assert await process.wait() == 0
    rows = [line.split(None, 1)[1] for line in said.decode().splitlines()]
    assert rows[0].startswith("Prompt            Use [secret].")
    assert rows[1].startswith("Text")
    assert b"\x1b" not in said


async def test_its_json_is_a_tape(tmp_path: Path) -> None:
    async with session() as played:
        await played.talk()
        async with watching(Program(tmp_path), played.url, "--session", played.id, "--token-env", "TOKEN", "--json") as process:
            said = await until(process, b"Done.")
            await played.process.aclose()
            said += await until(process, b"closed by host")
    tape = tmp_path / "tape.ndjson"
    tape.write_bytes(said)
    assert SECRET.encode() not in said
    assert [turn.outcome for turn in summarize(tape).turns] == ["ok"]


async def test_its_tape_says_whether_secrets_were_removed(tmp_path: Path) -> None:
    async with session() as played:
        await played.talk()
        for scrub in (True, False):
            grant = played.gateway.grant_observer(played.id, scrub=scrub)
            arguments = [played.url, "--session", played.id, "--token-env", "TOKEN", "--json"]
            async with watching(Program(tmp_path), *arguments, token=grant.token) as process:
                said = await until(process, b"Done.")
            assert json.loads(said.partition(b"\n")[0])["scrubbed"] is scrub
            assert (SECRET.encode() in said) == (not scrub)


async def test_ctrl_c_ends_it_with_130_and_the_session_goes_on(tmp_path: Path) -> None:
    async with session() as played:
        await played.talk()
        async with watching(Program(tmp_path), played.url, "--session", played.id, "--token-env", "TOKEN") as process:
            await until(process, b"Result")
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
        await played.process.send(b'{"n":1}\n')
        async for batch in played.client.read_lines():
            if b'{"n":1}' in batch:
                break


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["URL", "--session", "ffffffff", "--token-env", "TOKEN"], 1, b"404"),
        (["URL", "--session", "ID"], 3, b"a token is needed"),
        (["URL", "--session", "ID", "--token-env", "TOKEN", "--since", "999"], 1, b"409"),
        (["URL", "--token-env", "TOKEN"], 2, b"session"),
        (["URL", "--session", "ID", "--token-env", "NO_SUCH"], 2, b"NO_SUCH"),
        (["URL/observe/ID", "--session", "other"], 2, b"two different sessions"),
        (["tcp://127.0.0.1:1", "--session", "ID"], 2, b"ws://"),
        (["URL", "--session", "ID", "--since", "x"], 2, b"number of a line"),
    ],
)
async def test_what_cannot_be_watched_is_said_in_one_line(tmp_path: Path, arguments: list[str], code: int, word: bytes) -> None:
    async with session() as played:
        given = [each.replace("URL", played.url).replace("ID", played.id) for each in arguments]
        async with watching(Program(tmp_path), *given) as process:
            assert process.stderr is not None
            said = b""
            try:
                while True:
                    said += await process.stderr.receive()
            except anyio.EndOfStream:
                pass
            found = await process.wait()
        assert word in said
        assert b"Traceback" not in said
        assert found == code
