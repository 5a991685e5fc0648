"""What the fixtures of the pytest plugins share: the judge of a test, and how a fake is made, watched and ended.

pytest loads it at every start, so it imports nothing that is not needed then.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from claude_transport.testing.standing import Judge, Standing, Standings

PASSED = pytest.StashKey[bool]()
"""Whether the test itself has passed."""
JUDGE: pytest.StashKey[Judge] = pytest.StashKey()
"""The judge of a test."""
PROBLEM: pytest.StashKey[Exception] = pytest.StashKey()
"""Why a test failed that had passed."""


def fail(item: pytest.Item, problem: Exception) -> NoReturn:
    """Raise `problem` for a test that has passed."""
    __tracebackhide__ = True
    item.stash[PROBLEM] = problem
    raise problem


def judge_of(request: pytest.FixtureRequest) -> Judge:
    """Return the judge of this test, which its fixtures share."""
    from claude_transport.testing.standing import Judge

    node = request.node
    if JUDGE not in node.stash:
        is_lenient = node.get_closest_marker("claude_lenient") is not None
        node.stash[JUDGE] = Judge(strict=not is_lenient and bool(request.config.getini("claude_strict")))
        callbacks = node.stash[JUDGE].watching_callbacks()
        callbacks.__enter__()
        node.addfinalizer(lambda: callbacks.__exit__(None, None, None))
    judge: Judge = node.stash[JUDGE]
    return judge


@contextlib.contextmanager
def judged(request: pytest.FixtureRequest, standings: Standings) -> Iterator[None]:
    """Have the test judged by these standings; when the block ends, what was not played fails a test that has passed."""
    judge = judge_of(request)
    judge.watch(standings)
    yield
    judge.freeze(standings)
    problem = judge.verdict(only=standings) if request.node.stash.get(PASSED, False) else None
    if problem is not None:
        fail(request.node, problem)


def making(request: pytest.FixtureRequest, make: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function that makes fake programs, which are judged and then closed."""
    made: list[Any] = []

    def add(*arguments: Any, **options: Any) -> Any:
        made.append(make(*arguments, **options))
        return made[-1]

    try:
        with judged(request, lambda: _numbered(made)):
            yield add
    finally:
        for fake in made:
            fake.close()


def _numbered(made: list[Any]) -> list[Standing]:
    """Return the standings of several fakes of one kind, each with its number."""
    import msgspec

    standings = [standing for fake in made for standing in fake.standings()]
    return [msgspec.structs.replace(standing, name=f"{standing.name} {number}") for number, standing in enumerate(standings, 1)]


def serving_in_a_thread(request: pytest.FixtureRequest, api: Any) -> Iterator[Any]:
    """Run a fake API for a test without an event loop, and have the test judged by it."""
    with judged(request, api.standings), closing(request), api:
        yield api


@contextlib.contextmanager
def closing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Swallow what a fake API raises at its end, namely what a scripted function raised: the judge knows that, too."""
    try:
        yield
    except Exception:
        if not judge_of(request).strict and request.node.stash.get(PASSED, False):
            raise


def is_async(request: pytest.FixtureRequest) -> bool:
    """Return whether anyio's plugin runs the test and our async fixtures in one event loop.

    During any other test, the loop of async fixtures stands still. Plugins in an automatic mode take those fixtures, but not this test.
    """
    for option in ("asyncio_mode", "trio_mode"):
        if str(_option(request.config, option)).lower() in {"auto", "true"}:
            return False
    test = request.function
    test = getattr(getattr(test, "hypothesis", None), "inner_test", test)
    return "anyio_backend" in request.fixturenames and inspect.iscoroutinefunction(test)


def _option(config: pytest.Config, name: str) -> object:
    """Return an option of another plugin, from the command line or the configuration; None when that plugin is not there."""
    try:
        return config.getoption(name, None) or config.getini(name)
    except ValueError:
        return None
