"""The pytest plugin: fixtures for tests of programs that talk to Claude (entry point `pytest11`).

pytest loads it at every start where this package is installed. Therefore each fixture imports what it needs only when a test uses it.

One `Judge` for each test knows what its fixtures have made. It fails a test that should not pass, and writes a section of the report of
every failed one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from claude_transport.testing.judging import JUDGE, PASSED, PROBLEM, closing, fail, is_async, judge_of, judged, making, serving_in_a_thread

if TYPE_CHECKING:
    from claude_transport.testing.fake_claude import FakeClaude, MakeFakeClaude
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI
    from claude_transport.testing.mock_claude import MockClaude
    from claude_transport.testing.scenario import Scenario
    from claude_transport.testing.tape_shelf import TapeShelf


_MODES = ("none", "once", "new", "all", "rewrite")
_SECTION = "claude_transport"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--claude-record` and the setting `claude_strict`."""
    parser.addini(
        "claude_strict",
        "fail a test whose scripts, tapes, fakes or callbacks have failed, or were not played to their end (default: true)",
        type="bool",
        default=True,
    )
    group = parser.getgroup("claude", "claude_transport")
    group.addoption(
        "--claude-record",
        choices=_MODES,
        default=None,
        help="mode of the fixture claude_tape: none: only replay (the default, unless CLAUDE_TRANSPORT_TAPES says otherwise); once: record "
        "missing tapes; new: and those that cannot be replayed; all: record every tape again, and keep the new one only if its test "
        "passes; rewrite: as all, without the old tape",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "claude_lenient: the fixtures of claude_transport neither fail this test nor what it plays with")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget an earlier run of the same test."""
    keys: Any = (JUDGE, PASSED, PROBLEM)
    for key in keys:
        if key in item.stash:
            del item.stash[key]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that has come to its end although something that it plays with has failed."""
    result = yield
    judge = item.stash.get(JUDGE, None)
    problem = None if judge is None else judge.verdict()
    if problem is not None:
        fail(item, problem)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself passed, for the teardown of the fixtures. Say in the report of a failure where everything stands."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    judge = item.stash.get(JUDGE, None)
    if judge is not None and report.failed:
        if call.excinfo is not None and call.excinfo.value is item.stash.get(PROBLEM, None) and call.excinfo.value.__cause__ is None:
            report.longrepr = call.excinfo.getrepr(style="value")  # the lines of this plugin say nothing about it
        lines = judge.report()
        if lines:
            _add_section(report, "\n".join(lines), shown=item.config.getoption("showcapture", "all") == "all")
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Have `pytest-timeout` say where everything stands before its method `thread` ends the process, and with it every report.

    Its method `signal` fails the test, whose report has our section.
    """
    import threading

    if settings.method == "signal" and threading.current_thread() is threading.main_thread():
        return None
    import pytest_timeout  # type: ignore[import-not-found,import-untyped,unused-ignore] # pyright: ignore[reportMissingImports]

    def expire() -> None:
        try:
            _write_section(item)
        finally:
            pytest_timeout.timeout_timer(item, settings)

    timer = threading.Timer(settings.timeout, expire)
    timer.daemon = True
    item.cancel_timeout = timer.cancel  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue] # read by that plugin
    timer.start()
    return True


def _write_section(item: pytest.Item) -> None:
    """Write our section to the terminal, in the middle of a test."""
    judge = item.stash.get(JUDGE, None)
    capture: Any = item.config.pluginmanager.getplugin("capturemanager")
    if judge is not None:
        lines = judge.report()
        if capture is not None:
            capture.suspend_global_capture()
        terminal = item.config.get_terminal_writer()
        terminal.sep("-", title=_SECTION)
        terminal.write("".join(f"{line}\n" for line in lines))


def _add_section(report: Any, text: str, *, shown: bool) -> None:
    """Add our section behind all others. With `--show-capture` it would not be shown there, and becomes a part of the error."""
    if shown or not hasattr(report.longrepr, "addsection"):
        report.sections.append((_SECTION, text))
    else:
        report.longrepr.addsection(_SECTION, text)


@pytest.fixture
def mock_claude(request: pytest.FixtureRequest) -> Iterator[MockClaude]:
    """Make `MockTransport`s: `mock_claude(responses)`, or `mock_claude.script().expect(…).reply(…)`.

    A test fails when one of them got what was not expected, or was not played to its end.
    """
    from claude_transport.testing.mock_claude import MockClaude

    claude = MockClaude(strict=judge_of(request).strict)
    with judged(request, claude.standings):
        yield claude


@pytest.fixture
def fake_claude(request: pytest.FixtureRequest) -> Iterator[MakeFakeClaude]:
    """Make fake `claude` executables: `fake_claude(scenario).path`. Without a scenario it echoes. Its files go after the test.

    A test fails when a run got what the scenario does not expect, or when turns were not played.
    """
    from claude_transport.testing.fake_claude import FakeClaude
    from claude_transport.testing.scenario import Scenario

    def make(scenario: Scenario | Sequence[Scenario] | None = None, **options: Any) -> FakeClaude:
        return FakeClaude(scenario if scenario is not None else Scenario.echo(), **{"strict": judge_of(request).strict, **options})

    yield from making(request, make)


@pytest.fixture
def fake_messages_api(request: pytest.FixtureRequest) -> Iterator[FakeMessagesAPI]:
    """Give a test a running `FakeMessagesAPI`; `fake_messages_api.replace(script)` sets its script.

    A test fails when a request came for which the script has no reply left, or when replies were not asked for.

    Under anyio's pytest plugin, the server runs in the event loop of the test. For any other test it runs in a thread, as with `with`. An
    async test awaits the methods that wait; in a plain test, `call()` runs them. Needs `pip install 'claude-transport[testing]'`.
    """
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

    if is_async(request):
        yield request.getfixturevalue("_fake_messages_api_of_the_loop")
        return
    yield from serving_in_a_thread(request, FakeMessagesAPI(strict=judge_of(request).strict))


@pytest.fixture
async def _fake_messages_api_of_the_loop(anyio_backend: object, request: pytest.FixtureRequest) -> AsyncIterator[FakeMessagesAPI]:
    """Give the async test of `fake_messages_api` the server, in the event loop of the test."""
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

    api = FakeMessagesAPI(strict=judge_of(request).strict)
    with judged(request, api.standings), closing(request):
        async with api:
            yield api


@pytest.fixture
def claude_tape(request: pytest.FixtureRequest) -> Iterator[TapeShelf]:
    """Replay or record a tape: `claude_tape(lambda: SubprocessTransport(options))` returns the transport for the test.

    `claude_tape.cli_path(real)` does it for a host that starts `claude` by its path, such as the official SDKs.

    The tape is `tapes/<module>/<test>.ndjson` beside the test module. `--claude-record` sets the mode, or else the variable
    `CLAUDE_TRANSPORT_TAPES`: `record`, `replay`, `auto` (record what is missing) or `none` (the default; it replays). A recorded tape is
    kept when the test passed. A test fails when its program deviated from a tape, or when a tape was not replayed to the end.
    """
    from claude_transport.testing.tape_shelf import TapeShelf, mode_from_environment

    node = request.node
    shelf = TapeShelf(
        request.path.parent / "tapes" / request.path.stem,
        name=_tape_name(node),
        mode=request.config.getoption("--claude-record") or mode_from_environment(),
        command=f"pytest --claude-record=once {shlex.quote(node.nodeid)}",
        strict=judge_of(request).strict,
    )
    try:
        with judged(request, shelf.standings):
            yield shelf
    finally:
        shelf.finish(passed=node.stash.get(PASSED, False))


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
