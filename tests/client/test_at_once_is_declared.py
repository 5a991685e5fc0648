"""What a transport does without waiting, it declares in its terms. Methods of the same names mean nothing."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from peers import PATIENCE, ForeignTransport

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.transport import AtOnce, Client, SessionTerms, attach_to


class WithItsOwn(ForeignTransport):
    """Somebody else's, with methods that are named like those of ours, and are async."""

    async def connect_now(self) -> bool:
        raise AssertionError("nobody asked for this")

    async def write_now(self, line: bytes) -> bool:
        raise AssertionError("nobody asked for this")

    async def end_input_now(self) -> bool:
        raise AssertionError("nobody asked for this")

    async def close_now(self) -> bool:
        raise AssertionError("nobody asked for this")


async def test_a_foreign_transport_with_a_close_now_of_its_own_is_closed() -> None:
    transport = WithItsOwn()
    with anyio.fail_after(PATIENCE):
        async with ct.Query(transport) as query:
            await query.set_model("haiku")
    assert transport.calls == ["connect", "end_input", "reader closed", "close"]
    assert [frame["type"] for frame in transport.written] == ["control_request"] * 2


class Declaring(ct.Transport):
    """Declares what it does at once, and notes what is called."""

    def __init__(self, inside: ForeignTransport) -> None:
        self.inside = inside
        self.calls: list[str] = []

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(at_once=AtOnce(self.start, self.send, self.finish, self.stop))

    def start(self) -> bool:
        self.calls.append("start")
        return False

    def send(self, line: bytes) -> bool:
        self.calls.append("send")
        return False

    def finish(self) -> bool:
        self.calls.append("finish")
        return False

    def stop(self) -> bool:
        self.calls.append("stop")
        return False

    async def connect(self) -> None:
        await self.inside.connect()

    async def write(self, data: str | bytes) -> None:
        await self.inside.write(data if isinstance(data, str) else data.decode())

    def read_messages(self) -> Any:
        return self.inside.read_messages()

    async def end_input(self) -> None:
        await self.inside.end_input()

    async def close(self) -> None:
        await self.inside.close()

    def is_ready(self) -> bool:
        return self.inside.is_ready()


async def test_what_is_declared_is_asked_first_and_the_methods_after_it() -> None:
    transport = Declaring(ForeignTransport())
    with anyio.fail_after(PATIENCE):
        async with ct.Query(transport) as query:
            await query.set_model("haiku")
    assert list(dict.fromkeys(transport.calls)) == ["start", "send", "finish", "stop"]
    assert transport.inside.calls == ["connect", "end_input", "reader closed", "close"]


def wrapped(name: str, transport: Any, tmp_path: Any) -> ct.Transport:
    wrappers = {
        "retrying": ct.RetryingTransport,
        "metrics": ct.MetricsTransport,
        "recording": lambda inside: ct.RecordingTransport(inside, tmp_path / "tape.ndjson"),
    }
    made: ct.Transport = wrappers[name](transport)
    return made


@pytest.mark.parametrize("name", ["retrying", "metrics", "recording"])
async def test_a_wrapper_withholds_what_would_pass_it_by(name: str, tmp_path: Any) -> None:
    with FakeClaude(Scenario.echo()) as fake:
        inside = ct.SubprocessTransport(command=fake.command)
        assert attach_to(inside, Client()).at_once is not None
        assert attach_to(wrapped(name, inside, tmp_path), Client()).at_once is None
