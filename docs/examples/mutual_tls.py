"""A gateway with a certificate, over TLS and WebSocket, for clients that have a token and a certificate of the same authority."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import anyio
import trustme

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

TOKEN = "a-token-made-by-secrets.token_urlsafe"


def make_certificates(folder: Path) -> None:
    """What the commands of the page make: an authority, and a certificate for each end."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    for name, made in {
        "server": authority.issue_cert("localhost", "127.0.0.1"),
        "client": authority.issue_cert("alice@example.org"),
    }.items():
        made.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))


def server_context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "authority.pem")
    context.verify_mode = ssl.CERT_REQUIRED  # without this line: TLS, and anybody with a token
    return context


def client_context(folder: Path, *, certificate: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    if certificate is not None:
        context.load_cert_chain(folder / certificate)
    return context


async def main() -> None:
    with tempfile.TemporaryDirectory() as name, FakeClaude(Scenario.echo()) as claude:
        folder = Path(name)
        make_certificates(folder)
        async with ct.Gateway(
            ct.ClaudeOptions(cli_path=claude.path),
            listen=["tls://127.0.0.1:0", "wss://127.0.0.1:0/claude"],
            ssl_context=server_context(folder),
            tokens={"alice": TOKEN},
        ) as gateway:
            for url in gateway.urls:
                transport = ct.NetworkTransport(url, token=TOKEN, ssl_context=client_context(folder, certificate="client.pem"))
                async with ct.Query(transport) as query:
                    turn = await query.send(f"by {url.partition(':')[0]}")
                    print((await turn.result()).result)

            nameless = client_context(folder, certificate=None)
            try:
                await ct.NetworkTransport(gateway.urls[0], token=TOKEN, ssl_context=nameless).connect()
            except (ct.CLIConnectionError, ct.ConnectionLost):
                print("without a certificate: turned away")

            try:
                await ct.NetworkTransport(gateway.urls[0], token=TOKEN).connect()
            except ct.CLIConnectionError as error:
                print(f"an authority that this system does not know: {error.code}")


if __name__ == "__main__":
    anyio.run(main)
