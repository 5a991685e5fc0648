"""The pages of a worker: what a probe and Prometheus read over HTTP, and when the worker is ready."""

from __future__ import annotations

import re

import anyio
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, read, serving
from redis_server import free_port

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker


async def ask(worker: FleetWorker, path: str, *, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str]:
    """The status and the body of a page."""
    head, body = await answer_of(worker, path, host=host, method=method)
    return int(head.split()[1]), body


async def answer_of(worker: FleetWorker, path: str, *, host: str, method: str) -> tuple[str, str]:
    assert worker.metrics_url is not None
    address, _, port = worker.metrics_url.removeprefix("http://").rpartition(":")
    answer = b""
    async with await anyio.connect_tcp(address, int(port)) as stream:
        await stream.send(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        with anyio.fail_after(30):
            try:
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head, body


def value(text: str, name: str) -> int:
    (found,) = re.findall(rf"^claude_transport_fleet_{name} (\d+)$", text, re.MULTILINE)
    return int(found)


async def test_a_worker_says_over_http_what_it_does_and_how_much_room_it_has(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, capacity=3, metrics_port=0)
    async with serving(worker):
        async with FleetTransport(broker.url) as transport:
            await transport.write('{"n":0}')
            await read(transport.read_messages(), 1)
            status, text = await ask(worker, "/metrics")
            assert status == 200
            assert [value(text, name) for name in ("active_sessions", "capacity", "free_capacity")] == [1, 3, 2]
            assert text == worker.prometheus_text()
        assert await ask(worker, "/healthz") == (200, '{"status":"ok"}\n')
        assert (await ask(worker, "/other"))[0] == 404
        assert (await ask(worker, "/metrics", host="evil.example"))[0] == 421
        for path in ("/healthz", "/metrics"):
            head, body = await answer_of(worker, path, host="127.0.0.1", method="POST")
            assert head.startswith("HTTP/1.1 405 ")
            assert "allow: GET, HEAD, OPTIONS" in head.splitlines()
            assert body == "POST is not answered here: use one of GET, HEAD, OPTIONS\n"
            assert await ask(worker, path, method="HEAD") == (200, "")
    assert worker.metrics_url is None


async def test_the_length_of_the_queue_is_that_of_the_whole_fleet_and_not_of_what_a_worker_may_take(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, metrics_port=0)
    async with anyio.create_task_group() as tasks, FleetRegistry(broker.url) as registry:
        for _ in range(3):
            tasks.start_soon(FleetTransport(broker.url, labels=["gpu"]).connect)
        with anyio.fail_after(30):
            while await registry.queue_length() != 3:
                await a_moment()
        async with serving(worker):
            text = (await ask(worker, "/metrics"))[1]
            assert [value(text, name) for name in ("waiting_sessions", "free_capacity")] == [3, 8]
        tasks.cancel_scope.cancel()


async def test_a_worker_that_drains_is_not_ready_and_has_no_room(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, metrics_port=0)
    async with serving(worker), FleetTransport(broker.url) as transport, anyio.create_task_group() as tasks:
        await transport.write('{"type":"user","n":0}')
        await read(transport.read_messages(), 1)
        tasks.start_soon(worker.drain)
        while (await ask(worker, "/healthz"))[0] == 200:
            await a_moment()
        assert await ask(worker, "/healthz") == (503, '{"status":"draining"}\n')
        assert value((await ask(worker, "/metrics"))[1], "free_capacity") == 0
        tasks.cancel_scope.cancel()


async def test_a_worker_without_its_broker_is_not_ready_until_it_is_back(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, metrics_port=0)
    async with serving(worker):
        broker.kill()
        with anyio.fail_after(30):
            while await ask(worker, "/healthz") != (503, '{"status":"broker_lost"}\n'):
                await a_moment()
        await anyio.to_thread.run_sync(broker.start)
        with anyio.fail_after(30):
            while (await ask(worker, "/healthz"))[0] != 200:
                await a_moment()


async def test_a_taken_port_and_a_missing_broker_are_typed_errors(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO, metrics_port=(port := free_port()))):
        with pytest.raises(errors.ConfigurationError, match=f"cannot listen on http://127.0.0.1:{port}: "):
            await FleetWorker(broker.url, command=ECHO, metrics_port=port).serve()
    with pytest.raises(errors.CLIConnectionError):
        await FleetWorker("redis://127.0.0.1:1/0", command=ECHO, metrics_port=0).serve()
    with pytest.raises(errors.ConfigurationError):
        FleetWorker(broker.url, command=ECHO, metrics_port=70_000)
