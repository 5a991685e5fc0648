"""Two versions of the library on one fleet, as during an upgrade. The other one is a copy of the package, in processes of its own."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, numbered, read, serving

import claude_transport
from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.answers import decode_wanted
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.messages import FLEET_VERSION
from claude_transport.fleet.placement import Node, Wanted, agree_version
from claude_transport.fleet.roster import wake_node
from claude_transport.observing import observe

WORKER = """
import logging, sys, anyio
logging.basicConfig()
from claude_transport.app.worker import serve_until_signal
from claude_transport.fleet import FleetWorker
url, name, *command = sys.argv[1:]
anyio.run(serve_until_signal, FleetWorker(url, command=command, name=name))
"""

CLIENT = """
import sys, anyio
from claude_transport import ClaudeTransportError
from claude_transport.fleet import FleetTransport
url, session = sys.argv[1:]
async def main():
    try:
        async with FleetTransport(url, session=session or None) as transport:
            await transport.write('{"n":0}')
            print(await anext(transport.read_messages()))
    except ClaudeTransportError as exc:
        print(exc.code, exc)
anyio.run(main)
"""


class Copy:
    """A copy of the package with another version, and other versions of the fleet's format."""

    def __init__(self, folder: Path, *, library: str, newest: int, oldest: int) -> None:
        self.folder = folder
        self.library = library
        source = Path(claude_transport.__file__).parent
        shutil.copytree(source, folder / "claude_transport", ignore=shutil.ignore_patterns("__pycache__", "conformance"))
        (folder / f"claude_transport-{library}.dist-info").mkdir()
        (folder / f"claude_transport-{library}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: claude-transport\nVersion: {library}\n"
        )
        path = folder / "claude_transport" / "fleet" / "messages.py"
        text, count = re.subn(
            r"^FLEET_VERSION: Final = \d+$", f"FLEET_VERSION: Final = {newest}", path.read_text("utf-8"), flags=re.MULTILINE
        )
        text, more = re.subn(r"^OLDEST_FLEET_VERSION: Final = \d+$", f"OLDEST_FLEET_VERSION: Final = {oldest}", text, flags=re.MULTILINE)
        assert (count, more) == (1, 1)
        path.write_text(text, "utf-8")

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(self.folder)!r})\n{program}", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @contextmanager
    def worker(self, server: BrokerServer, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that serves until the block ends, or it is told to drain."""
        process = self.start(WORKER, server.url, name, *ECHO)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().decode().strip() == name
            yield process
        finally:
            process.kill()
            process.communicate()

    async def converse(self, server: BrokerServer, *, session: str = "") -> str:
        """What a client of this version gets, or its error."""
        process = self.start(CLIENT, server.url, session)
        said, errors_ = await anyio.to_thread.run_sync(process.communicate)
        assert errors_ == b""
        return said.decode().strip()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Copy]:
    """By name: those that work with this version, and those that do not."""
    root = tmp_path_factory.mktemp("copies")
    versions = {
        "older": ("0.0.1", FLEET_VERSION, FLEET_VERSION),
        "newer": ("99.0", FLEET_VERSION + 1, FLEET_VERSION),
        "too old": ("0.0.1", FLEET_VERSION - 1, FLEET_VERSION - 1),
        "too new": ("99.0", FLEET_VERSION + 1, FLEET_VERSION + 1),
    }
    return {name: Copy(root / name, library=library, newest=newest, oldest=oldest) for name, (library, newest, oldest) in versions.items()}


@asynccontextmanager
async def connected(server: BrokerServer) -> AsyncIterator[Broker]:
    connection = Broker(BrokerAddress(server.url))
    await connection.start(timeout=10)
    yield connection
    await connection.aclose()


@pytest.mark.parametrize("which", [pytest.param("older", marks=pytest.mark.nightly), "newer"])
async def test_a_session_moves_to_a_worker_of_another_version_and_back(broker: BrokerServer, copies: dict[str, Copy], which: str) -> None:
    copy, ours = copies[which], FleetWorker(broker.url, command=ECHO, name="ours")
    async with connected(broker) as connection, FleetRegistry(broker.url) as registry, serving(ours):
        transport = FleetTransport(broker.url)
        await transport.connect()
        messages = transport.read_messages()
        await transport.write('{"n":0}')
        assert await read(messages, 1) == numbered([0])
        with copy.worker(broker, "theirs") as process:
            (theirs,) = [each for each in await registry.nodes() if each.name == "theirs"]
            assert theirs.library == copy.library
            assert FLEET_VERSION in theirs.versions
            await ours.drain()
            await wake_node(connection, "theirs")
            (notice,) = await read(messages, 1)
            assert (notice["subtype"], notice["worker"], notice["uncertain"]) == ("fleet_takeover", "theirs", 0)
            await transport.write('{"n":1}')
            assert await read(messages, 1) == numbered([1])
            async with serving(FleetWorker(broker.url, command=ECHO, name="ours again")):
                process.send_signal(signal.SIGTERM)
                await anyio.to_thread.run_sync(process.wait)
                await wake_node(connection, "ours again")
                (notice,) = await read(messages, 1)
                assert (notice["subtype"], notice["worker"], notice["uncertain"]) == ("fleet_takeover", "ours again", 0)
                await transport.write('{"n":2}')
                assert await read(messages, 1) == numbered([2])
                await transport.close()


@pytest.mark.parametrize("which", [pytest.param("older", marks=pytest.mark.nightly), "newer"])
async def test_a_client_of_another_version_is_served(broker: BrokerServer, copies: dict[str, Copy], which: str) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)):
        assert await copies[which].converse(broker) == "{'n': 0}"


@pytest.mark.parametrize(
    ("which", "theirs"), [pytest.param("too old", FLEET_VERSION - 1, marks=pytest.mark.nightly), ("too new", FLEET_VERSION + 1)]
)
async def test_a_client_whose_version_no_worker_knows_is_refused_with_both(
    broker: BrokerServer, copies: dict[str, Copy], which: str, theirs: int
) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetRegistry(broker.url) as registry:
        said = await copies[which].converse(broker)
        assert said.startswith("fleet.version ")
        assert f"read version {FLEET_VERSION} " in said
        assert f"knows version {theirs}:" in said
        async with FleetTransport(broker.url) as transport:  # nor does it take a session that runs
            said = await copies[which].converse(broker, session=str(transport.session))
            assert said.startswith("fleet.version ")
            assert f"has version {FLEET_VERSION} " in said
            assert [(each.state, each.epoch, each.client) for each in await registry.sessions()] == [("running", 1, True)]
        assert await registry.queue_length() == 0


@pytest.mark.parametrize(
    ("which", "theirs"), [pytest.param("too old", FLEET_VERSION - 1, marks=pytest.mark.nightly), ("too new", FLEET_VERSION + 1)]
)
async def test_a_worker_of_a_version_that_does_not_fit_claims_nothing_and_the_client_learns_both_versions(
    broker: BrokerServer, copies: dict[str, Copy], which: str, theirs: int
) -> None:
    async with connected(broker) as connection, FleetRegistry(broker.url) as registry, anyio.create_task_group() as tasks:
        waiting = FleetTransport(broker.url)  # no worker is there, so it waits for one
        tasks.start_soon(waiting.connect)
        while await registry.queue_length() != 1:
            await a_moment()
        with copies[which].worker(broker, "theirs") as process:
            await wake_node(connection, "theirs")
            with pytest.raises(errors.CLIConnectionError) as caught:
                await FleetTransport(broker.url).connect()
            assert caught.value.code == "fleet.version"
            assert f"read version {theirs} " in str(caught.value)
            assert f"knows version {FLEET_VERSION}:" in str(caught.value)
            async with serving(FleetWorker(broker.url, command=ECHO, name="ours")):
                await wake_node(connection, "ours")
                while [each.worker for each in await registry.sessions()] != ["ours"]:
                    await a_moment()
                assert [each.epoch for each in await registry.sessions()] == [1]  # nobody had it before
                process.send_signal(signal.SIGTERM)
                said = (await anyio.to_thread.run_sync(process.communicate))[1].decode()
                assert f"has version {FLEET_VERSION} " in said
                assert f"reads version {theirs}," in said
                await waiting.close()


async def test_what_a_version_that_is_not_known_asks_for_stays_in_the_queue(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with connected(broker) as connection, FleetRegistry(broker.url) as registry:
        for number in range(3):
            asked: dict[str, Any] = {"version": 2, "labels": {"all": ["of", "another", "shape"]}, "options": 7}
            fields = {"v": 2, "s": "new", "q": msgspec.json.encode(asked), "ce": "1.a", "we": "0."}
            await connection.command("hset", connection.keys.meta(f"strange-{number}"), fields)
            await connection.command("zadd", connection.keys.sessions, {f"strange-{number}": 0})
        async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url):
            assert await registry.queue_length() == 3
        for session in ("strange-0", "strange-1"):
            with pytest.raises(errors.CLIConnectionError) as caught:
                await anext(observe(broker.url, session=session, since=None))
            assert caught.value.code == "fleet.version"
    assert len([each for each in caplog.records if "has version 2" in each.message]) == 1


def test_a_session_begins_with_the_newest_version_that_all_workers_read() -> None:
    def node(*versions: int, **fields: Any) -> Node:
        return Node(id=str(versions), versions=versions, **fields)

    wanted = Wanted(labels=["gpu"])
    assert agree_version([], Wanted(), now=0) == FLEET_VERSION
    assert agree_version([node(1, 2), node(1)], Wanted(), now=0) == 1
    assert agree_version([node(1), node(7)], Wanted(), now=0) == 1
    assert agree_version([node(7)], Wanted(), now=0) is None
    assert agree_version([node(7, seen=-60)], Wanted(), now=0) == FLEET_VERSION  # it is gone
    assert agree_version([node(7, draining=True)], Wanted(), now=0) == FLEET_VERSION
    assert agree_version([node(7), node(1, labels=["gpu"])], wanted, now=0) == 1
    assert decode_wanted(b'{"version": 7, "labels": 7}') == Wanted(version=7)
