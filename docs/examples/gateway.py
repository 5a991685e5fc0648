"""A gateway and a client of it in one program, over a Unix socket, with the simulated Claude in place of a real one."""

from __future__ import annotations

import tempfile

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

TOKEN = "a-token-made-by-secrets.token_urlsafe"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, FakeClaude(Scenario()) as fake:
        options = ct.ClaudeOptions(cli_path=fake.path, model="haiku", max_turns=20)
        limits = ct.gateway.GatewayLimits(sessions=2, lease=30.0)
        async with ct.Gateway(options, listen=[f"unix://{folder}/door"], tokens={"alice": TOKEN}, limits=limits) as gateway:
            transport = ct.NetworkTransport(gateway.urls[0], token=TOKEN, options={"max_turns": 3})
            async with ct.Query(transport) as query:
                turn = await query.send("Hello from elsewhere")
                print((await turn.result()).result)
                (session,) = gateway.sessions
                print(session.owner, session.mode, "attached" if session.attached else "away")

            stranger = ct.NetworkTransport(gateway.urls[0], token="somebody-else's-token")
            try:
                await stranger.connect()
            except ct.AuthenticationError as error:
                print(error.code)


if __name__ == "__main__":
    anyio.run(main)
