"""Shared fixtures. Every async test runs on asyncio and on trio: `anyio_mode = "auto"` plus the parametrised backend below."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import row_maps
from cli_under_test import lacking, mismatches, version_under_test
from hypothesis import HealthCheck, settings

E2E = Path(__file__).parent / "e2e"
MOST_ON_AN_OLD_CLI = 40  # tests in each run of CI, two minutes
TESTS_BETWEEN_FREEZES = 250

# The same examples in every run, however slow the machine is. `--hypothesis-profile=search` looks for new ones.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", settings.get_profile("search"), derandomize=True)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=10)
settings.load_profile("suite")


@pytest.fixture(params=row_maps.LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of the test: each async test runs once per backend."""
    return str(request.param)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--claude-binary PATH`: the CLI that the e2e tests run, not the one inside claude-agent-sdk. `--codex-binary PATH`: the Codex."""
    parser.addoption("--claude-binary", metavar="PATH", help="run the e2e tests on this claude binary")
    parser.addoption("--acp-agent", metavar="PATH", help="run the test of an ACP agent on this index.js of claude-agent-acp")
    parser.addoption("--ajv", metavar="FOLDER", help="compare with the ajv in the node_modules of this folder")
    parser.addoption("--typescript-sdk", metavar="FOLDER", help="use the claude-agent-sdk in the node_modules of this folder as a host")
    parser.addoption("--codex-binary", metavar="PATH", help="run the tests of Codex on this codex binary; also the variable CODEX_BINARY")


def pytest_configure() -> None:
    """Let children hear what a terminal's do: a run in the background, or under nohup, ignores some signals, and so would they."""
    for name, handler in {"SIGINT": signal.default_int_handler, "SIGQUIT": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}.items():
        if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    # The CLI lists no file that git ignores, and takes the settings and the worktrees of the repository that it is in.
    if Path(tempfile.gettempdir()).resolve().is_relative_to(Path(__file__).resolve().parent.parent):
        raise pytest.UsageError(f"temporary files are in this repository ({tempfile.gettempdir()}): set TMPDIR to another folder")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the files that `-m e2e`, or its opposite, leaves out: a process that runs one test in twenty saves their time."""
    asked = str(config.getoption("markexpr")).removesuffix(" and not nightly")
    if asked == "not e2e":
        return True if collection_path == E2E else None
    if asked == "e2e" and collection_path.match("test_*.py") and not collection_path.is_relative_to(E2E):
        return None if "mark.e2e" in collection_path.read_text("utf-8") else True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a test on one of the two event loops to the nightly run: which one, its name decides.

    That concerns end-to-end tests, unless they are marked `both_loops`, and tests marked `one_loop`, as all are that start the program
    (tests/app/conftest.py). A proof of a row stays on both loops. Tests without a CLI show on both loops what the library does with its
    lines.
    """
    if "nightly" not in str(config.getoption("markexpr")):
        return
    of_e2e = [item for item in items if item.get_closest_marker("e2e") and not item.get_closest_marker("both_loops")]
    once = {item.nodeid: item for item in (*of_e2e, *(item for item in items if item.get_closest_marker("one_loop")))}
    for nodeid in row_maps.left_to_the_night(once):
        once[nodeid].add_marker(pytest.mark.nightly)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a behaviour which this CLI does not have."""
    missing = [feature for feature in lacking(item) if feature.kind == "behaviour"]
    if missing:
        names = ", ".join(f"{feature.name} (since {feature.since})" for feature in missing)
        pytest.skip(f"claude {version_under_test(item.config)} has not: {names}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Where the CLI lacks what a test needs, have it end in the refusal that the library promises."""
    missing = {feature.name for feature in lacking(pyfuncitem)}
    if not missing:
        return (yield)
    version = version_under_test(pyfuncitem.config)
    try:
        yield
    except BaseException as error:
        if any(refusal.flag in missing and refusal.version == version for refusal in mismatches(error)):
            return True
        raise
    pytest.fail(f"nothing was refused, although claude {version} lacks {', '.join(sorted(missing))}", pytrace=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hold the tests for an old CLI to their number, and then keep the garbage collector off what stays.

    Thousands of collected tests are no garbage until the run ends, so what they consist of is taken out of every later collection.
    Without this, a test that collects garbage after each of its steps looks through all of them again, a third of a second each time.
    (Hypothesis must be imported by now: it searches for references to trio's random numbers, and frozen objects are not searched.)
    """
    if session.config.getoption("markexpr") == "version_sensitive" and len(session.items) > MOST_ON_AN_OLD_CLI:
        pytest.exit(f"{len(session.items)} tests are marked version_sensitive; CI has room for {MOST_ON_AN_OLD_CLI}", returncode=1)
    gc.collect()
    gc.freeze()


_run = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Freeze again now and then: pytest keeps three reports of each test, so a full collection late in a run took five times as long."""
    result = yield
    if next(_run) % TESTS_BETWEEN_FREEZES == 0:
        gc.collect()
        gc.freeze()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a proof of a requirement's row that is skipped where CI is set: what is not run there proves nothing."""
    report: Any = yield
    if report.skipped and os.environ.get("CI") and row_maps.proof_of(item.nodeid) in row_maps.proofs():
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} proves a row of the requirements, and is not skipped where CI is set: {report.longrepr}"
    return report  # type: ignore[no-any-return]
