"""What the tests of the program share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program_process import Program
from program_terminal import Terminal
from warm_program import WarmProgram

from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that starts the program as `one_loop`: the loop is in the other process, and both are tested without one."""
    for item in items:
        if item.path.is_relative_to(HERE) and "program" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.one_loop)


@pytest.fixture(scope="session")
def warm() -> Iterator[Callable[[], WarmProgram] | None]:
    """Returns the process that forks for each run of the program, which the first call starts; None where there are no such sockets."""
    started: list[WarmProgram] = []

    def start() -> WarmProgram:
        if not started:
            started.append(WarmProgram(Program(Path("/")).env))
        return started[0]

    yield start if sys.platform == "linux" else None
    for each in started:
        each.close()


@pytest.fixture
def program(tmp_path: Path, warm: Callable[[], WarmProgram] | None) -> Program:
    """The program, with an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return Program(home, warm)


@pytest.fixture
def play() -> Iterator[Callable[..., FakeClaude]]:
    """`play(scenario)`: a fake claude; its `str(fake.path)` is for `--cli-path`."""
    fakes: list[FakeClaude] = []

    def start(scenario: Scenario, **options: object) -> FakeClaude:
        fakes.append(FakeClaude(scenario, **options))  # type: ignore[arg-type]
        return fakes[-1]

    yield start
    for fake in fakes:
        fake.close()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal of 80 columns, with nothing on it yet."""
    opened = Terminal()
    yield opened
    os.close(opened.master)
