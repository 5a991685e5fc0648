"""A CLI that changes between two sessions is noticed; one that does not is not."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from claude_transport.errors import ClaudeTransportWarning
from claude_transport.launch.discovery import CLI, CLIChange, CLIPin, on_cli_change
from claude_transport.launch.options import ClaudeOptions
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario
from claude_transport.transports.subprocess import SubprocessTransport


def install(folder: Path, version: str | None, *, content: str = "x", modified: int = 1_000) -> CLI:
    """A claude as the official SDK's wheels hold it: the binary, and a file that says its version."""
    folder.mkdir(exist_ok=True)
    binary = folder / "claude"
    binary.write_text(content)
    os.utime(binary, ns=(modified, modified))
    (folder / "claude.version").write_text(version or "?")
    return CLI(str(binary), "PATH")


def test_s10_the_first_session_and_those_like_it_are_no_change(tmp_path: Path) -> None:
    pin = CLIPin()
    assert [pin.note(install(tmp_path / "a", "2.1.329")) for _ in range(3)] == [None, None, None]


def test_s10_another_version_in_the_same_place_is_a_change_and_told_once(tmp_path: Path) -> None:
    pin = CLIPin()
    cli = install(tmp_path / "a", "2.1.329")
    pin.note(cli)
    change = pin.note(install(tmp_path / "a", "2.1.330", modified=2_000))
    assert change is not None
    assert (change.before.version, change.now.version) == ("2.1.329", "2.1.330")
    assert str(change) == f"claude at {cli.path} was 2.1.329 and is 2.1.330"
    assert pin.note(cli) is None


def test_s10_the_same_version_written_again_is_no_change(tmp_path: Path) -> None:
    pin = CLIPin()
    pin.note(install(tmp_path / "a", "2.1.329"))
    assert pin.note(install(tmp_path / "a", "2.1.329", content="xy", modified=2_000)) is None


def test_s10_a_file_whose_version_nobody_knows_is_another_one_when_it_was_written_again(tmp_path: Path) -> None:
    pin = CLIPin()
    pin.note(install(tmp_path / "a", None))
    assert pin.note(install(tmp_path / "a", None)) is None
    change = pin.note(install(tmp_path / "a", None, content="xyz", modified=2_000))
    assert change is not None
    assert str(change).endswith("was replaced by another file")


def test_s10_another_place_is_a_change_only_for_who_asked_for_the_same(tmp_path: Path) -> None:
    pin = CLIPin()
    a, b = install(tmp_path / "a", "2.1.329"), install(tmp_path / "b", "2.1.329")
    assert pin.note(a, asked=a.path) is None
    assert pin.note(b, asked=b.path) is None
    assert pin.note(a) is None
    change = pin.note(b)
    assert change is not None
    assert str(change) == f"claude was 2.1.329 at {a.path} and is 2.1.329 at {b.path}"


def test_s10_a_binary_that_has_gone_is_left_to_the_spawn(tmp_path: Path) -> None:
    assert CLIPin().note(CLI(str(tmp_path / "nowhere"), "PATH")) is None


async def test_s10_a_session_with_pin_cli_tells_of_a_change_and_one_without_does_not(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[CLIChange] = []

    def listen(change: CLIChange) -> None:
        heard.append(change)
        raise KeyError("a listener that fails")

    stop = on_cli_change(listen)
    try:
        with FakeClaude(Scenario.echo()) as fake, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")

            async def session(*, pinned: bool) -> None:
                async with SubprocessTransport(ClaudeOptions(cli_path=str(fake.path), pin_cli=pinned)) as transport:
                    assert transport.info.cli_path == str(fake.path)

            await session(pinned=True)
            await session(pinned=True)
            assert heard == []
            os.utime(fake.path, ns=(1_000, 1_000))
            await session(pinned=False)
            assert heard == []
            await session(pinned=True)
            stop()
            os.utime(fake.path, ns=(2_000, 2_000))
            await session(pinned=True)
            (change,) = heard
            assert change.now.path == str(fake.path)
    finally:
        stop()
    told = [record.levelname for record in caplog.records if record.name == "claude_transport.launch.discovery"]
    assert told == ["ERROR"]  # of the listener
    assert ["although the option pin_cli expects the same one" in str(each.message) for each in warned] == [True, True]
    assert {each.category for each in warned} == {ClaudeTransportWarning}
