"""The whole launch: where the tables meet, what moves when there is no room, and that it is always short."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_transport.errors import ConfigurationError
from claude_transport.launch.argv import FIXED_ARGUMENTS, build_argv
from claude_transport.launch.discovery import CLI
from claude_transport.launch.launch import Launch, build_launch, needs_of
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import Delivery
from claude_transport.launch.windows import COMMAND_LINE_BUDGET, command_line_length

KEY = {"ANTHROPIC_API_KEY": "sk-ant-fake"}
BIG = "x" * 2**20
RULES = [f"Bash(command-{index}:*)" for index in range(2_000)]


def launch(delivery: Delivery = "files", *, inherited: dict[str, str] | None = None, platform: str = "linux", **options: Any) -> Launch:
    given = ClaudeOptions(**options)
    return build_launch(
        given, cli="claude", inherited=KEY if inherited is None else inherited, delivery=delivery, uid=1000, platform=platform
    )


def made(planned: Launch) -> Launch:
    """The launch after its files and directories were made, in a place with a long name."""
    folder = "/run/" + "d" * 200
    return planned.with_paths(
        files=[f"{folder}/{index}{file.suffix}" for index, file in enumerate(planned.files)],
        directories=[f"{folder}/{index}" for index, _ in enumerate(planned.directories)],
    )


def documents(planned: Launch) -> dict[str, Any]:
    return {file.flag: json.loads(file.content) for file in planned.files if file.suffix == ".json"}


def test_the_smallest_launch_is_the_fixed_arguments_and_nothing_else() -> None:
    planned = launch()
    assert planned.argv == ("claude", *FIXED_ARGUMENTS)
    assert (planned.cwd, planned.user, planned.files, planned.directories, planned.initialize, planned.notes) == (
        None,
        None,
        (),
        (),
        {},
        (),
    )


def test_program_directory_and_user_are_those_of_the_options() -> None:
    options = ClaudeOptions(cwd=Path("/srv"), user="nobody")
    planned = build_launch(options, cli=CLI("/opt/claude", "PATH"), inherited={})
    assert (planned.argv[0], planned.cwd, planned.user, planned.env["PWD"]) == ("/opt/claude", "/srv", "nobody", "/srv")


def test_the_flags_of_a_launch_are_those_of_build_argv() -> None:
    options = ClaudeOptions(model="haiku", max_turns=2, add_dirs=["a"], skills=["x"], bare=True)
    planned = build_launch(options, cli="claude", inherited=KEY, permission_prompt="stdio")
    assert list(planned.argv) == build_argv(options, "claude", permission_prompt="stdio", environment=KEY)


# ------------------------------------------------------------------------------------------------------ the rules


def test_bare_without_a_key_is_dropped_and_noted_and_with_one_it_stays() -> None:
    assert "--bare" in launch(bare=True).argv
    dropped = launch(bare=True, inherited={})
    assert "--bare" not in dropped.argv
    assert len(dropped.notes) == 1
    assert "--bare was dropped" in dropped.notes[0]


def test_bare_is_dropped_when_the_billing_policy_takes_the_key_away() -> None:
    assert "--bare" not in launch(bare=True, billing="subscription").argv


def test_mcp_servers_make_the_configuration_strict_and_leave_the_tools_alone() -> None:
    planned = launch(mcp_servers={"a": {"command": "x"}})
    assert "--strict-mcp-config" in planned.argv
    assert not [argument for argument in planned.argv if argument.startswith("--tools")]
    assert "--strict-mcp-config" not in launch(mcp_servers={"a": {"command": "x"}}, strict_mcp_config=False).argv


def test_partial_messages_are_asked_for_only_when_wanted() -> None:
    assert "--include-partial-messages" in launch(include_partial_messages=True).argv
    assert "--include-partial-messages" not in launch().argv


# ------------------------------------------------------------------------------------------------------ files or initialize


def test_files_are_planned_and_named_on_the_command_line_once_they_are_made() -> None:
    planned = launch(system_prompt="s", settings={"model": "opus"})
    assert [file.flag for file in planned.files] == ["--system-prompt-file", "--settings"]
    done = planned.with_paths(files=["/run/s.txt", "/run/a.json"])
    assert done.argv == (*planned.argv, "--system-prompt-file=/run/s.txt", "--settings=/run/a.json")
    assert done.files == ()


@pytest.mark.parametrize("delivery", ["files", "initialize"])
def test_agents_travel_in_initialize_which_every_supported_cli_reads(delivery: Any) -> None:
    planned = launch(delivery, agents={"a": {"description": "d", "prompt": "p"}})
    assert planned.initialize == {"agents": {"a": {"description": "d", "prompt": "p"}}}
    assert planned.files == ()
    assert planned.argv == ("claude", *FIXED_ARGUMENTS)


def test_a_launch_names_what_it_needs_of_the_cli_as_the_table_of_features_does() -> None:
    planned = launch(restricted=True, name="--safe-mode", append_subagent_system_prompt="s", skills=["a"], extra_args={"advisor": "opus"})
    needs = needs_of(planned)
    assert {"--restricted", "--name", "--advisor", "--append-subagent-system-prompt-file", "initialize.skills"} <= set(needs)
    assert "--safe-mode" not in needs


def test_the_number_of_paths_must_be_the_number_of_files() -> None:
    for files, directories in (([], []), (["a", "b"], []), (["a"], ["b"])):
        with pytest.raises(ValueError, match=r"zip\(\)"):
            launch(system_prompt="s").with_paths(files=files, directories=directories)


def test_for_another_machine_everything_travels_in_initialize_which_must_come_first() -> None:
    planned = launch("initialize", system_prompt="s", mcp_servers={"a": {"command": "x"}}, settings={"model": "opus"})
    assert planned.files == ()
    assert planned.initialize == {"systemPrompt": "s", "mcpServers": {"a": {"command": "x"}}, "settings": {"model": "opus"}}
    assert planned.initialize_first
    assert {"--await-initialize", "--initialize-fields=settings"} <= set(planned.argv)


def test_what_initialize_takes_without_being_announced_is_not_announced() -> None:
    planned = launch("initialize", system_prompt="s", agents={"a": {"description": "d", "prompt": "p"}})
    assert planned.argv == ("claude", *FIXED_ARGUMENTS)
    assert not planned.initialize_first


def test_awaiting_initialize_is_announced_once() -> None:
    planned = launch("initialize", settings={"model": "opus"}, await_initialize=True)
    assert planned.argv.count("--await-initialize") == 1
    assert launch(await_initialize=True).initialize_first


def test_a_private_configuration_is_a_planned_directory_and_a_note() -> None:
    planned = launch(isolated_config=True)
    assert [directory.variable for directory in planned.directories] == ["CLAUDE_CONFIG_DIR"]
    assert "login" in planned.notes[0]
    done = planned.with_paths(directories=["/run/config"])
    assert done.env["CLAUDE_CONFIG_DIR"] == "/run/config"
    assert "CLAUDE_CONFIG_DIR" not in planned.env


# --------------------------------------------------------------------------------------------------------- length

HUGE: dict[str, Any] = {
    "system_prompt": BIG,
    "append_system_prompt": BIG,
    "append_subagent_system_prompt": BIG,
    "plan_mode_instructions": BIG,
    "agents": {f"agent-{index}": {"description": "d", "prompt": BIG[:4096]} for index in range(256)},
    "mcp_servers": {f"server-{index}": {"command": "x", "args": [BIG[:4096]]} for index in range(256)},
    "settings": {"env": {"BIG": BIG}},
    "sandbox": {"ignore": [BIG]},
    "output_format": {"type": "json_schema", "schema": {"type": "object", "description": BIG}},
    "allowed_tools": RULES,
    "disallowed_tools": RULES,
    "add_dirs": [f"/srv/project-{index}" for index in range(2_000)],
    "skills": [f"skill-{index}" for index in range(2_000)],
    "title": BIG,
    "env": {"BIG": BIG},
    "managed_settings": {"env": {"BIG": BIG}},
    "mcp_servers_delivery": "initialize",
    "sdk_mcp_server_configs": {f"server-{index}": {"tools": [{"name": BIG[:4096]}]} for index in range(256)},
    "sdk_mcp_server_manifests": {f"server-{index}": {"initializeResult": {"instructions": BIG[:4096]}} for index in range(256)},
}


@pytest.mark.parametrize("delivery", ["files", "initialize"])
def test_a_thousand_plugins_fit_beside_everything_else(delivery: Delivery) -> None:
    plugins = [{"type": "local", "path": f"/srv/plugins/{index}/{BIG[:1000]}"} for index in range(1000)]
    done = made(launch(delivery, **HUGE, plugins=plugins, plugin_delivery="initialize"))
    assert command_line_length(done.argv) < COMMAND_LINE_BUDGET
    assert len(done.initialize["plugins"]) == 1000
    with pytest.raises(ConfigurationError) as caught:
        launch(delivery, plugins=plugins)
    assert caught.value.option == "plugins"


@pytest.mark.parametrize("delivery", ["files", "initialize"])
@pytest.mark.parametrize("chosen", [*([name] for name in HUGE), [*HUGE]], ids=[*HUGE, "all of them"])
def test_the_command_line_is_short_whatever_the_options_hold(chosen: list[str], delivery: Delivery) -> None:
    done = made(launch(delivery, **{name: HUGE[name] for name in chosen}))
    assert command_line_length(done.argv) < COMMAND_LINE_BUDGET == 8_000


def test_rules_that_find_no_room_move_into_the_settings_and_it_is_said() -> None:
    planned = launch(allowed_tools=RULES, disallowed_tools=["WebFetch"], settings={"permissions": {"allow": ["Read"]}})
    assert documents(planned)["--settings"]["permissions"] == {"allow": ["Read", *RULES]}
    assert not [argument for argument in planned.argv if argument.startswith("--allowedTools")]
    assert "--disallowedTools=WebFetch" in planned.argv
    assert planned.notes == ("allowed_tools did not fit on the command line and was moved into the settings",)


def test_rules_move_one_option_at_a_time_until_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"model": "opus"}', "utf-8")
    planned = launch(allowed_tools=RULES, disallowed_tools=RULES, add_dirs=[tmp_path] * 500, settings=tmp_path / "s.json")
    assert documents(planned)["--settings"] == {
        "model": "opus",
        "permissions": {"allow": RULES, "deny": RULES, "additionalDirectories": [str(tmp_path)] * 500},
    }
    assert not [argument for argument in planned.argv if argument.startswith("--settings")]


def test_rules_do_not_move_into_settings_that_are_on_another_machine() -> None:
    with pytest.raises(ConfigurationError, match="--allowedTools") as caught:
        launch("initialize", allowed_tools=RULES, settings="/there/settings.json")
    assert caught.value.option == "allowed_tools"
    assert launch("initialize", allowed_tools=RULES, settings={}).initialize["settings"] == {"permissions": {"allow": RULES}}


def test_what_can_move_nowhere_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="8000") as caught:
        launch(name="n" * 9_000)
    assert caught.value.option == "name"


def test_the_paths_of_the_files_count_too() -> None:
    planned = launch(system_prompt="s")
    with pytest.raises(ConfigurationError, match="--system-prompt-file"):
        planned.with_paths(files=["/run/" + "d" * 9_000])
    with pytest.raises(ConfigurationError):
        launch(system_prompt="s", name="n" * 7_800)
    assert launch(name="n" * 7_800).files == ()


# ---------------------------------------------------------------------------------------------------------------- windows


def test_a_batch_file_gets_plain_arguments_or_nothing_is_run() -> None:
    options = ClaudeOptions(name="a&b", system_prompt="anything & everything, it goes by file")
    with pytest.raises(ConfigurationError, match=r"claude\.exe"):
        build_launch(options, cli="C:\\npm\\claude.cmd", inherited={}, platform="win32")
    planned = build_launch(options.replace(name="plain"), cli="C:\\npm\\claude.cmd", inherited={}, platform="win32")
    planned.with_paths(files=["C:\\Temp\\RUNNER~1\\p.txt"], platform="win32")
    with pytest.raises(ConfigurationError, match=r"claude\.exe"):
        planned.with_paths(files=["C:\\100%sure%\\p.txt"], platform="win32")


# --------------------------------------------------------------------------------------------------------------- refusals


def test_nothing_is_planned_for_options_that_cannot_be_run() -> None:
    refused: list[dict[str, Any]] = [
        {"max_turns": 0},
        {"session_id": "x"},
        {"settings": "no-such-file"},
        {"cwd": 3},
        {"env": None},
        {"mcp_timeout": "5"},
    ]
    for options in refused:
        with pytest.raises(ConfigurationError):
            launch(**options)


def test_a_sandbox_is_declared_by_the_childs_environment() -> None:
    options = ClaudeOptions(permission_mode="bypassPermissions")
    assert build_launch(options, cli="claude", inherited={"IS_SANDBOX": "1"}, uid=0).env["IS_SANDBOX"] == "1"
    with pytest.raises(ConfigurationError):
        build_launch(options.replace(env_mode="exact"), cli="claude", inherited={"IS_SANDBOX": "1"}, uid=0)


plain: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2)
)
plain |= st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)


@settings(max_examples=500, deadline=None)  # over a hundred options share them; a fraction of a millisecond each
@given(option=st.sampled_from(ClaudeOptions.__struct_fields__), value=plain, delivery=st.sampled_from(["files", "initialize"]))
def test_any_value_in_any_option_becomes_a_launch_or_a_refusal_of_that_option(option: str, value: Any, delivery: Delivery) -> None:
    blamed: str | None = option
    try:
        planned = launch(delivery, **{option: value})
    except ConfigurationError as refusal:
        planned, blamed = launch(), refusal.option
    assert blamed == option
    assert all(isinstance(argument, str) and "\0" not in argument for argument in planned.argv)
    assert all(isinstance(text, str) for pair in planned.env.items() for text in pair)
    json.dumps(planned.initialize)


SERVER = {"tools": {"type": "stdio", "command": "x", "env": {"TOKEN": "secret"}}}


def test_servers_can_travel_by_initialize_and_leave_no_file_behind() -> None:
    for servers in (SERVER, json.dumps({"mcpServers": SERVER})):
        planned = launch(mcp_servers=servers, mcp_servers_delivery="initialize")
        assert (planned.initialize, planned.files, planned.initialize_first) == ({"mcpServers": SERVER}, (), True)
        assert not [argument for argument in planned.argv if argument.startswith("--mcp-config") or "secret" in argument]


def test_a_configuration_file_cannot_travel_by_initialize(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": SERVER}), "utf-8")
    with pytest.raises(ConfigurationError, match="not the path of a file") as caught:
        launch(mcp_servers=file, mcp_servers_delivery="initialize")
    assert caught.value.option == "mcp_servers_delivery"


def test_plugins_can_travel_by_initialize() -> None:
    given = [{"type": "local", "path": Path("/p/one")}, {"type": "local", "path": "/p/two", "skipMcpDiscovery": True}]
    planned = launch(plugins=given, plugin_delivery="initialize")
    assert planned.initialize == {
        "plugins": [{"type": "local", "path": "/p/one"}, {"type": "local", "path": "/p/two", "skipMcpDiscovery": True}]
    }
    assert planned.initialize_first
    assert not [argument for argument in planned.argv if argument.startswith("--plugin-dir")]
    assert [argument for argument in launch(plugins=given).argv if argument.startswith("--plugin-dir")] == [
        "--plugin-dir=/p/one",
        "--plugin-dir=/p/two",
    ]


@pytest.mark.parametrize("delivery", ["files", "initialize"])
def test_managed_settings_are_never_on_the_command_line(delivery: Any) -> None:
    planned = launch(delivery, managed_settings={"env": {"TOKEN": "secret"}})
    assert planned.initialize == {"managedSettings": {"env": {"TOKEN": "secret"}}}
    assert ("--managed-settings-in-initialize" in planned.argv, planned.initialize_first) == (True, True)
    assert "secret" not in " ".join(planned.argv) + repr(planned) + repr(ClaudeOptions(managed_settings={"env": {"TOKEN": "secret"}}))


def test_what_is_said_about_the_servers_of_this_process_travels_by_initialize() -> None:
    manifest = {"initializeResult": {"protocolVersion": "x"}}
    planned = launch(
        sdk_mcp_server_configs={"a": {"timeout": 5}},
        sdk_mcp_server_manifests={"a": manifest},
        sdk_mcp_server_manifests_origin="host_per_send",
    )
    assert planned.initialize == {
        "sdkMcpServerConfigs": {"a": {"timeout": 5}},
        "sdkMcpServerManifests": {"a": manifest},
        "sdkMcpServerManifestsOrigin": "host_per_send",
    }
    assert not planned.initialize_first


def test_what_tools_are_configured_with_is_in_the_environment() -> None:
    planned = launch(tool_config={"askUserQuestion": {"previewFormat": "html"}}, mcp_tool_idle_timeout=90.5)
    assert planned.env["CLAUDE_CODE_QUESTION_PREVIEW_FORMAT"] == "html"
    assert planned.env["CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT"] == "90500"
    assert launch(mcp_tool_idle_timeout=math.inf).env["CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT"] == "0"
