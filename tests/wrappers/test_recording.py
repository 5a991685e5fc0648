"""Recording: everything that was said is on the tape, nothing secret is, and the disk never gets in the way."""

from __future__ import annotations

import gc
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from polling import a_moment

from claude_transport.backoff import Backoff
from claude_transport.client.query import Query
from claude_transport.errors import (
    ConfigurationError,
    ConnectTimeout,
    InputClosed,
    NotConnected,
    ProcessError,
    TransportClosed,
    UsageError,
)
from claude_transport.launch.options import ClaudeOptions
from claude_transport.loops.current import HostLoop
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import Tape, TapeHeader, read_start
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import memory, wrapped
from claude_transport.testing.conformance.media import subprocess as children
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.replay import ReplayTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.faults import FailWrite
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.recording import RecordingTransport, TapeFile
from claude_transport.wrappers.retrying import RetryingTransport

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
SECRET = "hunter2-sentinel-Zx7Qw9"


def kinds(tape: Tape) -> list[tuple[str, str]]:
    """Direction and type of every record; notes as they are."""
    out = []
    for record in tape:
        text = record.line.decode()
        out.append((record.dir, text if record.dir in ("note", "err") else json.loads(text).get("type", "?")))
    return out


async def converse(transport: Any, *prompts: str) -> list[bytes]:
    """A whole conversation: its messages as they were on the wire."""
    heard: list[bytes] = []
    with anyio.fail_after(30):
        async with Query(transport) as query, anyio.create_task_group() as tasks:
            messages = query.messages()

            async def listen() -> None:
                heard.extend([message.raw async for message in messages])

            tasks.start_soon(listen)
            for number, prompt in enumerate(prompts):
                await (await query.send(prompt, uuid=f"00000000-0000-4000-8000-{number:012d}")).result()
            await query.end_input()
    return heard


def test_it_keeps_every_clause_of_the_contract(tmp_path: Path) -> None:
    def record(transport: Any) -> RecordingTransport:
        return RecordingTransport(transport, tmp_path / "tape.ndjson")

    run_conformance(wrapped(memory(), record)).raise_for_failures()
    few = ["close.leaves-nothing", "close.wakes-reader", "read.failure-after-last-message", "connect.failure-is-clean"]
    run_conformance(wrapped(children(), record), clauses=few).raise_for_failures()


async def test_both_directions_and_how_it_ended_are_on_the_tape_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tape.ndjson"
    with FakeClaude(Scenario.text("Hello")) as fake:
        await converse(RecordingTransport(SubprocessTransport(command=fake.command), path), "Hi")
    tape = Tape.read(path)
    ways = kinds(tape)
    assert ways[:3] == [("in", "control_request"), ("out", "control_response"), ("in", "user")]
    assert [text for way, text in ways if way == "note"] == ["stdin closed by driver", "out EOF", "exit code 0", "closed by host"]
    assert ways[-3][0] == "note"
    assert ways.index(("out", "result")) < ways.index(("note", "stdin closed by driver"))
    times = [record.t for record in tape]
    assert times == sorted(times)
    assert times[0] >= 0
    assert (tape.is_torn, tape.header.scrubbed) == (False, True)
    assert tape.header.created_at is not None
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("wrong", [5, None, ["{}"]])
async def test_what_cannot_be_written_is_refused_as_the_transport_refuses_it(tmp_path: Path, wrong: Any) -> None:
    path = tmp_path / "tape.ndjson"
    async with RecordingTransport(SubprocessTransport(command=["cat"]), path) as transport:
        with pytest.raises(UsageError):
            await transport.write(wrong)
        view: Any = memoryview(b'{"type":"user"}\n')
        await transport.write(view)
        await transport.end_input()
        assert [message async for message in transport.read_messages()] == [{"type": "user"}]
    assert [text for way, text in kinds(Tape.read(path)) if way == "in"] == ["user"]


