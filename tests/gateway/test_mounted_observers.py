"""Observers of a gateway inside an ASGI server."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from rehearsal import ALICE, Talker, rehearsal

from claude_transport.gateway.asgi import GatewayApplication


class Exchange:
    """One HTTP request at the application, and what came of it."""

    def __init__(self, path: str, **headers: str) -> None:
        told = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": f"/mount{path}",
            "root_path": "/mount",
            "headers": [(name.encode(), value.encode()) for name, value in told.items()],
        }
        self.left = anyio.Event()
        self.changed = anyio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.over = False

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {name.decode(): value.decode() for name, value in event["headers"]}
        else:
            self.body += event["body"]
            self.over = not event.get("more_body", False)
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, word: bytes) -> None:
        with anyio.fail_after(30):
            while word not in self.body:
                await self.changed.wait()


async def hear_both(client: Talker, process: Talker) -> None:
    await client.say(b'{"n":0}')
    await process.hear()


async def test_a_mounted_gateway_streams_events_until_the_observer_leaves() -> None:
    async with rehearsal(observable=True) as stage, anyio.create_task_group() as tasks:
        client = await stage.plain()
        process = await stage.processes.next()
        await hear_both(client, process)
        application = GatewayApplication(stage.gateway)
        session = stage.gateway.sessions[0].id
        seen = Exchange(f"/observe/{session}/events", authorization=f"Bearer {ALICE}")
        tasks.start_soon(application, seen.scope, seen.receive, seen.send)
        await process.say(b'{"n":1}')
        assert await client.hear() == b'{"n":1}'
        await seen.until(b"id: 2\n")
        assert (seen.status, seen.headers["content-type"], seen.over) == (200, "text/event-stream; charset=utf-8", False)
        seen.left.set()
        with anyio.fail_after(30):
            while not seen.over:
                await seen.changed.wait()


async def test_a_server_that_cannot_send_to_an_observer_that_has_left_is_done_with_it() -> None:
    """A server may notice it while it sends, before `receive()` says anything."""
    async with rehearsal(observable=True) as stage:
        await hear_both(await stage.plain(), await stage.processes.next())
        seen = Exchange(f"/observe/{stage.gateway.sessions[0].id}/events", authorization=f"Bearer {ALICE}", last_event_id="0")

        async def send(event: Any) -> None:
            if event["type"] == "http.response.body":
                raise BrokenPipeError
            await seen.send(event)

        with anyio.fail_after(30):
            await GatewayApplication(stage.gateway)(seen.scope, seen.receive, send)
        assert (seen.status, seen.body) == (200, b"")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/observe/ID", {}, 200),
        ("/observe/ID/events", {}, 401),
        ("/observe/ID/timeline", {"authorization": "Bearer x"}, 401),
        ("/observe/ffffffff/events", {"authorization": f"Bearer {ALICE}"}, 404),
        ("/observe/ID/events", {"authorization": f"Bearer {ALICE}", "host": "evil.example"}, 421),
        ("/observe/ID/events", {"authorization": f"Bearer {ALICE}", "origin": "https://evil.example"}, 403),
    ],
)
async def test_a_mounted_gateway_refuses_as_its_own_listeners_do(path: str, headers: dict[str, str], status: int) -> None:
    async with rehearsal(observable=True) as stage:
        client = await stage.plain()
        await hear_both(client, await stage.processes.next())
        asked = Exchange(path.replace("ID", stage.gateway.sessions[0].id), **headers)
        await GatewayApplication(stage.gateway)(asked.scope, asked.receive, asked.send)
        assert asked.status == status
        assert asked.over
