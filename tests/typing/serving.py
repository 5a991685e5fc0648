"""What type checkers know of a gateway: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from typing import assert_type

import claude_transport as ct


def started(gateway: ct.Gateway) -> None:
    assert_type(gateway.urls, tuple[str, ...])
    assert_type(gateway.draining, bool)


async def served() -> None:
    assert_type(await ct.serve(ct.ClaudeOptions(), listen=["tcp://127.0.0.1:0"], tokens={"a": "b"}, on_started=started), None)
    await ct.serve(limits=ct.gateway.GatewayLimits(lease=5.0), modes=["link"], compression=True, launch=ct.SubprocessTransport)
    await ct.serve(listn=["tcp://127.0.0.1:0"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await ct.serve(drain_timeout="long")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ct.serve(modes=["telnet"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    ct.Gateway(listn=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def settings_handed_on() -> ct.Gateway:
    known: ct.gateway.GatewaySettings = {"listen": ["unix:///run/claude"], "origins": ["https://example.org"]}
    known["lease"] = 1.0  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]
    return ct.Gateway(ct.ClaudeOptions(), **known)
