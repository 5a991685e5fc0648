"""The programs under examples/middleware keep the contract, and do what their page says of them beyond what they print."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from loading import load_file

import claude_transport as ct
from claude_transport.testing import can_use_tool, result
from claude_transport.testing.conformance import Reason, Subject, media, run_conformance
from claude_transport.testing.conformance.memory_peer import ReadingPeer

FOLDER = Path(__file__).parents[2] / "examples" / "middleware"


def example(name: str) -> Any:
    """The module of a program."""
    return load_file(FOLDER / f"{name}.py", f"middleware_{name}")


# ------------------------------------------------------------------------------------------------------------- the contract


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "audit": lambda transport: example("audit").RotatingAudit(transport, Path("audit.log")),
    "budget": partial(example("budget").Budget, most=1.0),
    "canned_answers": partial(example("canned_answers").CannedAnswers, answers={"ping": "pong"}),
    "many_sessions": lambda transport: example("many_sessions").AtMost(transport, anyio.CapacityLimiter(1)),
    "masks": partial(example("masks").Mask, word="Bluebird"),
    "policy": partial(example("policy").Policy, denied={"Bash"}),
    "rate_limit": partial(example("rate_limit").RateLimit, seconds=0.05),
    "stack_of_five": lambda transport: example("stack_of_five").HouseRules(transport),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_of_the_examples_keeps_the_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the audit file
    report = run_conformance(media.wrapped(media.memory(), WRAPPERS[name]))
    report.raise_for_failures()
    assert {row.reason for row in report.excluded} <= {Reason.NEVER_SPEAKS}


def test_a_program_without_a_wrapper_of_its_own_is_the_only_one_that_the_kit_does_not_get() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - {"own_fifos"} == {*WRAPPERS}


class FifoPeer(ReadingPeer):
    """The other side of two named pipes. A pipe cannot be cut, so `fail()` is left out."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    async def listen(self) -> None:
        try:
            await self.read_all(self.stream)
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.input_over()

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def finish(self) -> None:
        await self.stream.send_eof()


@asynccontextmanager
async def fifos() -> AsyncIterator[Subject]:
    module = example("own_fifos")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for pipe in ("in", "out"):
            os.mkfifo(folder / pipe)
        stream = await module.Fifos(folder / "out", folder / "in").connect()
        peer = FifoPeer(stream)
        async with stream, anyio.create_task_group() as tasks:
            tasks.start_soon(peer.listen)
            refuse = partial(refuse_pipes, folder)
            yield Subject(transport=module.fifo_transport(folder), peer=peer, refuse=refuse, max_line_bytes=65536, absorbs=2**20)
            tasks.cancel_scope.cancel()


def refuse_pipes(folder: Path, refusing: bool) -> None:
    """Take away the pipe that is opened last, or bring it back."""
    (folder / ("in" if refusing else "away")).rename(folder / ("away" if refusing else "in"))


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no named pipes in folders")
def test_the_transport_over_named_pipes_keeps_the_contract() -> None:
    report = run_conformance(fifos)
    report.raise_for_failures()
    assert {(row.clause, row.reason) for row in report.excluded} == {
        (clause, Reason.CANNOT_BREAK)
        for clause in ("ready.not-when-broken", "write.broken-stays-broken", "read.failure-after-last-message")
    }


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no named pipes in folders")
async def test_a_named_pipe_whose_other_side_has_gone_says_so_to_the_writer(tmp_path: Path) -> None:
    for pipe in ("in", "out"):
        os.mkfifo(tmp_path / pipe)
    module = example("own_fifos")
    with anyio.fail_after(30):
        here = await module.Fifos(tmp_path / "in", tmp_path / "out").connect()
        async with here:
            await here.send(b"nobody is there yet")
            there = await module.Fifos(tmp_path / "out", tmp_path / "in").connect()
            async with there:
                await there.send(b"hello")
                assert await here.receive() == b"hello"
                assert await there.receive() == b"nobody is there yet"
            with pytest.raises(anyio.BrokenResourceError):
                await here.send(b"is anybody there?")


# ------------------------------------------------------------------------------------------------------------- many sessions


async def test_no_more_prompts_run_at_once_than_there_are_places_and_each_end_frees_one() -> None:
    module = example("many_sessions")
    places = anyio.CapacityLimiter(3)
    claudes = [ct.MockTransport([can_use_tool("Bash", {}), result(f"answer {number}")]) for number in range(6)]
    may_answer = [anyio.Event() for _ in claudes]
    may_close = anyio.Event()

    def running() -> list[bool]:
        return [any(message["type"] == "user" for message in claude.written) for claude in claudes]

    async def converse(number: int) -> None:
        async def allow(*_: Any) -> ct.Allow:
            await may_answer[number].wait()
            return ct.Allow()

        async with ct.Query(module.AtMost(claudes[number], places), can_use_tool=allow) as query:
            await (await query.send("Hello")).result()
            await may_close.wait()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(len(claudes)):
                tasks.start_soon(converse, number)
            await anyio.wait_all_tasks_blocked()
            assert sum(running()) == 3
            may_answer[running().index(True)].set()
            await anyio.wait_all_tasks_blocked()
            assert sum(running()) == 4
            for event in (*may_answer, may_close):
                event.set()
    assert (sum(running()), places.borrowed_tokens) == (6, 0)


async def test_a_prompt_that_is_withdrawn_or_never_answered_leaves_its_place_with_the_session() -> None:
    places = anyio.CapacityLimiter(1)
    with anyio.fail_after(30):
        async with ct.Query(example("many_sessions").AtMost(ct.MockTransport([can_use_tool("Bash", {})]), places)) as query:
            await query.send("Hello")
            assert places.borrowed_tokens == 1
        assert places.borrowed_tokens == 0
