"""A turn counts as stored when its transcript is in the session store, whatever wraps the transport of the worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from broker_server import BrokerServer
from programs import serving

import claude_transport as ct
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.sessions import InMemorySessionStore
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps
from claude_transport.transport import Transport

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
PATIENCE = 30.0


class Waiting(InMemorySessionStore):
    """A store that takes nothing before `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = anyio.Event(), anyio.Event()

    async def append(self, key: Any, entries: Any) -> None:
        self.asked.set()
        await self.go.wait()
        await super().append(key, entries)


WRAPPERS: dict[str, Callable[[Transport, Path], Transport]] = {
    "nothing": lambda inside, _: inside,
    "logging": lambda inside, _: ct.LoggingTransport(inside),
    "recording": lambda inside, folder: ct.RecordingTransport(inside, folder / "tape.ndjson"),
    "two": lambda inside, folder: ct.LoggingTransport(ct.RecordingTransport(inside, folder / "tape.ndjson")),
}


@pytest.mark.parametrize("around", WRAPPERS)
async def test_a_turn_is_stored_when_the_store_has_it_and_not_before(broker: BrokerServer, tmp_path: Path, around: str) -> None:
    store = Waiting()
    mirrored = {"type": "transcript_mirror", "filePath": f"/config/projects/-work/{SID}.jsonl", "entries": [{"type": "user", "uuid": "1"}]}
    said = ScriptedTurn([steps.EmitRaw(json.dumps(mirrored, separators=(",", ":")) + "\n"), steps.Text("Hi."), steps.Result()])
    with FakeClaude(Scenario(replies=[said])) as fake:
        options = ct.ClaudeOptions(session_store=store, cli_path=fake.path)
        worker = FleetWorker(broker.url, options=options, launch=lambda chosen: WRAPPERS[around](ct.SubprocessTransport(chosen), tmp_path))
        with anyio.fail_after(PATIENCE):
            async with serving(worker), FleetRegistry(broker.url) as registry, ct.Query(FleetTransport(broker.url)) as query:
                turn = await query.send("Hello")
                assert (await turn.result()).result == "Hi."
                await store.asked.wait()
                (session,) = await registry.sessions()
                while session.unread or session.turns:
                    (session,) = await registry.sessions()
                for _ in range(20):  # the worker tells of a turn in the call with which it learns that all is read
                    (session,) = await registry.sessions()
                    assert session.stored == 0
                store.go.set()
                while session.stored != 1:
                    (session,) = await registry.sessions()
