"""`claude-transport serve` as a program of its own, a client of it, and the signal that ends it; with the simulated Claude."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

import claude_transport as ct

SERVE = [sys.executable, "-m", "claude_transport", "serve", "--offline"]


def token_file(path: Path, **tokens: str) -> Path:
    path.touch(mode=0o600)
    path.write_text("".join(f"{name} {token}\n" for name, token in tokens.items()))
    return path


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        token = secrets.token_urlsafe()
        tokens = token_file(Path(folder, "tokens"), alice=token)
        command = [*SERVE, "--listen", "tcp://127.0.0.1:0", "--token-file", str(tokens)]
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as program:
            assert program.stdout is not None
            announced = await BufferedByteReceiveStream(program.stdout).receive_until(b"\n", 1000)
            url = announced.decode().strip()

            async with ct.Query(ct.NetworkTransport(url, token=token)) as query:
                turn = await query.send("Hello")
                print((await turn.result()).result)

            try:
                await ct.NetworkTransport(url, token="not-" + token).connect()
            except ct.AuthenticationError as error:
                print(error.code)

            program.send_signal(signal.SIGTERM)
            print("exit code", await program.wait())


if __name__ == "__main__":
    anyio.run(main)
