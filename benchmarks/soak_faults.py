"""The faults of the soak. Each is a family of scenarios, varied by a seed, with the errors that a session may end with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from claude_transport.testing import Scenario
from claude_transport.testing.scenario import Answer, Turn
from claude_transport.testing.steps import (
    BigLine,
    CloseStdout,
    DieBySignal,
    EmitRaw,
    Exit,
    Flood,
    ForkGrandchild,
    Hang,
    IgnoreSignal,
    Noise,
    Result,
    StderrFlood,
    Step,
    StopReading,
    Text,
)

__all__ = ["FAULTS", "MAX_LINE_BYTES", "Fault"]

MAX_LINE_BYTES = 200_000
"""The line limit in the soak: small, so that longer lines are cheap."""

_LINGERS = 1000.0  # seconds that a grandchild lives unless it is killed: longer than any soak


@dataclass(frozen=True)
class Fault:
    """A fault: its name, the function that makes a scenario of a random generator, and what to expect.

    `harmless`: a session that is read to its end has no error. `patience`: seconds after which a session leaves, because this
    peer never ends a turn, or never exits. `initialize_timeout`: seconds that it gets for its first answer.
    """

    name: str
    build: Callable[[random.Random], Scenario]
    harmless: bool = False
    patience: float = 20.0
    initialize_timeout: float = 20.0


def _turn(*before: Step, after: tuple[Step, ...] = ()) -> Scenario:
    """Return a scenario of one answer and what happens around it."""
    return Scenario(otherwise=Turn((*before, Text("The answer."), Result(), *after)))


def _noise(rng: random.Random) -> Scenario:
    lines = tuple(Noise("[debug] " + "x" * rng.randrange(200)) for _ in range(rng.randint(1, 20)))
    return Scenario(startup=lines, otherwise=_turn(*lines).otherwise)


def _bad_lines(rng: random.Random) -> Scenario:
    bad = [b'{"type":"assistant","message":\n', b"\xff\xfe\x00\n", b"[1,2]\n", b"\n \r\n", b'{"type":"zzz","t":"\\ud83d"}\n', b"null\n"]
    rng.shuffle(bad)
    return _turn(EmitRaw(b"".join(bad), chunk_size=rng.randint(1, 40)))


def _huge_line(rng: random.Random) -> Scenario:
    return _turn(BigLine(rng.randint(MAX_LINE_BYTES // 2, MAX_LINE_BYTES * 4)))


def _flood(rng: random.Random) -> Scenario:
    return _turn(Flood(rng.randint(1000, 300_000)))


def _stderr_flood(rng: random.Random) -> Scenario:
    return _turn(StderrFlood(rng.randint(100_000, 1_000_000), line_size=rng.choice([None, 80])))


def _truncated_tail(rng: random.Random) -> Scenario:
    tail = '{"type":"assistant","message":{"content":"ä\u2028😀"}}'.encode()
    return _turn(after=(EmitRaw(tail[: rng.randint(1, len(tail) - 1)]), Exit(rng.choice([0, 0, 7]))))


def _grandchild(rng: random.Random) -> Scenario:
    fork = ForkGrandchild(_LINGERS, holds_stdout=True, own_session=rng.random() < 0.5)
    return _turn(fork, after=(Exit(rng.choice([0, 3])),))


def _dies_mid_turn(rng: random.Random) -> Scenario:
    end = rng.choice([DieBySignal("SIGKILL"), DieBySignal("SIGSEGV"), DieBySignal("SIGTERM"), Exit(0), Exit(1), Exit(137)])
    return Scenario(otherwise=Turn((Text("Half an ans"), end)))


def _dies_at_start(rng: random.Random) -> Scenario:
    return Scenario(startup=(StderrFlood(2000), rng.choice([DieBySignal("SIGKILL"), Exit(0), Exit(1), Exit(127)])))


FAULTS = (
    Fault("none", lambda rng: Scenario.text("word " * rng.randint(1, 50)), harmless=True),
    Fault("output in small pieces", lambda rng: Scenario(chunk_size=rng.randint(7, 100)), harmless=True),
    Fault("noise on stdout", _noise, harmless=True),
    Fault("bad lines", _bad_lines, harmless=True),
    Fault("huge line", _huge_line, harmless=True),
    Fault("flood of partial messages", _flood, harmless=True),
    Fault("flood on stderr", _stderr_flood, harmless=True),
    Fault("truncated tail", _truncated_tail),
    Fault("exit code", lambda rng: Scenario(exit_code=rng.randint(1, 255))),
    Fault("dies in the middle of a turn", _dies_mid_turn),
    Fault("dies at the start", _dies_at_start),
    Fault("never answers initialize", lambda _: Scenario(answers={"initialize": Answer(never=True)}), initialize_timeout=0.2),
    Fault("ignores SIGTERM and never leaves", lambda _: Scenario(startup=(IgnoreSignal("SIGTERM"),), at_eof=(Hang(),)), patience=0.3),
    Fault("hangs in the middle of a turn", lambda _: Scenario(otherwise=Turn((Text("Half an ans"), Hang()))), patience=0.3),
    Fault("reads no input", lambda _: Scenario(startup=(StopReading(),)), patience=0.2),
    Fault("closes stdout and lives on", lambda _: Scenario(otherwise=Turn((Text("The answer."), CloseStdout(), Hang())))),
    Fault("grandchild holds the pipes", _grandchild),
)
