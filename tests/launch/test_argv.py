"""The command line: one form, each value bound to its flag, short whatever the options hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_transport.errors import ConfigurationError
from claude_transport.launch.argv import FIXED_ARGUMENTS, FLAGS, RESERVED_FLAGS, build_argv, check_length, effective_values
from claude_transport.launch.discovery import CLI
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.windows import COMMAND_LINE_BUDGET, command_line_length

KEY = {"ANTHROPIC_API_KEY": "sk-ant-fake"}

# Options whose value is free text: (option, flag). The others take numbers or choices, which validation holds.
TEXTS = {
    "model": "--model",
    "fallback_model": "--fallback-model",
    "advisor": "--advisor",
    "permission_prompt_tool_name": "--permission-prompt-tool",
    "agent": "--agent",
    "resume": "--resume",
    "resume_session_at": "--resume-session-at",
    "resume_drops_turn": "--resume-drops-turn",
    "name": "--name",
    "workload": "--workload",
    "debug": "--debug",
    "debug_file": "--debug-file",
    "project_config_root": "--project-config-root",
}
LISTS = {
    "betas": "--betas",
    "plugin_urls": "--plugin-url",
    "add_dirs": "--add-dir",
    "files": "--file",
}
RULES = {"tools", "allowed_tools", "disallowed_tools"}  # tried in test_rules.py: a text that is not one rule is refused
PATHS = {"settings": "--settings", "mcp_servers": "--mcp-config"}
CLOSED = {
    *("effort", "thinking", "max_thinking_tokens", "autocompact", "system_prompt_snapshot", "output_format", "permission_mode"),
    *("permission_prompts", "session_id", "max_turns", "max_budget_usd", "task_budget", "prompt_suggestions", "setting_sources"),
}

NASTY = ("-", "--", "--version", "-p", "--model=opus", 'a&b|c%PATH%"^d\ne', "$(id)`id`;", "=", "a=b", "*", "\\", '\\"', "{}", "ü\u2028")
texts = st.sampled_from(NASTY) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=200)


def arguments(environment: Any = None, **options: Any) -> list[str]:
    """What these options add to the smallest command line."""
    argv = build_argv(ClaudeOptions(**options), "claude", environment=KEY if environment is None else environment)
    assert argv[: len(FIXED_ARGUMENTS) + 1] == ["claude", *FIXED_ARGUMENTS]
    return argv[len(FIXED_ARGUMENTS) + 1 :]


def test_without_options_only_the_fixed_arguments_are_there() -> None:
    assert build_argv(ClaudeOptions(), CLI("/bin/claude", "PATH"), environment={}) == [
        *("/bin/claude", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")
    ]


def test_every_row_that_takes_text_is_tried_with_nasty_text() -> None:
    assert {row.option for row in FLAGS if row.form != "switch"} == {*TEXTS, *LISTS, *CLOSED, *RULES, "plugins", "extra_args"}


@pytest.mark.parametrize(("option", "flag"), TEXTS.items())
@settings(deadline=None)
@given(value=texts)
def test_a_value_is_one_argument_bound_to_its_flag_whatever_it_holds(option: str, flag: str, value: str) -> None:
    assert arguments(**{option: value}) == [f"{flag}={value}"]


@pytest.mark.parametrize(("option", "flag"), LISTS.items())
@settings(deadline=None)
@given(values=st.lists(texts, min_size=1, max_size=4))
def test_each_item_of_a_list_is_one_argument_bound_to_its_flag(option: str, flag: str, values: list[str]) -> None:
    assert arguments(**{option: values}) == [f"{flag}={value}" for value in values]


@settings(deadline=None)
@given(value=texts, name=st.from_regex(r"[a-z][a-z-]{0,20}", fullmatch=True))
def test_the_value_of_an_extra_argument_is_bound_to_its_flag(name: str, value: str) -> None:
    assert arguments(extra_args={name: value}) == [f"--{name}={value}"]


@pytest.mark.parametrize(("option", "flag"), PATHS.items())
@settings(deadline=None)
@given(value=texts)
def test_a_path_is_bound_to_its_flag_and_never_taken_for_inline_json(option: str, flag: str, value: str) -> None:
    if value.strip().startswith("{") and value.strip().endswith("}"):
        return  # that is inline JSON, and goes into a file
    (argument,) = arguments(**{option: value, "strict_mcp_config": False})
    assert argument in {f"{flag}={value}", f"{flag}=./{value}"}
    assert not argument.removeprefix(f"{flag}=").lstrip().startswith("{")


def test_nasty_values_reach_a_child_process_as_they_were_given(tmp_path: Path) -> None:
    echo = tmp_path / "echo.py"
    echo.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n", "utf-8")
    nasty = [value for value in NASTY if value.isascii()]  # what a child makes of other characters depends on its locale
    rules = [f"Odd({value})" for value in nasty if not value.endswith("\\") and ")" not in value]
    options = ClaudeOptions(name=NASTY[5], allowed_tools=rules, betas=nasty, add_dirs=nasty, extra_args=dict.fromkeys("abc", NASTY[5]))
    argv = build_argv(options, "claude", environment=KEY)
    seen = subprocess.run([sys.executable, str(echo), *argv[1:]], capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    assert json.loads(seen.stdout) == argv[1:]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fallback_model": ["a", "b"]}, ["--fallback-model=a,b"]),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, ["--thinking=adaptive", "--thinking-display=summarized"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, ["--max-thinking-tokens=2048"]),
        ({"thinking": {"type": "disabled"}}, ["--thinking=disabled"]),
        ({"max_thinking_tokens": 0}, ["--max-thinking-tokens=0"]),
        ({"system_prompt_snapshot": True}, ["--system-prompt-snapshot=on"]),
        ({"system_prompt_snapshot": False}, ["--system-prompt-snapshot=off"]),
        ({"tools": []}, ["--tools="]),
        ({"tools": {"type": "preset", "preset": "claude_code"}}, ["--tools=default"]),
        ({"tools": None}, []),
        ({"allowed_tools": []}, []),
        ({"chrome": True}, ["--chrome"]),
        ({"chrome": False}, ["--no-chrome"]),
        ({"debug": True}, ["--debug"]),
        ({"debug": "api,!mcp"}, ["--debug=api,!mcp"]),
        ({"setting_sources": []}, ["--setting-sources="]),
        ({"setting_sources": ["user", "local"]}, ["--setting-sources=user,local"]),
        ({"max_budget_usd": 5}, ["--max-budget-usd=5"]),
        ({"max_budget_usd": 2.50}, ["--max-budget-usd=2.5"]),
        ({"max_budget_usd": 100.0}, ["--max-budget-usd=100"]),
        ({"max_budget_usd": 1e-7}, ["--max-budget-usd=0.0000001"]),
        ({"max_budget_usd": 1e16}, ["--max-budget-usd=10000000000000000"]),
        ({"task_budget": {"total": 5000}}, ["--task-budget=5000"]),
        ({"autocompact": 500_000}, ["--autocompact=500000"]),
        ({"prompt_suggestions": True}, ["--prompt-suggestions=true"]),
        ({"plugins": [{"type": "local", "path": Path("p")}, {"type": "local", "path": "-q"}]}, ["--plugin-dir=p", "--plugin-dir=-q"]),
        ({"skills": "all"}, ["--allowedTools=Skill"]),
        ({"skills": ["a", "b:c"], "allowed_tools": ["Skill(a)"]}, ["--allowedTools=Skill(a)", "--allowedTools=Skill(b:c)"]),
        ({"skills": []}, []),
        ({"extra_args": {"x": None, "y": ""}}, ["--x", "--y="]),
        ({"output_format": {"type": "json_schema", "schema": {"type": "object"}}}, ['--json-schema={"type":"object"}']),
        ({"system_prompt": {"type": "preset", "preset": "claude_code", "snapshot": False}}, ["--system-prompt-snapshot=off"]),
        (
            {"system_prompt": {"type": "preset", "preset": "claude_code", "exclude_dynamic_sections": True}},
            ["--exclude-dynamic-system-prompt-sections"],
        ),
        ({"continue_conversation": True, "fork_session": True}, ["--continue", "--fork-session"]),
    ],
)
def test_an_option_becomes_its_arguments(options: dict[str, Any], expected: list[str]) -> None:
    assert arguments(**options) == expected


@pytest.mark.parametrize("row", [row for row in FLAGS if row.form == "switch" and row.flag not in {"--no-chrome", "--debug"}])
def test_a_switch_is_there_when_true_and_absent_when_false(row: Any) -> None:
    assert arguments(**{row.option: True}) == [row.flag]
    assert row.flag not in arguments(**{row.option: False})


def test_no_flag_of_the_table_is_one_that_extra_args_may_never_name() -> None:
    assert {row.flag.removeprefix("--") for row in FLAGS}.isdisjoint(RESERVED_FLAGS)


# ---------------------------------------------------------------------------------- rules that look at more than one option


def test_bare_is_dropped_with_a_note_when_the_child_has_no_key() -> None:
    values, notes = effective_values(ClaudeOptions(bare=True), environment={"CLAUDE_CODE_OAUTH_TOKEN": "x"})
    assert values["bare"] is False
    assert "--bare was dropped" in notes[0]
    assert arguments(environment={}, bare=True) == []


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"ANTHROPIC_API_KEY": "x"}, None),
        ({"ANTHROPIC_AUTH_TOKEN": "x"}, None),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, None),
        ({}, {"apiKeyHelper": "helper"}),
        ({}, {"env": {"ANTHROPIC_API_KEY": "x"}}),
        ({}, '{"apiKeyHelper": "helper"}'),
    ],
)
def test_bare_stays_when_a_credential_works_under_it(environment: dict[str, str], settings: Any) -> None:
    values, notes = effective_values(ClaudeOptions(bare=True, settings=settings), environment=environment)
    assert values["bare"] is True
    assert notes == ()


def test_bare_is_dropped_when_the_settings_empty_the_key_of_the_environment() -> None:
    options = ClaudeOptions(bare=True, settings={"env": {"ANTHROPIC_API_KEY": ""}})
    assert effective_values(options, environment={"ANTHROPIC_API_KEY": "x"})[0]["bare"] is False


def test_bare_stays_when_the_settings_that_may_hold_a_helper_are_on_another_machine() -> None:
    values, _ = effective_values(ClaudeOptions(bare=True, settings="/there/settings.json"), environment={}, remote=True)
    assert values["bare"] is True


@pytest.mark.parametrize("environment", [{"CLAUDE_CODE_USE_BEDROCK": "0"}, {"ANTHROPIC_API_KEY": ""}])
def test_a_switch_that_is_off_or_an_empty_key_is_no_credential(environment: dict[str, str]) -> None:
    assert effective_values(ClaudeOptions(bare=True), environment=environment)[0]["bare"] is False


def test_build_argv_decides_about_bare_by_the_environment_the_child_would_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake")
    assert "--bare" in build_argv(ClaudeOptions(bare=True), "claude")
    assert "--bare" not in build_argv(ClaudeOptions(bare=True, billing="subscription"), "claude")


@pytest.mark.parametrize(
    ("strict", "servers", "expected"),
    [
        (None, {"a": {"command": "x"}}, True),
        (None, {}, False),
        (None, "servers.json", True),
        (False, {"a": {"command": "x"}}, False),
        (True, {}, True),
    ],
)
def test_mcp_configuration_is_strict_when_servers_are_given_unless_told_otherwise(strict: Any, servers: Any, expected: bool) -> None:
    assert ("--strict-mcp-config" in arguments(strict_mcp_config=strict, mcp_servers=servers)) is expected


def test_mcp_servers_never_take_the_built_in_tools_away() -> None:
    assert not [argument for argument in arguments(mcp_servers={"a": {"command": "x"}}) if argument.startswith("--tools")]


def test_the_transport_names_who_answers_permission_prompts_unless_the_options_do() -> None:
    argv = build_argv(ClaudeOptions(), "claude", permission_prompt="stdio", environment={})
    assert "--permission-prompt-tool=stdio" in argv
    argv = build_argv(ClaudeOptions(permission_prompt_tool_name="mcp__a__b"), "claude", permission_prompt="stdio", environment={})
    assert [argument for argument in argv if "permission-prompt-tool" in argument] == ["--permission-prompt-tool=mcp__a__b"]


def test_files_that_a_transport_has_written_are_named_last() -> None:
    argv = build_argv(ClaudeOptions(name="n"), "claude", environment={}, files=[("--agents", "/run/a.json"), ("--settings", "{x.json")])
    assert argv[-3:] == ["--name=n", "--agents=/run/a.json", "--settings=./{x.json"]


# ------------------------------------------------------------------------------------------------------------------ length


def test_a_long_schema_leaves_the_command_line() -> None:
    schema = {"type": "object", "properties": {f"property_{index}": {"type": "string"} for index in range(20_000)}}
    assert arguments(output_format={"type": "json_schema", "schema": schema}) == []


@pytest.mark.parametrize(
    ("options", "flag"),
    [({"name": "n" * 9000}, "--name"), ({"plugin_urls": ["u" * 100] * 90}, "--plugin-url"), ({"tools": ["T" * 50] * 200}, "--tools")],
)
def test_what_finds_no_room_is_refused_by_name(options: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigurationError, match=flag) as caught:
        arguments(**options)
    assert caught.value.option == next(iter(options))


def test_the_limit_is_exact_and_counts_what_quoting_adds() -> None:
    fits = ["claude", "--name=" + "n" * (COMMAND_LINE_BUDGET - len("claude --name=") - 1)]
    assert command_line_length(fits) == COMMAND_LINE_BUDGET - 1
    check_length(fits)
    with pytest.raises(ConfigurationError):
        check_length([fits[0], fits[1] + "n"])
    with pytest.raises(ConfigurationError):
        check_length(fits, reserved=1)
    with pytest.raises(ConfigurationError):
        check_length([fits[0], fits[1][:-1] + '"'])


def test_an_argument_of_no_option_is_blamed_on_extra_args() -> None:
    with pytest.raises(ConfigurationError, match="--zzz") as caught:
        arguments(extra_args={"zzz": "z" * 9000})
    assert caught.value.option == "extra_args"
