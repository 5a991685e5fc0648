"""The pytest plugin: fixtures for tests of programs that talk to Claude (entry point `pytest11`).

pytest loads it at every start where this package is installed. Therefore each fixture imports what it needs only when a test uses it.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from claude_transport.testing.fake_claude import FakeClaude
    from claude_transport.testing.fake_codex import FakeCodex
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI
    from claude_transport.testing.fake_responses_api import FakeResponsesAPI
    from claude_transport.testing.mock_claude import MockClaude
    from claude_transport.testing.tape_shelf import TapeShelf


_MODES = ("none", "once", "new", "all", "rewrite")
_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--claude-record`."""
    group = parser.getgroup("claude", "claude_transport")
    group.addoption(
        "--claude-record",
        choices=_MODES,
        default="none",
        help="mode of the fixture claude_tape: none: only replay (the default); once: record missing tapes; new: and those that cannot be "
        "replayed; all: record every tape again, and keep the new one only if its test passes; rewrite: as all, without the old tape",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself passed, for the teardown of the fixtures."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture
def mock_claude(request: pytest.FixtureRequest) -> Iterator[MockClaude]:
    """Make `MockTransport`s: `mock_claude(responses)`, or `mock_claude.script().expect(…).reply(…)`.

    A test that passed fails when one of its scripts was not played to the end.
    """
    from claude_transport.testing.mock_claude import MockClaude

    claude = MockClaude()
    yield claude
    if request.node.stash.get(_PASSED, False):
        claude.assert_exhausted()


@pytest.fixture
def fake_claude() -> Iterator[Callable[..., FakeClaude]]:
    """Make fake `claude` executables: `fake_claude(scenario).path`. Without a scenario it echoes. Its files go after the test."""
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
def fake_messages_api(request: pytest.FixtureRequest) -> Iterator[FakeMessagesAPI]:
    """Give a test a running `FakeMessagesAPI`; `fake_messages_api.replace(script)` sets its script.

    An async test runs under anyio's pytest plugin. For any other test, the server runs in a thread, as with `with`: `call()` runs the
    methods that wait. Needs `pip install 'claude-transport[testing]'`.
    """
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

    if _is_async(request):
        yield request.getfixturevalue("_fake_messages_api_of_the_loop")
        return
    with FakeMessagesAPI() as api:
        yield api


@pytest.fixture
async def _fake_messages_api_of_the_loop(anyio_backend: object) -> AsyncIterator[FakeMessagesAPI]:
    """Give the async test of `fake_messages_api` the server, in the event loop of the test."""
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

    async with FakeMessagesAPI() as api:
        yield api


@pytest.fixture
def fake_codex() -> Iterator[Callable[..., FakeCodex]]:
    """Make fake `codex` executables: `fake_codex(scenario).path`. Without a scenario it echoes. Its files go after the test."""
    from claude_transport.testing.fake_codex import FakeCodex

    made: list[FakeCodex] = []

    def make(*arguments: object, **options: object) -> FakeCodex:
        made.append(FakeCodex(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for fake in made:
        fake.close()


@pytest.fixture
def fake_responses_api(request: pytest.FixtureRequest) -> Iterator[FakeResponsesAPI]:
    """Give a test a running `FakeResponsesAPI`; `fake_responses_api.replace(script)` sets its script.

    An async test runs under anyio's pytest plugin. For any other test, the server runs in a thread, as with `with`: `call()` runs the
    methods that wait. Needs `pip install 'claude-transport[testing]'`.
    """
    from claude_transport.testing.fake_responses_api import FakeResponsesAPI

    if _is_async(request):
        yield request.getfixturevalue("_fake_responses_api_of_the_loop")
        return
    with FakeResponsesAPI() as api:
        yield api


@pytest.fixture
async def _fake_responses_api_of_the_loop(anyio_backend: object) -> AsyncIterator[FakeResponsesAPI]:
    """Give the async test of `fake_responses_api` the server, in the event loop of the test."""
    from claude_transport.testing.fake_responses_api import FakeResponsesAPI

    async with FakeResponsesAPI() as api:
        yield api


@pytest.fixture
def claude_tape(request: pytest.FixtureRequest) -> Iterator[TapeShelf]:
    """Replay or record a tape: `claude_tape(lambda: SubprocessTransport(options))` returns the transport for the test.

    The tape is `tapes/<module>/<test>.ndjson` beside the test module. `--claude-record` sets the mode. A recorded tape is kept when the
    test passed. A test that passed fails when its tape was not replayed to the end.
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


def _is_async(request: pytest.FixtureRequest) -> bool:
    """Return whether anyio's plugin runs the test in an event loop. During any other test, the loop of async fixtures stands still."""
    test = request.function
    test = getattr(getattr(test, "hypothesis", None), "inner_test", test)
    return "anyio_backend" in request.fixturenames and inspect.iscoroutinefunction(test)


def _tape_name(node: pytest.Function) -> str:
    """Return the names of class, test and parameters. The event loop is left out, so that its variants share a tape."""
    names = [node.cls.__name__] if node.cls is not None else []
    names.append(node.originalname)
    callspec = getattr(node, "callspec", None)
    if callspec is not None:
        backend = callspec.params.get("anyio_backend", "")
        loop = backend if isinstance(backend, str) else backend[0]
        parameters = re.sub(rf"(?:^|-){re.escape(loop)}[^-]*(?=-|$)", "", callspec.id, count=1) if loop else callspec.id
        names.append(parameters.strip("-"))
    return ".".join(name for name in names if name)
