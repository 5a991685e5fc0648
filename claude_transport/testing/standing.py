"""`Standing`: how far a script, tape, fake or API has come. `Judge`: whether a test that has passed may pass, and what its report says.

Every fixture of the plugin makes its things here known, by a function that returns their standings. What failed first counts, also when
the code under test has caught the error. What is left over counts once nothing more can be played.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.text.printable import printable

_SHOWN_CHARS = 300
_SHOWN_CALLS = 3
_SHOWN_STANDINGS = 4


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far one script, tape, fake or API has come: what the report of a test says of it.

    * `name` says what it is, `whereabouts` its step and what it waits for, `received_last` the last line of the program under test.
    * `calls` are the runs of a fake program, each in a line; `stderr` is the end of what the last one wrote to standard error.
    * `failure` is the first thing that went wrong, `leftover` what is missing when nothing more comes. `is_over` is True when nothing more
      will come, so that the end of the test function is the time to say so.
    """

    name: str
    whereabouts: str
    received_last: str = ""
    calls: tuple[str, ...] = ()
    stderr: str = ""
    failure: Exception | None = None
    leftover: Exception | None = None
    is_over: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report."""
        yield _short(f"{self.name}: {self.whereabouts}")
        if self.received_last:
            yield _short(f"  received last: {self.received_last}")
        for call in self.calls[-_SHOWN_CALLS:]:
            yield _short(f"  {call}")
        said = self.stderr.strip().splitlines()
        if said:
            yield _short(f"  standard error: {said[-1]}")


Standings = Callable[[], Sequence[Standing]]


class Judge:
    """Knows all that the fixtures of one test have made. With `strict`, a test fails when any of it does."""

    def __init__(self, *, strict: bool) -> None:
        self.strict: bool = strict
        self._watched: list[Standings] = []
        self._callbacks: list[ExpectationFailed] = []
        self._verdict: tuple[Exception, Standing | None] | None = None

    def watch(self, standings: Standings) -> None:
        """Judge by these standings, too."""
        self._watched.append(standings)

    def freeze(self, standings: Standings) -> None:
        """Keep what these standings are now: the things that they tell of are about to go."""
        now = tuple(standings())
        self._watched = [(lambda: now) if watched == standings else watched for watched in self._watched]

    def watching_callbacks(self) -> AbstractContextManager[None]:
        """Note every callback that fails inside the block. The program under test goes on after that, and the CLI hears a denial."""
        from claude_transport.exchange.failures import watching_callbacks

        return watching_callbacks(self._note_callback)

    def _note_callback(self, name: str, error: BaseException | None, what: str) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1:] if error is not None else []
        at = "".join(f" at {frame.filename.replace(chr(92), '/').rpartition('/')[2]}:{frame.lineno}" for frame in where)
        actual = what if error is None else f"{type(error).__name__}: {error}{at}"
        failed = ExpectationFailed.at(name.rstrip(","), expected="a callback that does not fail", actual=actual)
        failed.__cause__ = error
        self._callbacks.append(failed)

    def verdict(self, *, only: Standings | None = None) -> Exception | None:
        """Return why a test that has come to its end must not pass; None when it may, and always without `strict`.

        With `only` these standings, after which nothing more comes, all that they leave over counts.
        """
        if not self.strict:
            return None
        standings = self._all() if only is None else only()
        self._verdict = self._failed(standings) or next(
            (
                (standing.leftover, standing)
                for standing in standings
                if standing.leftover is not None and (standing.is_over or only is not None)
            ),
            None,
        )
        return None if self._verdict is None else self._verdict[0]

    def report(self) -> list[str]:
        """Return the lines of the section for a failed test. What has failed first comes last, where a reader begins."""
        standings = self._all()
        problem, culprit = self._verdict or self._failed(standings) or (None, None)
        others = [standing for standing in standings if culprit is None or standing.name != culprit.name]
        others.sort(key=lambda standing: not standing.is_over)  # a hang is about what may still wait for something
        lines = [line for standing in others[-_SHOWN_STANDINGS:] for line in standing.lines()]
        if culprit is not None:
            lines += culprit.lines()
        return lines if problem is None else [*lines, f"failed: {printable(str(problem))}"]

    def _all(self) -> list[Standing]:
        return [standing for standings in self._watched for standing in standings()]

    def _failed(self, standings: Sequence[Standing]) -> tuple[Exception, Standing | None] | None:
        """Return the first failure, and which of the standings has it. A callback fails before what that leads to."""
        if self._callbacks:
            return self._callbacks[0], None
        return next(((standing.failure, standing) for standing in standings if standing.failure is not None), None)


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
