"""What a NetworkTransport says, a gateway understands: every scheme, resumable and plain, compressed and not."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import pytest

from claude_transport import AuthenticationError, ClaudeOptions, ConfigurationError, ConnectionLost, NetworkTransport, Query
from claude_transport.gateway.gateway import Gateway
from claude_transport.serving.door import GatewayLimits
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.conformance.socket_peer import certificates

TOKEN = "open-sesame-open-sesame-open-sesame"
SCHEMES = ["tcp", "tls", "unix", "ws", "wss"]


@asynccontextmanager
async def gateway(scheme: str, folder: Path, *, limits: GatewayLimits | None = None) -> AsyncIterator[str]:
    """The URL of a gateway whose claude is a simulated one."""
    url = f"unix://{folder}/door" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
    context = certificates().server_context()
    with FakeClaude(Scenario.simulated(pace=0)) as fake, anyio.fail_after(30):
        async with Gateway(
            command=fake.command, listen=[url], tokens={"me": TOKEN}, ssl_context=context, compression=True, limits=limits
        ) as served:
            yield served.urls[0]


def transport_to(
    url: str, *, token: str | None = TOKEN, resume: bool, compression: Literal["zstd", "deflate"] | None = None
) -> NetworkTransport:
    context = certificates().client_context() if url.startswith(("tls", "wss")) else None
    return NetworkTransport(url, token=token, ssl_context=context, resume=resume, compression=compression)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_gateway_is_spoken_to_over_every_medium(scheme: str, resume: bool, compressed: bool, tmp_path: Path) -> None:
    fitting: Literal["zstd", "deflate"] = "deflate" if scheme in {"ws", "wss"} else "zstd"
    async with gateway(scheme, tmp_path) as url:
        transport = transport_to(url, resume=resume, compression=fitting if compressed else None)
        async with Query(transport) as query:
            assert "Hello" in str((await (await query.send("Hello")).result()).result)
            await query.end_input()
            assert [message async for message in query.messages()]
        assert transport.info.exit_code == (0 if resume else None)


@pytest.mark.parametrize("token", [None, "wrong"])
@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_gateway_that_does_not_know_us_is_an_authentication_error_with_its_address(
    scheme: str, resume: bool, token: str | None, tmp_path: Path
) -> None:
    async with gateway(scheme, tmp_path) as url:
        transport = transport_to(url, token=token, resume=resume)
        with pytest.raises(AuthenticationError) as caught:
            async with transport:
                await transport.write('{"type":"user"}')
                await anext(aiter(transport.read_messages()))
    assert str(caught.value).startswith(f"{transport.info.address}: ")
    assert caught.value.retryable is False


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("ending", ["aclose", "drain"])
async def test_a_gateway_that_ends_is_told_from_a_process_that_failed(ending: str, status: int) -> None:
    program = f"import sys; print('{{}}', flush=True); sys.stdin.read(); sys.exit({status})"
    gateway = Gateway(command=[sys.executable, "-c", program], listen=["tcp://127.0.0.1:0"])
    with anyio.fail_after(30):
        async with gateway as served, NetworkTransport(served.urls[0]) as transport:
            lines = transport.read_lines()
            assert await anext(lines) == [b"{}"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(getattr(served, ending))
                with pytest.raises(ConnectionLost) as caught:
                    await anext(lines)
                error = caught.value
                assert (type(error), error.code, error.retryable) == (ConnectionLost, "connection.closed_by_server", True)
                assert str(error) == "the gateway has closed the session, because it ends"
            assert transport.info.exit_code == status


@pytest.mark.parametrize("resume", [False, True])
async def test_a_gateway_of_short_lines_takes_many_of_them_in_one_message(resume: bool, tmp_path: Path) -> None:
    async with gateway("ws", tmp_path, limits=GatewayLimits(line_bytes=20_000)) as url:
        transport = transport_to(url, resume=resume)
        async with Query(transport) as query:
            line = '{"type":"keep_alive","pad":"%s"}' % ("x" * 990)
            await transport.write("\n".join([line] * 900))  # what a client joins to one message of a WebSocket
            assert "Hello" in str((await (await query.send("Hello")).result()).result)


@pytest.mark.parametrize("resume", [False, True])
async def test_options_as_a_value_are_sent_as_far_as_they_differ_from_the_defaults(resume: bool) -> None:
    with FakeClaude(Scenario.simulated(pace=0)) as fake, anyio.fail_after(30):
        async with Gateway(ClaudeOptions(cli_path=fake.path, effort="low"), listen=["tcp://127.0.0.1:0"]) as served:
            async with Query(NetworkTransport(served.urls[0], options=ClaudeOptions(model="opus"), resume=resume)) as query:
                await (await query.send("Hello")).result()
            with pytest.raises(ConfigurationError, match="not for a client to choose: cwd"):
                async with NetworkTransport(served.urls[0], options=ClaudeOptions(cwd="/"), resume=resume) as transport:
                    await anext(aiter(transport.read_messages()))
        argv = " ".join(fake.calls()[0].argv)
    assert "opus" in argv
    assert "low" in argv  # the default of the client's `effort` is no choice


def test_an_option_that_means_nothing_elsewhere_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"\(cwd\)") as caught:
        NetworkTransport("tcp://127.0.0.1:1", options=ClaudeOptions(cwd=Path("/"), model="opus"))
    assert caught.value.option == "options"
