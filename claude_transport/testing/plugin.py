"""The pytest plugin: fixtures for people who test programs that talk to Claude (entry point `pytest11`).

It is loaded at every pytest start where this package is installed, so a fixture imports what it needs when it is used.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from claude_transport.testing.fake_claude import FakeClaude
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI
    from claude_transport.testing.mock_claude import MockClaude
    from claude_transport.testing.tape_shelf import TapeShelf


_MODES = ("none", "once", "new", "all", "rewrite")
_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--claude-record`."""
    group = parser.getgroup("claude", "claude_transport")
    group.addoption(
        "--claude-record",
        choices=_MODES,
        default="none",
        help="what the fixture claude_tape does: none: only replay (the default); once: record tapes that are missing; new: and those that "
        "cannot be replayed; all: record everything anew, keep a new tape only if its test passes; rewrite: as all, without the old tape",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers whether the test itself passed, for fixtures that look at it when they are torn down."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture
def mock_claude(request: pytest.FixtureRequest) -> Iterator[MockClaude]:
    """Makes `MockTransport`s: `mock_claude(responses)`, or `mock_claude.script().expect(…).reply(…)`.

    When the test has passed, each script must have been played to its end.
    """
    from claude_transport.testing.mock_claude import MockClaude

    claude = MockClaude()
    yield claude
    if request.node.stash.get(_PASSED, False):
        claude.assert_exhausted()


@pytest.fixture
def fake_claude() -> Iterator[Callable[..., FakeClaude]]:
    """Makes fake `claude` executables: `fake_claude(scenario).path`; without a scenario, one that echoes. Their files go after the test."""
    from claude_transport.testing.fake_claude import FakeClaude
    from claude_transport.testing.scenario import Scenario

    made: list[FakeClaude] = []

    def make(scenario: Scenario | None = None, **options: object) -> FakeClaude:
        made.append(FakeClaude(scenario if scenario is not None else Scenario.echo(), **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for fake in made:
        fake.close()


@pytest.fixture
async def fake_messages_api(anyio_backend: object) -> AsyncIterator[FakeMessagesAPI]:
    """A running `FakeMessagesAPI` for an async test under anyio's pytest plugin; `fake_messages_api.replace(script)` scripts it."""
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

    async with FakeMessagesAPI() as api:
        yield api


@pytest.fixture
def claude_tape(request: pytest.FixtureRequest) -> Iterator[TapeShelf]:
    """Replays or records: `claude_tape(lambda: SubprocessTransport(options))` is the transport to test with.

    The tape is `tapes/<module>/<test>.ndjson` beside the test module. `--claude-record` says whether it is recorded. A recorded tape is
    kept when the test passed; a replayed one must have been played to its end.
    """
    from claude_transport.testing.tape_shelf import TapeShelf

    node = request.node
    shelf = TapeShelf(
        request.path.parent / "tapes" / request.path.stem,
        name=_tape_name(node),
        mode=str(request.config.getoption("--claude-record")),
        command=f"pytest --claude-record=once {shlex.quote(node.nodeid)}",
    )
    yield shelf
    shelf.finish(passed=node.stash.get(_PASSED, False))


def _tape_name(node: pytest.Function) -> str:
    """The names of the class and the test, and pytest's name for its parameters, without the event loop: its variants share a tape."""
    names = [node.cls.__name__] if node.cls is not None else []
    names.append(node.originalname)
    callspec = getattr(node, "callspec", None)
    if callspec is not None:
        backend = callspec.params.get("anyio_backend", "")
        loop = backend if isinstance(backend, str) else backend[0]
        parameters = re.sub(rf"(?:^|-){re.escape(loop)}[^-]*(?=-|$)", "", callspec.id, count=1) if loop else callspec.id
        names.append(parameters.strip("-"))
    return ".".join(name for name in names if name)