@pytest.mark.parametrize("scrub", [True, False])
async def test_what_is_replayed_is_what_was_heard(tmp_path: Path, scrub: bool) -> None:
    answer = "Hello é \u2028"
    scenario = Scenario.turns([[steps.Noise("[debug] noise"), steps.Text(answer), steps.Result()], "Again"])
    path = tmp_path / "tape.ndjson"
    with FakeClaude(scenario) as fake:
        first = await converse(RecordingTransport(SubprocessTransport(command=fake.command), path, scrub=scrub), "Hi", "Again?")
    assert len(first) > 4
    for speed in (0, 1e9):
        claude = ReplayTransport(path, speed=speed)
        again = await converse(claude, "Hi", "Again?")
        assert again == ([Redactor().line(line) for line in first] if scrub else first)
        claude.assert_played()


async def test_a_recorded_failure_is_replayed_with_its_exit_code_and_last_words(tmp_path: Path) -> None:
    scenario = Scenario.turns([[steps.Text("Half"), steps.Stderr("it broke\n"), steps.Exit(3)]])
    path = tmp_path / "tape.ndjson"
    with FakeClaude(scenario) as fake:
        for make in (lambda: RecordingTransport(SubprocessTransport(command=fake.command), path), lambda: ReplayTransport(path)):
            with anyio.fail_after(30), pytest.raises(ProcessError) as failed:
                async with Query(make()) as query:
                    await (await query.send("Hi")).result()
            assert (failed.value.exit_code, failed.value.stderr_tail.strip()) == (3, "it broke")


def say_secrets(home: str) -> Scenario:
    return Scenario.turns(
        [
            [
                steps.Stderr(f"warning: password={SECRET} in {home}/x\n"),
                steps.Noise(f"debug: Authorization: Bearer {SECRET}"),
                steps.EmitRaw(b"\xff\xfe token=" + SECRET.encode() + b"\n"),
                steps.Text(f"Your key is {SECRET}, {SECRET.upper()}, sk-ant-{SECRET}, mail alice@secret-company.io, home {home}/y"),
                steps.Exit(3),
            ]
        ]
    )


