"""The rows of `pains` about processes and errors: each names the tests that prove it, and those without a better place are here."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import claude_transport as ct
from claude_transport.streams.guard import guard
from claude_transport.streams.process import ProcessConnectable
from claude_transport.testing.conformance.census import ALL, LASTING, Census

TESTS = Path(__file__).parent
CLOSING, READING, WRITING, SPAWNING = (f"transports/test_{name}.py" for name in ("closing", "reading", "writing", "spawning"))
ONE_SHOT, CANCELLATION, HERE = "test_one_shot.py", "test_cancellation.py", "test_lifecycle.py"
WINDOWS = "launch/test_windows_decisions.py"

PROOFS: dict[str, tuple[str, ...]] = {
    "L1": ("streams/test_guard.py::test_nothing_a_killed_host_started_is_alive_afterwards",),
    "L2": (
        f"{CLOSING}::test_grandchildren_in_the_group_are_gone_after_close",
        "streams/test_guard.py::test_a_grandchild_in_a_session_of_its_own_is_gone_after_close",
    ),
    "L3": (
        f"{CANCELLATION}::test_a_cancellation_in_any_suspension_leaves_nothing",
        f"{CANCELLATION}::test_a_cancellation_after_any_step_of_any_task_leaves_nothing",
    ),
    "L4": (f"{CLOSING}::test_close_bounded_with_a_child_that_ignores_everything",),
    "L5": (f"{CLOSING}::test_closing_many_stubborn_children_at_once_takes_one_grace_and_not_many",),
    "L6": (f"{CLOSING}::test_what_the_child_writes_down_after_the_end_of_input_is_kept",),
    "L7": (
        f"{CLOSING}::test_close_any_task_while_the_task_that_connected_is_long_gone",
        f"{HERE}::test_each_step_in_a_task_of_its_own_and_the_generator_left_to_the_event_loop",
    ),
    "L8": (f"{HERE}::test_an_abandoned_session_costs_no_processor_time",),
    "L9": (f"{HERE}::test_every_proof_runs_on_both_event_loops_and_is_never_skipped",),
    "L10": (
        f"{ONE_SHOT}::test_a_break_ends_the_process",
        f"{ONE_SHOT}::test_a_program_that_leaves_and_ends_leaves_no_process_and_no_warning",
    ),
    "L11": (f"{HERE}::test_an_interrupt_at_the_terminal_reaches_the_host_alone_which_closes_the_child",),
    "L12": (f"{HERE}::test_a_dead_process_is_told_at_once_and_replaced_by_reconnecting",),
    "L13": (
        f"{READING}::test_a_grandchild_that_holds_stdout_does_not_hang_the_reader",
        f"{READING}::test_a_child_that_closes_its_output_and_lives_on_does_not_hang_the_reader",
    ),
    "L14": (
        f"{ONE_SHOT}::test_a_process_that_does_not_end_after_its_result_is_ended_in_time",
        f"{ONE_SHOT}::test_a_peer_that_does_not_end_gets_the_exit_timeout_after_its_result_and_no_more",
        f"{ONE_SHOT}::test_an_end_without_a_result_is_a_missing_result_with_what_came",
    ),
    "L15": (
        "query/test_query_close.py::test_closing_can_wait_for_background_agents",
        "query/test_query_close.py::test_the_report_names_what_was_lost",
    ),
    "L16": (f"{HERE}::test_a_fault_in_any_line_after_the_spawn_leaves_no_process",),
    "B3": (f"{READING}::test_ten_megabytes_on_stderr_that_nobody_asked_for_block_nothing",),
    "B4": (f"{WRITING}::test_write_large_while_peer_writes_large",),
    "B5": (f"{WRITING}::test_a_write_to_a_dead_child_says_how_it_died",),
    "B7": (f"{HERE}::test_a_one_shot_leaves_the_input_of_its_host_alone",),
    "E1": (
        f"{SPAWNING}::test_a_child_that_dies_at_once_leaves_its_last_words_and_its_exit_code",
        f"{SPAWNING}::test_a_child_that_dies_of_a_signal_says_which",
    ),
    "E2": (f"{HERE}::test_a_process_error_is_one_wherever_it_comes_out",),
    "E3": (f"{READING}::test_a_stderr_callback_that_raises_is_logged_once_and_gets_every_line",),
    "E4": (
        f"{SPAWNING}::test_a_missing_binary_is_named",
        f"{SPAWNING}::test_a_working_directory_that_is_none_is_told_from_a_missing_binary",
        f"{SPAWNING}::test_a_file_that_may_not_be_executed_is_named",
        f"{SPAWNING}::test_an_interpreter_that_is_missing_is_told_from_a_missing_binary",
    ),
    "W1": ("launch/test_build_launch.py::test_the_command_line_is_short_whatever_the_options_hold",),
    "W2": ("query/test_query_start.py::test_the_answer_to_initialize_is_typed",),
    "W3": (f"{WINDOWS}::test_the_selector_loop_is_refused_on_windows_with_the_remedy",),
    "W4": (f"{WINDOWS}::test_every_spawn_on_windows_is_without_a_console_window_and_in_its_own_group",),
    "W5": (f"{SPAWNING}::test_an_interpreter_that_is_missing_is_told_from_a_missing_binary",),
    "W6": (
        "launch/test_discovery.py::test_nothing_found_reports_every_place_in_order_and_what_to_do",
        "launch/test_discovery.py::test_on_windows_native_programs_come_before_batch_files_and_npm_scripts_do_not_count",
    ),
    "W7": (f"{SPAWNING}::test_an_unknown_option_is_named_with_its_version_mismatch",),
}
ROWS = [*(f"L{n}" for n in range(1, 17)), "B3", "B4", "B5", "B7", *(f"E{n}" for n in range(1, 5)), *(f"W{n}" for n in range(1, 8))]
WITHOUT_A_LOOP = ("launch/", HERE + "::test_every_proof")
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


def test_every_proof_runs_on_both_event_loops_and_is_never_skipped() -> None:
    for proof in {proof for proofs in PROOFS.values() for proof in proofs}:
        test = find_test(proof)
        assert test is not None
        marks = " ".join(ast.unparse(decorator) for decorator in test.decorator_list)
        assert "skip" not in marks, proof
        assert "xfail" not in marks, proof
        on_both = isinstance(test, ast.AsyncFunctionDef) or "backend" in {argument.arg for argument in test.args.args}
        assert on_both or proof.startswith(WITHOUT_A_LOOP), proof


# ------------------------------------------------------------------------------------------------------------------ closing


async def test_each_step_in_a_task_of_its_own_and_the_generator_left_to_the_event_loop() -> None:
    """L7. What a generator holds open when it is forgotten is closed by the event loop, in a task nobody chose."""
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
    """L8. Reading is cancelled in the middle, nobody closes, and the event loop goes on with other things."""
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
        await anyio.sleep(0.5)
        assert time.process_time() - used < 0.2
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
    """L11. A Ctrl-C goes to the foreground group of the terminal; the child leads a session of its own."""
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
    """L12. The first run of the child dies, the next one is a `cat`."""
    before = await Census.rested()
    flag = tmp_path / "flag"
    command = ["sh", "-c", f'if [ -e "$0" ]; then exec cat; fi; : > "$0"; {script}', str(flag)]
    transport = ct.SubprocessTransport(command=command, max_line_bytes=1234)
    with anyio.fail_after(PATIENCE):
        await transport.connect()
        with pytest.raises(ct.ProcessError):
            await anext(transport.read_lines())
        assert not transport.is_ready()
        with pytest.raises(ct.TransportClosed) as caught:
            await transport.write("{}")
        assert (caught.value.exit_code, caught.value.signal) in {(3, None), (None, 9)}
        another = await transport.reconnect()
        assert type(another) is ct.SubprocessTransport
        assert another is not transport
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
    transport = ct.SubprocessTransport(command=[program])
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

    transport = ct.SubprocessTransport(command=CLAUDE)
    async with ct.Query(transport, can_use_tool=allow) as query:
        await (await query.send("Hello")).result()
    async with ct.Query(await transport.reconnect(), can_use_tool=allow) as query:
        await (await query.send("Hello")).result()


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
    assert guard.pid is None


# ------------------------------------------------------------------------------------------------------------------ starting


class Fault(BaseException):
    """As a `KeyboardInterrupt` may come: in any line."""


class Tracer:
    """Raises `Fault` before line number `at` that is executed in these functions once `popen` has returned."""

    FUNCTIONS = frozenset({("process.py", "connect"), ("process.py", "__init__"), ("reaping.py", "__init__"), ("stderr.py", "__init__")})

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
    """L16. Between the spawn and the moment the caller has the stream there is no await; so every line is a place for a fault."""
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
    assert guard.pid is None
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
    """B7. Neither does it wait for the end of that input, which does not come, nor does the child take what is in it."""
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
    """E2. From the iterators, from a request that waits, and out of a block whose end closes; closing itself reports and never raises."""
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
