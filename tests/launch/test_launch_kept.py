"""A launch is built once for the same options, environment and binary; what has changed since is never overlooked."""

# A block that pytest or a cancel scope leaves by an exception has bound what stands before it.
# pyright: reportPossiblyUnboundVariable=false
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.launch import launch as module
from claude_transport.launch.launch import Launch, plan_launch
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.validation import check_alone
from claude_transport.transports.subprocess import SubprocessTransport


@pytest.fixture
def cli(tmp_path: Path) -> str:
    """A program that can be executed."""
    path = tmp_path / "claude"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[ClaudeOptions]:
    """The options of each launch that was really built."""
    options: list[ClaudeOptions] = []
    build = module.build_launch

    def building(given: ClaudeOptions, **kwargs: Any) -> Launch:
        options.append(given)
        return build(given, **kwargs)

    monkeypatch.setattr(module, "build_launch", building)
    return options


def plan(options: ClaudeOptions, **inherited: str) -> Launch:
    return plan_launch(options, inherited=inherited).launch


def test_the_same_options_are_checked_and_built_once(cli: str, built: list[ClaudeOptions]) -> None:
    launches = [plan(ClaudeOptions(cli_path=cli, model="m", env={"A": "1"}, add_dirs=["/d"]), B="2") for _ in range(3)]
    assert launches[0] == launches[1] == launches[2]
    assert len(built) == 1


def test_options_are_checked_once_for_the_transport_and_its_start(cli: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[ClaudeOptions] = []

    def checking(options: ClaudeOptions) -> None:
        checked.append(options)
        check_alone(options)

    monkeypatch.setattr("claude_transport.launch.launch.check_alone", checking)
    rules = ["Read(//once)"]
    for _ in range(3):
        options = ClaudeOptions(cli_path=cli, allowed_tools=rules)
        SubprocessTransport(options)
        plan(options, B="2")
    assert checked == [ClaudeOptions(cli_path=cli, allowed_tools=rules)]
    rules.append("x),Bash(*")  # changed in place after the transport was made
    with pytest.raises(ConfigurationError, match="not one permission rule"):
        plan(options, B="2")


def test_what_a_caller_does_with_a_launch_changes_no_later_one(cli: str, built: list[ClaudeOptions]) -> None:
    first = plan(ClaudeOptions(cli_path=cli, title="t"), B="2")
    first.env["B"] = "3"
    first.initialize.clear()
    second = plan(ClaudeOptions(cli_path=cli, title="t"), B="2")
    assert (second.env["B"], second.initialize) == ("2", {"title": "t"})
    assert len(built) == 1


def test_another_environment_makes_another_launch(cli: str) -> None:
    options = ClaudeOptions(cli_path=cli)
    assert [plan(options, B=value).env["B"] for value in ("2", "3", "2")] == ["2", "3", "2"]


def test_options_that_were_changed_in_place_make_another_launch(cli: str) -> None:
    env, rules = {"A": "1"}, ["Read"]
    options = ClaudeOptions(cli_path=cli, env=env, allowed_tools=rules)
    plan(options)
    env["A"] = "2"
    rules.append("Write")
    changed = plan(options)
    assert changed.env["A"] == "2"
    assert any("Write" in argument for argument in changed.argv)


def test_a_value_that_is_equal_but_wrong_is_refused_all_the_same(cli: str) -> None:
    plan(ClaudeOptions(cli_path=cli, max_turns=1))
    with pytest.raises(ConfigurationError, match="max_turns"):
        plan(ClaudeOptions(cli_path=cli, max_turns=True))


@pytest.mark.parametrize("option", ["settings", "mcp_servers"])
def test_files_are_read_each_time(option: str, cli: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"mcpServers": {}}')
    options = ClaudeOptions(cli_path=cli, **{option: str(path)})  # type: ignore[arg-type]
    plan(options)
    path.write_text("no JSON")
    with pytest.raises(ConfigurationError, match="JSON"):
        plan(options)


def test_a_prompt_file_that_has_gone_is_noticed(cli: str, tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text("Be brief.")
    options = ClaudeOptions(cli_path=cli, system_prompt={"type": "file", "path": str(path)})
    plan(options)
    path.unlink()
    with pytest.raises(ConfigurationError, match="there is no file"):
        plan(options)


def test_a_relative_directory_follows_the_working_directory(cli: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ClaudeOptions(cli_path=cli, cwd=".")
    places = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        places.append(plan(options).env["PWD"])
    assert places == [str(tmp_path / "one"), str(tmp_path / "two")]


def test_many_different_options_and_long_texts_are_not_kept(cli: str, built: list[ClaudeOptions]) -> None:
    for name in map(str, range(40)):
        plan(ClaudeOptions(cli_path=cli, model=name))
    plan(ClaudeOptions(cli_path=cli, model="0"))
    assert len(built) == 41
    for _ in range(2):
        plan(ClaudeOptions(cli_path=cli, append_system_prompt="x" * 100_000))
    assert len(built) == 43


def test_an_environment_that_was_changed_in_place_makes_another_launch(cli: str) -> None:
    options, inherited = ClaudeOptions(cli_path=cli), {"B": "2"}
    plan_launch(options, inherited=inherited)
    inherited["B"] = "3"
    assert plan_launch(options, inherited=inherited).launch.env["B"] == "3"
