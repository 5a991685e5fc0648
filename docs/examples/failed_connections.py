"""Shows the error of each failed connection: its type and its code, with the address and without a secret."""

from __future__ import annotations

import socket

import anyio

import claude_transport as ct


async def attempt(url: str, *, token: str | None = None) -> None:
    try:
        async with ct.open_transport(url, token=token, resume=False):
            print("connected")
    except ct.ConfigurationError as error:
        print(f"{error.code}: {error}")
    except ct.CLIConnectionError as error:
        print(f"{error.code}, worth another try: {error.retryable}")


async def main() -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        await attempt(f"tcp://127.0.0.1:{taken.getsockname()[1]}", token="hunter2")
    await attempt("unix:///run/nobody-made-this.sock")
    await attempt("https://claude.example")
    await attempt("wss://claude.example/?token=hunter2")


if __name__ == "__main__":
    anyio.run(main)
