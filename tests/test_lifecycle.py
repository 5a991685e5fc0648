"""Processes and errors: `ROWS` names the tests that prove it, and those without a better place are here."""

from __future__ import annotations

import ast
import gc
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import proof_map
import pytest
import row_maps

import claude_transport as ct
from claude_transport.streams.guard import guard
from claude_transport.streams.process import ProcessConnectable
from claude_transport.testing.conformance.census import ALL, LASTING, Census

TESTS = Path(__file__).parent
HERE = "test_lifecycle.py"

ROWS = [*(f"L{n}" for n in range(1, 17)), "B3", "B4", "B5", "B7", *(f"E{n}" for n in range(1, 5)), *(f"W{n}" for n in range(1, 8))]
PROOFS = {row: tuple(proof_map.PROOFS[row]) for row in ROWS}
"""By row: the tests that prove it. `proofs.toml` says what each of them shows."""
WITHOUT_A_LOOP = ("launch/", "streams/test_platform.py", HERE + "::test_every_proof")
"""Decisions, which are pure, and what looks at the tests themselves."""

PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite
CAT = ["cat"]
ANSWER = r'{"type":"control_response","response":{"subtype":"success","request_id":"\1","response":{}}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}'
CLAUDE = ["sed", "-u", "-n", "-e", rf's/.*"request_id": *"\([^"]*\)".*/{ANSWER}/p', "-e", rf's/.*"type": *"user".*/{RESULT}/p']
DYING = ["sh", "-c", 'sed -u -n -e "/get_settings/q" -e "$0"; echo boom >&2; exit 3', CLAUDE[4]]


