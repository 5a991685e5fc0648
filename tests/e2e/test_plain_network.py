"""The real CLI behind a plain connection, served by a few lines that copy bytes: it cannot tell the difference, and neither can we."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from anyio.abc import ByteReceiveStream, ByteStream
from live_session import PATIENCE, Doorkeeper, bash

import claude_transport as ct
from claude_transport.streams.compression import accept_compression
from claude_transport.streams.sockets import SocketStream
from claude_transport.streams.tls import TLSStream
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.testing.conformance.socket_peer import certificates

pytestmark = pytest.mark.both_loops

ARGV = ("--print", "--verbose", "--input-format=stream-json", "--output-format=stream-json", "--permission-prompt-tool=stdio")


class Server:
    """Gives one connection a process of its own; `exit_code` is how that ended."""

    def __init__(self, scheme: str, folder: Path) -> None:
        self._scheme = scheme
        self.exit_code: int | None = None
        self._listener = socket.socket(socket.AF_UNIX if scheme == "unix" else socket.AF_INET)
        self._listener.bind(str(folder / "s") if scheme == "unix" else ("127.0.0.1", 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self.url = f"unix://{folder}/s" if scheme == "unix" else f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    @asynccontextmanager
    async def serving(self, command: list[str], *, cwd: Path, env: dict[str, str]) -> AsyncIterator[None]:
        async def serve() -> None:
            await anyio.wait_readable(self._listener)
            stream: ByteStream = SocketStream(self._listener.accept()[0])
            if self._scheme == "tls":
                stream = await TLSStream.wrap(stream, ssl_context=certificates().server_context(), server_side=True)
            async with (
                await accept_compression(stream) as stream,
                await anyio.open_process(command, cwd=cwd, env=env, stderr=None) as process,
            ):
                assert process.stdin is not None
                assert process.stdout is not None
                tasks.start_soon(copy, stream, process.stdin.send, process.stdin.aclose)
                await copy(process.stdout, stream.send, stream.send_eof)
                self.exit_code = await process.wait()

        with self._listener, anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                yield


async def copy(source: ByteReceiveStream, put: Callable[[bytes], Any], end: Callable[[], Any]) -> None:
    async for chunk in source:
        await put(chunk)
    await end()


@pytest.mark.parametrize(("scheme", "compression"), [("tcp", None), ("tls", "zstd"), ("unix", None)])
async def test_the_real_cli_is_asked_asks_back_and_leaves_when_the_input_ends(
    scheme: str, compression: Literal["zstd"] | None, claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    server = Server(scheme, cli_home.tmp)
    doorkeeper = Doorkeeper()
    context = certificates().client_context() if scheme == "tls" else None
    transport = ct.NetworkTransport(server.url, ssl_context=context, resume=False, compression=compression)
    async with (
        FakeMessagesAPI([bash("touch from-afar"), replies.text("done")]) as api,
        server.serving([claude_cli, *ARGV], cwd=cli_home.project, env=cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")),
        ct.Query(transport, can_use_tool=doorkeeper) as query,
    ):
        result = await (await query.send("Make something from afar")).result()
        await query.end_input()
        left = [message async for message in query.messages() if isinstance(message, ct.ResultMessage)]
    assert result.result == "done"
    assert left in ([], [result])
    assert doorkeeper.commands == ["touch from-afar"]
    assert (cli_home.project / "from-afar").exists()
    assert server.exit_code == 0
