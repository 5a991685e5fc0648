"""A gateway inside uvicorn, as behind a reverse proxy: the server has the port and the handshake, the gateway the sessions."""

from __future__ import annotations

import socket
import urllib.request

import anyio
import anyio.to_thread
import uvicorn

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

TOKEN = "a-token-made-by-secrets.token_urlsafe"


def server_of(application: ct.gateway.GatewayApplication) -> uvicorn.Server:
    """`uvicorn module:application --ws websockets-sansio --lifespan on`, in Python, and with the logging of this program."""
    return uvicorn.Server(uvicorn.Config(application, ws="websockets-sansio", lifespan="on", log_config=None))


def healthz(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as answer:
        return f"{answer.status} {answer.read().decode().strip()}"


async def talk(url: str) -> None:
    async with ct.Query(ct.NetworkTransport(url, token=TOKEN)) as query:
        turn = await query.send("Hello through uvicorn")
        print((await turn.result()).result)

    try:
        await ct.NetworkTransport(url, token="somebody-else's-token").connect()
    except ct.AuthenticationError as error:
        print(error.code)


async def main() -> None:
    with FakeClaude(Scenario.echo()) as claude, socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        application = ct.gateway.GatewayApplication(ct.Gateway(ct.ClaudeOptions(cli_path=claude.path), tokens={"alice": TOKEN}))
        server = server_of(application)
        async with anyio.create_task_group() as tasks:
            # uvicorn runs on asyncio; in a thread of its own, whatever this program runs on
            tasks.start_soon(anyio.to_thread.run_sync, server.run, [listening])

            try:
                print(await anyio.to_thread.run_sync(healthz, port))
                await talk(f"ws://127.0.0.1:{port}/claude")
            finally:
                server.should_exit = True


if __name__ == "__main__":
    anyio.run(main)