def find_test(proof: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    path, _, name = proof.partition("::")
    for node in ast.parse((TESTS / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    return None


def test_every_row_has_a_proof_that_exists() -> None:
    assert list(PROOFS) == ROWS
    assert [proof for proofs in PROOFS.values() for proof in proofs if find_test(proof) is None] == []


def test_every_proof_runs_on_both_event_loops_and_is_never_skipped(tmp_path: Path) -> None:
    """This looks at the cases that pytest collects for the proofs of every row map, and not at decorators."""
    found = row_maps.collect(row_maps.proofs(), tmp_path / "collected.json")
    assert list(row_maps.complaints(row_maps.proofs(), found)) == []
    lifecycle = {proof for proofs in PROOFS.values() for proof in proofs}
    without = sorted(proof for proof in lifecycle if not found[proof].backends)
    assert [proof for proof in without if not proof.startswith(WITHOUT_A_LOOP)] == []


LEFT_OUT = """
import pytest
import anyio
{module}

@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_on_one_loop(): pass

@pytest.mark.nightly
async def test_nightly(): pass

@pytest.mark.skip
async def test_skipped(): pass

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.xfail)])
async def test_expected_to_fail(number): pass

def test_that_starts_one_loop(): anyio.run(print)

async def test_on_both(): pass

def test_pure(): pass
"""


def test_what_does_not_run_on_both_event_loops_is_named(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "cli_under_test.py"):
        (tests / name).write_text((TESTS / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n")
    modules = {"test_a": "", "test_b": "pytest.skip('no', allow_module_level=True)", "test_c": "pytestmark = pytest.mark.skip"}
    names = sorted(re.findall(r"def (test_\w+)", LEFT_OUT))
    for stem, line in modules.items():
        (tests / f"{stem}.py").write_text(LEFT_OUT.format(module=line))
    wanted = {stem: [f"{stem}.py::{name}" for name in names] for stem in modules}
    found = row_maps.collect([*itertools.chain(*wanted.values())], tmp_path / "collected.json", tests=tests)
    said = {stem: [complaint.partition("::")[2] for complaint in row_maps.complaints(wanted[stem], found)] for stem in modules}
    assert said["test_a"] == [
        "test_expected_to_fail is skipped here, expected to fail, or left to the nightly run",
        "test_nightly is skipped here, expected to fail, or left to the nightly run",
        "test_on_one_loop runs on ['trio'] only",
        "test_skipped is skipped here, expected to fail, or left to the nightly run",
        "test_that_starts_one_loop runs on [] only",
    ]
    assert said["test_b"] == [f"{name} is not collected: it does not exist, or its module is skipped" for name in names]
    assert said["test_c"] == [f"{name} is skipped here, expected to fail, or left to the nightly run" for name in names]


END_TO_END = """
import pytest

pytestmark = [pytest.mark.e2e, *{marks}]

@pytest.mark.parametrize("number", range(20))
async def test_of_a_cli(number): pass

def test_without_a_loop(): pass
"""


def test_ci_runs_an_end_to_end_test_on_one_loop_and_the_night_on_the_other(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "cli_under_test.py"):
        (tests / name).write_text((TESTS / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\nmarkers =\n    e2e:\n    nightly:\n    both_loops:\n    needs:\n")
    (tests / "test_one.py").write_text(END_TO_END.format(marks="()"))
    (tests / "test_both.py").write_text(END_TO_END.format(marks="[pytest.mark.both_loops]"))
    output = {}
    for when in ("not nightly", "nightly"):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", f"e2e and {when}", str(tests)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=False
        )
        output[when] = done.stdout
    for module, kept in {"test_one.py": {1}, "test_both.py": {2}}.items():
        chosen = {when: re.findall(rf"{module}::(test_\w+)(?:\[(\w+)-(\d+)\])?", text) for when, text in output.items()}
        loops = {number: {loop for _, loop, at in chosen["not nightly"] if at == str(number)} for number in range(20)}
        assert {len(each) for each in loops.values()} == kept
        assert {*loops[0], *(loop for each in loops.values() for loop in each)} == {"asyncio", "trio"}
        assert ("test_without_a_loop", "", "") in chosen["not nightly"]
        assert sorted({*chosen["not nightly"], *chosen["nightly"]}) == sorted([*chosen["not nightly"], *chosen["nightly"]])
        assert len(chosen["not nightly"]) + len(chosen["nightly"]) == 41


SKIPPED_PROOF = """
import pytest
PROOFS = {"X1": ("test_it.py::test_proof",)}

async def test_proof(): pytest.skip("no sshd")

async def test_other(): pytest.skip("no sshd")
"""


@pytest.mark.parametrize(("ci", "outcomes"), [("1", "2 failed, 2 skipped"), ("", "4 skipped")])
def test_a_proof_that_skips_itself_fails_where_ci_is_set(tmp_path: Path, ci: str, outcomes: str) -> None:
    for name in ("conftest.py", "row_maps.py", "cli_under_test.py"):
        (tmp_path / name).write_text((TESTS / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n")
    (tmp_path / "test_it.py").write_text(SKIPPED_PROOF)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CI": ci}, cwd=tmp_path, check=False)
    assert outcomes in done.stdout, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------------------ closing


async def test_each_step_in_a_task_of_its_own_and_the_generator_left_to_the_event_loop() -> None:
    """What a generator holds open when it is forgotten is closed by the event loop, in a task nobody chose."""
    before = await Census.rested()
    query = ct.Query(ct.SubprocessTransport(command=CLAUDE))
    everything = query.messages()  # before the prompt is sent, since nobody keeps its handle

    async def read() -> AsyncGenerator[ct.Message, None]:
        try:
            async for message in everything:
                yield message
        finally:
            await query.aclose()

    messages = [read()]

    async def read_one() -> None:
        assert isinstance(await anext(messages[0]), ct.ResultMessage)

    with anyio.fail_after(PATIENCE):
        for step in (query.start, lambda: query.send("Hello"), read_one):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(step)
        finalised = pytest.warns(ResourceWarning) if is_trio() else None
        if finalised is None:
            messages.clear()
        else:
            with finalised:
                messages.clear()
                gc.collect()
                await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.aclose)
    assert await before.growth(patience=30, of=LASTING) == {}


def is_trio() -> bool:
    import sniffio

    return sniffio.current_async_library() == "trio"


async def test_an_abandoned_session_costs_no_processor_time() -> None:
    """Reading is cancelled in the middle, nobody closes, and the event loop goes on with other things."""
    query = ct.Query(ct.SubprocessTransport(command=CLAUDE))
    with anyio.fail_after(PATIENCE):
        await query.start()
        turn = await query.send("Hello")
        with anyio.CancelScope() as scope:
            async for _ in turn:
                scope.cancel()
        query.abandon()
        del turn
        await anyio.wait_all_tasks_blocked()
        used = time.process_time()
        # time has to pass for a loop that spins to show itself: it would use all of it
        await anyio.sleep(2)
        assert time.process_time() - used < 0.1
        await query.aclose()


HOST_AT_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import anyio, claude_transport as ct

async def main():
    async with ct.SubprocessTransport(command=["sh", "-c", sys.argv[1], sys.argv[2]]) as transport:
        await anext(transport.read_messages())
        print("up", flush=True)
        await anyio.sleep_forever()

try:
    anyio.run(main, backend=sys.argv[3])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
JOURNAL = """
trap 'echo INT >> "$0"' INT; trap 'echo TERM >> "$0"' TERM; trap 'echo HUP >> "$0"' HUP
echo '{}'; while read -r line; do :; done; echo end of input >> "$0"
"""


async def test_an_interrupt_at_the_terminal_reaches_the_host_alone_which_closes_the_child(tmp_path: Path, anyio_backend_name: str) -> None:
    """A Ctrl-C goes to the foreground group of the terminal; the child leads a session of its own."""
    ours, theirs = os.openpty()
    journal = tmp_path / "journal"
    command = [sys.executable, "-c", HOST_AT_TERMINAL, JOURNAL, str(journal), anyio_backend_name]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, start_new_session=True, text=True) as host:
        os.close(theirs)
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == "up\n"
            os.write(ours, b"\x03")
            assert host.stdout.readline() == "interrupted\n"
            assert host.wait(PATIENCE) == 0
        finally:
            host.kill()
            os.close(ours)
    assert journal.read_text() == "end of input\n"


@pytest.mark.parametrize("script", ["echo last words >&2; exit 3", "kill -KILL $$"], ids=["exit", "signal"])
async def test_a_dead_process_is_told_at_once_and_replaced_by_reconnecting(script: str, tmp_path: Path) -> None:
    """The first run of the child dies, the next one is a `cat`."""
    before = await Census.rested()
    flag = tmp_path / "flag"
    command = ["sh", "-c", f'if [ -e "$0" ]; then exec cat; fi; : > "$0"; {script}', str(flag)]

    def make() -> ct.SubprocessTransport:
        return ct.SubprocessTransport(command=command, max_line_bytes=1234)

    transport = ct.RetryingTransport(make(), make_transport=make)
    with anyio.fail_after(PATIENCE):
        await transport.connect()
        with pytest.raises(ct.ProcessError):
            await anext(transport.read_lines())
        assert not transport.is_ready()
        with pytest.raises(ct.TransportClosed) as caught:
            await transport.write("{}")
        assert (caught.value.exit_code, caught.value.signal) in {(3, None), (None, 9)}
        another = await transport.reconnect()
        assert type(another.transport) is ct.SubprocessTransport
        assert another.transport is not transport.transport
        assert another.is_ready()
        with pytest.raises(ct.TransportClosed):
            await transport.connect()
        await another.write('{"n":1}')
        assert await anext(another.read_messages()) == {"n": 1}
        third = await another.reconnect()
        assert not another.is_ready()
        await third.write("x" * 2000)
        await third.write('{"n":2}')
        assert await anext(third.read_messages()) == {"n": 2}
        assert third.info.oversized_lines == 1, "it is made with the same arguments"
        await third.close()
        fourth = await third.reconnect()
        await fourth.close()
    assert await before.growth(patience=30, of=LASTING) == {}


async def test_a_failed_reconnect_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec cat\n")
    program.chmod(0o755)
    before = await Census.rested()
    transport = ct.RetryingTransport(
        ct.SubprocessTransport(command=[program]), make_transport=lambda: ct.SubprocessTransport(command=[program])
    )
    with anyio.fail_after(PATIENCE):
        await transport.connect()
        moved = program.rename(tmp_path / "moved")
        with pytest.raises(ct.CLINotFoundError):
            await transport.reconnect()
        assert await before.growth(patience=30, of=LASTING) == {}
        moved.rename(program)
        async with await transport.reconnect() as another:
            assert another.is_ready()
    assert await before.growth(patience=30, of=LASTING) == {}


async def test_who_answers_is_known_to_the_transport_that_replaces_another() -> None:
    async def allow(*_: Any) -> ct.Allow:
        return ct.Allow()

    def make() -> ct.SubprocessTransport:
        return ct.SubprocessTransport(command=CLAUDE)

    transport = ct.RetryingTransport(make(), make_transport=make)
    async with ct.Query(transport, can_use_tool=allow) as query:
        await (await query.send("Hello")).result()
    async with ct.Query(await transport.reconnect(), can_use_tool=allow) as query:
        await (await query.send("Hello")).result()


async def guard_has_left() -> None:
    """Wait until the guard has ended. It stays for a quarter of a second after the last child."""
    with anyio.fail_after(30):
        while guard.pid is not None:
            await anyio.wait_all_tasks_blocked()


async def test_five_hundred_connections_leave_no_file_thread_task_or_process() -> None:
    async def cycle() -> None:
        transport = ct.SubprocessTransport(command=CAT)
        await transport.connect()
        await transport.close()
        assert transport.info.exit_code == 0

    with anyio.fail_after(60):
        await cycle()
        before = await Census.rested()
        for _ in range(125):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(cycle)
    assert await before.growth(patience=30, of=LASTING) == {}
    await guard_has_left()


# ------------------------------------------------------------------------------------------------------------------ starting


class Fault(BaseException):
    """As a `KeyboardInterrupt` may come: in any line."""


class Tracer:
    """Raises `Fault` before line number `at` that is executed in these functions once `popen` has returned."""

    FUNCTIONS = frozenset({("process.py", "connect"), ("process.py", "__init__"), ("reaping.py", "__init__")})

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.spawned = False

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        place = (Path(frame.f_code.co_filename).name, frame.f_code.co_name)
        if place not in self.FUNCTIONS:
            return None
        return self.in_function

    def in_function(self, frame: Any, event: str, argument: Any) -> Any:
        self.spawned = self.spawned or frame.f_locals.get("popen") is not None
        if event == "line" and self.spawned:
            self.lines += 1
            if self.lines == self.at:
                raise Fault
        return self.in_function


async def test_a_fault_in_any_line_after_the_spawn_leaves_no_process() -> None:
    """Between the spawn and the moment the caller has the stream there is no await; so every line is a place for a fault."""
    stream = await ProcessConnectable(CAT).connect()
    await stream.aclose()
    before = await Census.rested()
    at = 0
    for at in range(1, 200):
        tracer = Tracer(at)
        old = sys.gettrace()
        sys.settrace(tracer)
        try:
            stream = await ProcessConnectable(CAT).connect()
        except Fault:
            sys.settrace(old)
            del tracer
            assert await before.growth(patience=30, of=ALL) == {}, f"after a fault in line {at}"
        else:
            sys.settrace(old)
            await stream.aclose()
            break
    assert at > 20
    await guard_has_left()
    assert await before.growth(patience=30, of=ALL - {"threads"}) == {}


HOST_WITH_INPUT = """
import sys, anyio, claude_transport as ct

async def main():
    async for message in ct.query("Hello", transport=ct.SubprocessTransport(command=sys.argv[2:])):
        print(message.type, flush=True)

anyio.run(main, backend=sys.argv[1])
print(sys.stdin.readline().strip())
"""


async def test_a_one_shot_leaves_the_input_of_its_host_alone(anyio_backend_name: str) -> None:
    """Neither does it wait for the end of that input, which does not come, nor does the child take what is in it."""
    command = [sys.executable, "-c", HOST_WITH_INPUT, anyio_backend_name, *CLAUDE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            host.stdin.write("meant for the host\n")
            host.stdin.flush()
            assert host.stdout.readline() == "result\n"
            assert host.stdout.readline() == "meant for the host\n"
        finally:
            host.kill()


# -------------------------------------------------------------------------------------------------------------------- errors


async def test_a_process_error_is_one_wherever_it_comes_out() -> None:
    """From the iterators, from a request that waits, and out of a block whose end closes; closing itself reports and never raises."""
    caught: dict[str, ct.ProcessError] = {}
    query = ct.Query(ct.SubprocessTransport(command=DYING))
    with anyio.fail_after(PATIENCE):
        try:
            async with query:

                async def ask() -> None:
                    try:
                        await query.request("get_settings")
                    except ct.ProcessError as exc:
                        caught["request"] = exc

                async def read() -> None:
                    try:
                        async for _ in query.messages():
                            pass
                    except ct.ProcessError as exc:
                        caught["messages"] = exc

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read)
                    tasks.start_soon(ask)
                async for _ in query:
                    pass
        except ct.ProcessError as exc:
            caught["block"] = exc
        report = await query.aclose()
        with pytest.raises(ct.TransportClosed) as late:
            await query.request("get_settings")
    assert sorted(caught) == ["block", "messages", "request"]
    assert {(error.exit_code, error.stderr_tail) for error in caught.values()} == {(3, "boom")}
    assert report.exit_code == 3
    gone = late.value
    assert (gone.code, gone.exit_code, gone.signal, gone.stderr_tail) == ("usage.closed", 3, None, "boom")
    assert isinstance(gone.__cause__, ct.ProcessError)
