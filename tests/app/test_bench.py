"""`bench`, run as a process: that it measures every way of reading, what it says of them, and that it can be interrupted."""

from __future__ import annotations

import json
import os
import signal

import anyio
import pytest
from program_process import PATIENCE, Program

from claude_transport.app.bench import Measurement
from claude_transport.app.event_loop import run_interruptibly


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_every_way_of_reading_has_its_figures(program: Program, backend: str) -> None:
    ran = program.run("bench", "--messages", "250", "--json", "--backend", backend)
    assert (ran.returncode, ran.stderr) == (0, b"")
    report = json.loads(ran.stdout)
    assert (report["backend"], report["messages"]) == (backend, 250)
    assert report["rounds"] >= 1
    names = [row["name"] for row in report["rows"]]
    bare, dicts = names[0], "SubprocessTransport, dicts"
    assert {row["against"] for row in report["rows"]} == {None, bare, dicts}
    assert [row["against"] for row in report["rows"] if row["name"] in {bare, dicts}] == [None, bare]
    assert {"SubprocessTransport, lines", "Query, typed messages", "RetryingTransport, idle, dicts"} <= set(names)
    assert all(row["us_per_message"] > 0 and row["messages_per_second"] > 0 for row in report["rows"])
    assert [row["ratio"] is None for row in report["rows"]] == [True] + [False] * (len(names) - 1)


def test_the_table_has_a_line_for_each_way_and_fits_80_columns(program: Program) -> None:
    ran = program.run("bench", "--messages", "1")
    assert (ran.returncode, ran.stderr) == (0, b"")
    lines = ran.stdout.decode().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [sum(line.startswith(name) for line in lines) for name in ("os.read", "SubprocessTransport", "Query", "TracingTransport")] == [
        1,
        2,
        1,
        1,
    ]


async def test_progress_is_told_before_each_run_and_never_beyond_the_whole() -> None:
    told: list[tuple[float, float]] = []
    bench = Measurement(messages=1)
    rows = await bench.run(on_progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == [*range(bench.rounds * len(rows))]
    assert all(done < total for done, total in told)


async def test_ctrl_c_ends_the_measurement() -> None:
    bench = Measurement(messages=1)

    def interrupt_the_third(done: float, _total: float) -> None:
        if done == 2:
            os.kill(os.getpid(), signal.SIGINT)

    async def work() -> int:
        await bench.run(on_progress=interrupt_the_third)
        return 0

    with anyio.fail_after(PATIENCE):
        assert await run_interruptibly(work, give_up=bench.give_up) == 130


async def test_giving_up_when_nothing_runs_does_nothing() -> None:
    await Measurement(messages=1).give_up()


@pytest.mark.parametrize("number", ["0", "-1", "many", "1000001"])
def test_a_number_of_messages_that_is_none_is_wrong_usage(program: Program, number: str) -> None:
    ran = program.run("bench", f"--messages={number}")
    assert ran.returncode == 2
    assert b"messages" in ran.stderr