async def test_the_tape_names_variables_and_headers_and_has_no_value_of_them(
    tmp_path: Path, fake_claude: Callable[..., FakeClaude]
) -> None:
    """Also where the name does not say that the value is a secret, and where the value looks like no secret."""
    server = {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Tenant": "zebra-one"}}
    local = {"command": "true", "env": {"REALM": "zebra-two"}}
    options = ClaudeOptions(env={"LAB": "zebra-three"}, mcp_servers={"far": server, "near": local}, model="haiku")
    path = tmp_path / "tape.ndjson"
    recorder = RecordingTransport(SubprocessTransport(options, command=fake_claude(Scenario.text("ok")).command), path)
    await converse(recorder, "hi")
    assert read_start(Tape.read(path)) == {
        "options": {
            "model": "haiku",
            "env": ["LAB"],
            "mcp_servers": {"far": {**server, "headers": ["X-Tenant"]}, "near": {**local, "env": ["REALM"]}},
        }
    }
    assert b"zebra" not in path.read_bytes()


async def test_secrets_in_options_messages_stderr_and_errors_are_never_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentinels: a value of an environment variable, of an option, of this user's home, and what only looks secret."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET.upper())
    path = tmp_path / "tape.ndjson"
    home = "/home/gwendolyn"
    with FakeClaude(say_secrets(home)) as fake:
        options = ClaudeOptions(env={"MY_API_KEY": SECRET, "HOME": home, "USER": "gwendolyn"}, permission_mode="default")
        transport = RecordingTransport(SubprocessTransport(options, command=fake.command), path)
        with anyio.fail_after(30), pytest.raises(ProcessError):
            async with Query(transport, initialize={"title": f"about {SECRET}"}) as query:
                turn = await query.send(f"My password is {SECRET}, I am gwendolyn at gwendolyn@secret-company.io, {home}")
                await turn.result()
    written = path.read_bytes()
    tape = Tape.read(path)
    assert {record.dir for record in tape} == {"in", "out", "err", "note"}
    for sentinel in (SECRET, "gwendolyn", "secret-company"):
        assert sentinel.lower().encode() not in written.lower(), sentinel
        assert all(sentinel.lower().encode() not in record.line.lower() for record in tape)
    assert b"/home/user" in written
    assert b"Your key is [secret]" in written


async def test_a_failure_of_the_transport_is_noted_without_its_secrets_and_raised_as_it_was(tmp_path: Path) -> None:
    error = ConnectTimeout(f"no answer from https://me:{SECRET}@host", waited=1.0)

    class Failing(MockTransport):
        attempts = 0

        async def connect(self) -> None:
            self.attempts += 1
            if self.attempts == 1:
                raise error
            await super().connect()

        async def write(self, data: str | bytes) -> None:
            raise TransportClosed("gone", exit_code=7)

    transport = RecordingTransport(Failing([RESULT]), tmp_path / "tape.ndjson")
    with pytest.raises(ConnectTimeout) as raised:
        await transport.connect()
    assert raised.value is error
    assert not transport.path.exists(), "a failed connect() leaves nothing open"
    async with transport:
        with pytest.raises(TransportClosed):
            await transport.write(b'{"type":"user"}')
    lines = [record.line for record in Tape.read(transport.path)]
    assert not any(b"\n" in line for line in lines)
    notes = [json.loads(line) for line in lines if line.startswith(b'{"failure"')]
    assert [(note["failure"], note["error"], note["code"]) for note in notes] == [
        ("connect", "ConnectTimeout", "connect.timeout"),
        ("write", "TransportClosed", "usage.closed"),
    ]
    assert "[secret]@host" in notes[0]["message"]


async def test_a_failed_connection_that_is_given_up_is_recorded_when_it_is_closed(tmp_path: Path) -> None:
    class Failing(MockTransport):
        async def connect(self) -> None:
            raise ConnectTimeout("nobody")

    transport = RecordingTransport(Failing(), tmp_path / "tape.ndjson")
    with pytest.raises(ConnectTimeout):
        await transport.connect()
    await transport.close()
    assert kinds(Tape.read(transport.path))[-1] == ("note", "closed by host")
    untouched = RecordingTransport(MockTransport(), tmp_path / "none.ndjson")
    await untouched.close()
    assert not untouched.path.exists()


PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\\nMIIEvWalnut\\nKestrel==\\n-----END PRIVATE KEY-----\\n"


async def test_a_secret_of_several_lines_on_standard_error_is_not_on_the_tape(tmp_path: Path) -> None:
    dying = f"import sys; sys.stderr.write('before\\n{PRIVATE_KEY}after\\n'); sys.exit(3)"
    transport = RecordingTransport(SubprocessTransport(command=[sys.executable, "-c", dying]), tmp_path / "tape.ndjson")
    with anyio.fail_after(30):
        async with transport:
            with pytest.raises(ProcessError):
                await anext(transport.read_lines())
    assert [record.line for record in Tape.read(transport.path) if record.dir == "err"] == [b"before", b"[secret]", b"after"]


async def test_an_end_of_input_that_failed_or_was_cancelled_does_not_end_the_recording_of_what_is_written(tmp_path: Path) -> None:
    transport = RecordingTransport(MockTransport(), tmp_path / "tape.ndjson")
    with pytest.raises(NotConnected):
        await transport.end_input()
    async with transport:
        await transport.write(b'{"type":"user"}')
    assert kinds(Tape.read(transport.path)) == [("in", "user"), ("note", "closed by host")]

    ours, theirs = memory_stream_pair()
    async with theirs, RecordingTransport(StreamTransport(Opened(ours)), tmp_path / "cancelled.ndjson") as cancelled:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await cancelled.end_input()
        await cancelled.write(b'{"type":"user"}')
        assert await theirs.receive() == b'{"type":"user"}\n'
    assert ("in", "user") in kinds(Tape.read(cancelled.path))


USER = b'{"type":"user","message":{"role":"user","content":"Hello"}}'
ASK = b'{"type":"control_request","request_id":"r1","request":{"subtype":"interrupt"}}'


async def replayed(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """What a host hears that says these lines to the tape."""
    with anyio.fail_after(30):
        async with ReplayTransport(path) as claude:
            for line in lines:
                await claude.write(line)
            await claude.end_input()
            heard = [message async for message in claude.read_messages()]
            claude.assert_played()
    return heard


class Gated(MockTransport):
    """A mock whose writes wait before they hand anything over, until `gate` is opened."""

    def __init__(self) -> None:
        super().__init__([RESULT])
        self.gate = anyio.Event()
        self.is_waited_for = anyio.Event()

    async def write(self, data: str | bytes) -> None:
        self.is_waited_for.set()
        await self.gate.wait()
        await super().write(data)


class SixAround:
    """Six methods around a transport, and no count of its bytes."""

    def __init__(self, inside: Transport) -> None:
        self.connect, self.write, self.end_input, self.close = inside.connect, inside.write, inside.end_input, inside.close
        self.read_messages, self.is_ready = inside.read_messages, inside.is_ready


async def test_a_write_that_was_cancelled_before_it_began_is_not_on_the_tape(tmp_path: Path) -> None:
    transport = RecordingTransport(MockTransport([RESULT]), tmp_path / "tape.ndjson")
    async with transport:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.write(ASK)
        await transport.write(USER)
        assert await anext(transport.read_messages()) == RESULT
    assert kinds(Tape.read(transport.path))[:2] == [("in", "user"), ("out", "result")]
    assert await replayed(transport.path, USER) == [RESULT]


async def test_a_write_that_was_cancelled_before_anything_went_out_is_withdrawn_and_its_replay_does_not_wait_for_it(tmp_path: Path) -> None:
    claude = Gated()
    transport = RecordingTransport(claude, tmp_path / "tape.ndjson")
    scope = anyio.CancelScope()

    async def ask() -> None:
        with scope:
            await transport.write(ASK + b"\n" + USER)

    with anyio.fail_after(30):
        async with transport, anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await claude.is_waited_for.wait()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            claude.gate.set()
            await transport.write(USER)
            assert await anext(transport.read_messages()) == RESULT
    assert kinds(Tape.read(transport.path))[:6] == [
        *(("in", "control_request"), ("in", "user"), ("note", "withdrawn in 2"), ("note", "withdrawn in 1")),
        *(("in", "user"), ("out", "result")),
    ]
    assert await replayed(transport.path, USER) == [RESULT]
    async with ReplayTransport(transport.path) as again:
        with pytest.raises(ExpectationFailed):
            await again.write(ASK)


async def test_a_write_that_waits_for_its_turn_is_on_the_tape_when_it_comes_and_the_end_of_the_input_after_it(tmp_path: Path) -> None:
    claude = Gated()
    transport = RecordingTransport(claude, tmp_path / "tape.ndjson")
    scope = anyio.CancelScope()

    async def ask() -> None:
        with scope:
            await transport.write(ASK)

    with anyio.fail_after(30):
        async with transport:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.write, USER)
                await claude.is_waited_for.wait()
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(transport.write, b'{"type":"keep_alive"}')
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(transport.end_input)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                claude.gate.set()
            assert [message async for message in transport.read_messages()] == [RESULT]
    assert kinds(Tape.read(transport.path))[:3] == [("in", "user"), ("in", "keep_alive"), ("note", "stdin closed by driver")]
    assert [message["type"] for message in claude.written] == ["user", "keep_alive"]


async def test_a_write_that_failed_and_was_made_again_is_said_once(tmp_path: Path) -> None:
    inside = FaultyTransport(MockTransport([RESULT]), [FailWrite(write=2, lasting=False)])
    recorder = RecordingTransport(inside, tmp_path / "tape.ndjson")
    async with RetryingTransport(recorder, backoff=Backoff(first=0)) as transport:
        await transport.write(b'{"type":"keep_alive"}')
        await transport.write(USER)
        assert await anext(transport.read_messages()) == RESULT
    found = kinds(Tape.read(recorder.path))
    assert [way for way, _ in found[:5]] == ["in", "in", "note", "note", "in"]
    assert found[3] == ("note", "withdrawn in 1")
    assert await replayed(recorder.path, USER) == [RESULT]


@pytest.mark.parametrize("refusal", [UsageError("not like this"), InputClosed("it has ended")])
async def test_a_write_that_was_refused_is_withdrawn(tmp_path: Path, refusal: Exception) -> None:
    class Refusing(MockTransport):
        async def write(self, data: str | bytes) -> None:
            raise refusal

    async with RecordingTransport(Refusing(), tmp_path / "tape.ndjson") as transport:
        with pytest.raises(UsageError) as raised:
            await transport.write(USER)
    assert raised.value is refusal
    assert ("note", "withdrawn in 1") in kinds(Tape.read(transport.path))


async def test_a_write_that_may_have_gone_out_stays_on_the_tape_as_said(tmp_path: Path) -> None:
    ours, theirs = memory_stream_pair(capacity=4)
    scope = anyio.CancelScope()

    async def cancel() -> None:
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    with anyio.fail_after(30):
        torn = RecordingTransport(StreamTransport(Opened(ours)), tmp_path / "torn.ndjson")
        async with theirs, torn, anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            with scope:
                await torn.write(USER)
    arrived = RecordingTransport(FaultyTransport(MockTransport(), [FailWrite(after=True)]), tmp_path / "arrived.ndjson")
    async with arrived:
        with pytest.raises(TransportClosed):
            await arrived.write(USER)
    for path in (torn.path, arrived.path):
        found = kinds(Tape.read(path))
        assert found[0] == ("in", "user")
        assert not any("withdrawn" in text for _, text in found)


async def test_a_write_that_was_cancelled_when_its_turn_came_is_not_on_the_tape(tmp_path: Path) -> None:
    """Of a transport that counts nothing, it could not be withdrawn."""
    claude, scope = Gated(), anyio.CancelScope()
    transport = RecordingTransport(SixAround(claude), tmp_path / "tape.ndjson")

    async def user() -> None:
        await transport.write(USER)
        scope.cancel()

    async def ask() -> None:
        with scope:
            await transport.write(ASK)

    with anyio.fail_after(30):
        async with transport, anyio.create_task_group() as tasks:
            tasks.start_soon(user)
            await claude.is_waited_for.wait()
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            claude.gate.set()
    assert kinds(Tape.read(transport.path)) == [("in", "user"), ("note", "closed by host")]


async def test_what_is_written_where_nothing_can_be_is_on_no_tape(tmp_path: Path) -> None:
    unconnected = RecordingTransport(MockTransport(), tmp_path / "unconnected.ndjson")
    with pytest.raises(NotConnected):
        await unconnected.write(USER)
    await unconnected.close()
    assert not (tmp_path / "unconnected.ndjson").exists()
    transport = RecordingTransport(MockTransport(), tmp_path / "tape.ndjson")
    async with transport:
        await transport.write(USER)
        await transport.end_input()
        with pytest.raises(InputClosed):
            await transport.write(ASK)
    assert [kind for kind in kinds(Tape.read(transport.path)) if kind[0] == "in"] == [("in", "user")]


async def test_nothing_is_said_on_a_tape_after_the_close(tmp_path: Path) -> None:
    async with RecordingTransport(MockTransport(), tmp_path / "tape.ndjson") as transport:
        await transport.write(USER)
    said = Path(transport.path).read_bytes()
    for late in (lambda: transport.write(ASK), transport.end_input):
        with pytest.raises(TransportClosed):
            await late()
    assert Path(transport.path).read_bytes() == said
    assert [path.name for path in tmp_path.iterdir()] == ["tape.ndjson"]


async def test_what_may_reach_a_peer_is_on_the_tape_whoever_has_connected_it_and_whether_it_still_lives(tmp_path: Path) -> None:
    class Dead(MockTransport):
        async def write(self, data: str | bytes) -> None:
            raise TransportClosed("the peer is gone")

        def is_ready(self) -> bool:
            return False

    async with RecordingTransport(Dead(), tmp_path / "dead.ndjson") as dead:
        with pytest.raises(TransportClosed):
            await dead.write(USER)
        await dead.end_input()
    assert [kinds(Tape.read(dead.path))[place] for place in (0, 2)] == [("in", "user"), ("note", "stdin closed by driver")]
    for number, (say, kind) in enumerate(
        [
            (lambda transport: transport.write(USER), ("in", "user")),
            (lambda transport: transport.end_input(), ("note", "stdin closed by driver")),
        ]
    ):
        async with MockTransport() as claude:
            elsewhere = RecordingTransport(claude, tmp_path / f"{number}.ndjson")
            await say(elsewhere)
            await elsewhere.close()
        assert kinds(Tape.read(elsewhere.path))[0] == kind


async def test_after_an_end_of_input_that_the_peer_did_not_take_lines_are_recorded_and_so_is_the_next_end(tmp_path: Path) -> None:
    class Failing(MockTransport):
        failures = 1

        async def end_input(self) -> None:
            if self.failures:
                self.failures -= 1
                raise TransportClosed("not now")
            await super().end_input()

    async with RecordingTransport(Failing(), tmp_path / "tape.ndjson") as transport:
        with pytest.raises(TransportClosed):
            await transport.end_input()
        await transport.write(USER)
        await transport.end_input()
    found = kinds(Tape.read(transport.path))
    assert [found[place] for place in (0, 2, 3)] == [("note", "stdin closed by driver"), ("in", "user"), ("note", "stdin closed by driver")]


async def test_of_a_transport_that_counts_nothing_a_cancelled_write_stays_on_the_tape_as_said(tmp_path: Path) -> None:
    class Six:
        async def connect(self) -> None: ...
        async def end_input(self) -> None: ...
        async def close(self) -> None: ...

        async def write(self, data: str) -> None:
            scope.cancel()
            await anyio.sleep_forever()

        def is_ready(self) -> bool:
            return True

        async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            yield RESULT

    scope = anyio.CancelScope()
    async with RecordingTransport(Six(), tmp_path / "tape.ndjson") as transport:
        with scope:
            await transport.write(USER)
    assert kinds(Tape.read(transport.path)) == [("in", "user"), ("note", "closed by host")]


class Opened(ByteStreamConnectable):
    """The opener of one stream."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def connect(self) -> ByteStream:
        return self.stream


async def test_a_transport_that_knows_only_six_methods_is_recorded_too(tmp_path: Path) -> None:
    class Six:
        async def connect(self) -> None: ...
        async def write(self, data: str) -> None: ...
        async def end_input(self) -> None: ...
        async def close(self) -> None: ...

        def is_ready(self) -> bool:
            return True

        async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            yield RESULT

    async with RecordingTransport(Six(), tmp_path / "tape.ndjson") as transport:
        await transport.write('{"type":"user"}\r\n\n{"type":"keep_alive"}')
        assert [message async for message in transport.read_messages()] == [RESULT]
        await transport.end_input()
        await transport.end_input()
    assert kinds(Tape.read(transport.path)) == [
        ("in", "user"),
        ("in", "keep_alive"),
        ("out", "result"),
        ("note", "out EOF"),
        ("note", "stdin closed by driver"),
        ("note", "closed by host"),
    ]


async def test_an_existing_file_is_overwritten_and_nobody_else_can_read_it_then(tmp_path: Path) -> None:
    path = tmp_path / "tape.ndjson"
    path.write_text("old\n" * 1000)
    path.chmod(0o644)
    async with RecordingTransport(MockTransport(), path) as transport:
        await transport.write(b"{}")
    assert [record.line for record in Tape.read(path)] == [b"{}", b"closed by host"]
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ------------------------------------------------------------------------------------------------------------------ the disk


def directory(tmp_path: Path) -> Path:
    return tmp_path


def missing(tmp_path: Path) -> Path:
    return tmp_path / "nowhere" / "tape.ndjson"


def full(_tmp_path: Path) -> Path:
    return Path("/dev/full")


@pytest.mark.parametrize(
    "place", [directory, missing, pytest.param(full, marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only"))]
)
async def test_a_disk_that_fails_is_reported_once_and_costs_the_conversation_nothing(
    place: Callable[[Path], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    responses = [dict(RESULT, num=number) for number in range(20)]
    transport = RecordingTransport(MockTransport(responses), place(tmp_path))
    async with transport:
        for _ in range(5):
            await transport.write(b'{"type":"user"}')
            await anyio.wait_all_tasks_blocked()
        assert [message["num"] async for message in transport.read_messages()] == list(range(20))
    assert isinstance(transport.failure, OSError)
    assert [record.getMessage() for record in caplog.records if "has stopped" in record.getMessage()] == [
        f"recording to {place(tmp_path)} has stopped: {transport.failure}"
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
async def test_a_disk_that_hangs_blocks_nothing_and_closing_waits_for_it_no_longer_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)  # opening it waits for somebody who reads
    transport = RecordingTransport(MockTransport([RESULT]), path, flush_timeout=0.01)
    with anyio.fail_after(30):
        async with transport:
            await transport.write(b'{"type":"user"}')
            assert [message async for message in transport.read_messages()] == [RESULT]
    assert "has not taken everything within 0.01 s" in str(transport.failure)
    with path.open("rb") as reader:  # the writer's thread comes free, and writes what it had
        rows = reader.read().splitlines()
    assert json.loads(rows[-1])["line"] == "closed by host"


@pytest.mark.one_loop
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
@pytest.mark.parametrize("line", [b"{}", b'{"type":"keep_alive"}', b"x" * 5000], ids=["tiny", "small", "large"])
async def test_what_waits_for_a_disk_that_hangs_takes_no_more_memory_than_is_counted(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    file = TapeFile(path, header=TapeHeader(), redactor=None, max_pending_bytes=2**20)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        t = 0.0
        while file.failure is None:
            t += 0.001
            file.put(t, "out", bytes(bytearray(line)))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert str(file.failure) == "the disk is too slow: more than 1048576 bytes wait for it"
    assert 2**19 < held < 1.2 * 2**20
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, path.read_bytes)  # the disk comes free
        await file.aclose(timeout=30)


async def test_a_disk_that_is_quick_enough_takes_more_than_may_wait_for_it(tmp_path: Path) -> None:
    path, line = tmp_path / "tape", b"x" * 100_000
    file = TapeFile(path, header=TapeHeader(), redactor=None, max_pending_bytes=2**18)
    with anyio.fail_after(30):
        for number in range(1, 9):
            file.put(number / 1000, "out", line)
            while not path.exists() or path.stat().st_size < number * len(line):  # until this line was written
                await a_moment()
        await file.aclose(timeout=30)
    assert file.failure is None
    assert path.stat().st_size > 8 * len(line)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
async def test_64_mebibytes_wait_for_a_disk_that_hangs_when_nobody_says_how_many_may(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    file = TapeFile(path, header=TapeHeader(), redactor=None)
    line = bytes(2**20)  # one object, however many records have it
    for number in range(63):
        file.put(number, "out", line)
    assert file.failure is None
    file.put(63, "out", line)
    assert str(file.failure) == "the disk is too slow: more than 67108864 bytes wait for it"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, path.read_bytes)  # the disk comes free
        await file.aclose(timeout=30)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
async def test_whoever_closes_it_too_waits_for_the_disk_as_well(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    transport = RecordingTransport(MockTransport([RESULT]), path, flush_timeout=10)
    closed: list[bool] = []
    rows: list[bytes] = []

    async def close() -> None:
        await transport.close()
        closed.append(transport.is_complete)

    with anyio.fail_after(30):
        await transport.connect()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(close)
            await anyio.wait_all_tasks_blocked()
            assert (closed, transport.is_complete) == ([], False)
            rows += (await anyio.to_thread.run_sync(path.read_bytes)).splitlines()
    assert json.loads(rows[-1])["line"] == "closed by host"
    assert (closed, transport.failure) == ([True] * 3, None)


async def test_a_system_without_threads_to_spare_costs_the_recording_and_not_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    transport = RecordingTransport(MockTransport([RESULT]), tmp_path / "tape.ndjson")
    with anyio.fail_after(30):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            await transport.connect()
        assert [message async for message in transport.read_messages()] == [RESULT]
        await transport.close()
    assert isinstance(transport.failure, RuntimeError)
    assert transport.is_complete


async def test_a_recorder_that_is_dropped_still_writes_what_it_had(tmp_path: Path) -> None:
    transport = RecordingTransport(MockTransport([RESULT]), tmp_path / "tape.ndjson")
    await transport.connect()
    await transport.write(b'{"type":"user"}')
    del transport
    gc.collect()
    assert kinds(Tape.read(tmp_path / "tape.ndjson")) == [("in", "user")]


CRASHING = """
import os, signal, sys, anyio
from claude_transport.transports.mock import MockTransport
from claude_transport.wrappers.recording import RecordingTransport

async def main():
    async with RecordingTransport(MockTransport(), sys.argv[1]) as transport:
        told = False
        for number in range(10**9):
            await transport.write(b'{"type":"user","number":%d}' % number)
            if not told and os.path.exists(sys.argv[1]) and os.path.getsize(sys.argv[1]) > 100_000:
                print("enough", flush=True)
                told = True
anyio.run(main)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_recording_survives_the_death_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "tape.ndjson"
    with subprocess.Popen([sys.executable, "-c", CRASHING, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"enough\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    numbers = [json.loads(line)["number"] for line in Tape.read(path).lines("in")]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 100


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no folder in which a process works")
def test_tapes_in_a_working_directory_that_is_gone_are_told_apart_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    inside = RecordingTransport(MockTransport(), "one.ndjson")
    assert RecordingTransport(inside, "other.ndjson").path == Path("other.ndjson")
    with pytest.raises(ConfigurationError, match=r"writes one\.ndjson, too"):
        RecordingTransport(inside, "one.ndjson")


async def test_a_redactor_of_ones_own_does_the_redacting_of_a_tape(tmp_path: Path) -> None:
    path = tmp_path / "tape.ndjson"
    said = {"type": "keep_alive", "note": "opensesame"}
    async with RecordingTransport(MockTransport([said]), path=path, redactor=Redactor(secrets=["opensesame"])) as transport:
        assert [message async for message in transport.read_messages()] == [said]
    assert [json.loads(record.line) for record in Tape.read(path).records if record.dir == "out"] == [{**said, "note": "[secret]"}]


def test_a_redactor_makes_no_sense_without_scrubbing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="contradict"):
        RecordingTransport(MockTransport(), tmp_path / "x", scrub=False, redactor=Redactor())


async def test_a_secret_in_several_fragments_is_never_in_the_file_and_the_tape_keeps_every_line(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "GhIjKlMnOpQrStUv" * 4
    parts = [secret[at : at + 4] for at in range(0, len(secret), 4)]
    said = [
        {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}}
        for part in ("The key is ", *parts, " now", " and ever")
    ]
    path = tmp_path / "tape.ndjson"
    async with RecordingTransport(MockTransport([*said, {"type": "keep_alive"}]), path=path) as transport:
        received = [message async for message in transport.read_messages()]
    assert received == [*said, {"type": "keep_alive"}]
    taped = [json.loads(record.line) for record in Tape.read(path).records if record.dir == "out"]
    assert len(taped) == len(received)
    assert "".join(each["event"]["delta"]["text"] for each in taped[:-1]) == "The key is [secret] now and ever"
    assert not any(part in path.read_text() for part in parts[:-1])


HANGING_DISK = """
import sys
from claude_transport.protocol.tape import TapeHeader
from claude_transport.wrappers.recording import TapeFile

file = TapeFile(sys.argv[1], header=TapeHeader(), redactor=None)
file.put(0, "out", b"{}")
print("leaving")
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_a_disk_that_hangs_keeps_no_interpreter_from_leaving(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    ran = subprocess.run([sys.executable, "-c", HANGING_DISK, path], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "leaving\n", "")


async def test_no_thread_of_a_tape_runs_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that counts its threads, or forks, finds none of them."""
    path = tmp_path / "tape"
    never = threading.Event()

    class Told(HostLoop):
        """Keeps the thread that tells the loop of its end a little longer."""

        def call_soon(self, func: Callable[[], object]) -> bool:
            told = super().call_soon(func)
            never.wait(0.05)
            return told

    monkeypatch.setattr("claude_transport.wrappers.recording.HostLoop", Told)
    file = TapeFile(path, header=TapeHeader(), redactor=None)
    file.put(0.0, "out", b"{}")
    assert [each.name for each in threading.enumerate() if str(path) in each.name] == [f"claude tape {path}"]
    await file.aclose(timeout=30)
    assert [each.name for each in threading.enumerate() if str(path) in each.name] == []
