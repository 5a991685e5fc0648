"""The options Struct: every field has one place where it goes, and nothing that may be secret is ever shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from claude_transport.launch.argv import FLAGS
from claude_transport.launch.environ import POLICIES, VARIABLES
from claude_transport.launch.launch import build_launch
from claude_transport.launch.options import HOST_ONLY, ClaudeOptions
from claude_transport.launch.payloads import INITIALIZE_FIELDS, PAYLOADS, Delivery

SECRET = "sentinel-secret-5d1c"
KEY = {"ANTHROPIC_API_KEY": "sk-ant-fake"}

TABLES = {
    "argv": {row.option for row in FLAGS},
    "payloads": {row.option for row in PAYLOADS},
    "initialize": {row.option for row in INITIALIZE_FIELDS},
    "environment": {row.option for row in VARIABLES} | set(POLICIES),
    "host only": set(HOST_ONLY),
}


@pytest.mark.parametrize("option", ClaudeOptions.__struct_fields__)
def test_every_option_is_in_exactly_one_table(option: str) -> None:
    assert len([name for name, options in TABLES.items() if option in options]) == 1


def test_no_table_names_an_option_that_does_not_exist() -> None:
    assert set().union(*TABLES.values()) == set(ClaudeOptions.__struct_fields__)


def test_every_row_says_what_it_means() -> None:
    rows: list[Any] = [*FLAGS, *PAYLOADS, *INITIALIZE_FIELDS, *VARIABLES]
    documented = [row.doc for row in rows] + [*POLICIES.values(), *HOST_ONLY.values()]
    assert all(text.endswith((".", ")", "`")) and len(text) > 10 for text in documented)


def test_options_are_frozen_and_replace_gives_a_changed_copy() -> None:
    options = ClaudeOptions(model="haiku")
    with pytest.raises(AttributeError):
        options.model = "opus"  # type: ignore[misc]
    changed = options.replace(model="opus", max_turns=3)
    assert (options.model, changed.model, changed.max_turns) == ("haiku", "opus", 3)
    with pytest.raises(TypeError):
        options.replace(modell="opus")


def test_options_hold_data_only() -> None:
    annotations = " ".join(str(field.type) for field in msgspec.structs.fields(ClaudeOptions))
    assert "Callable" not in annotations


def test_repr_shows_what_differs_from_the_defaults_and_nothing_else() -> None:
    assert repr(ClaudeOptions()) == "ClaudeOptions()"
    assert repr(ClaudeOptions(model="haiku", max_turns=1)) == "ClaudeOptions(model='haiku', max_turns=1)"


def test_repr_names_the_variables_and_servers_without_their_values() -> None:
    shown = repr(
        ClaudeOptions(env={"TOKEN": SECRET}, mcp_servers={"search": {"url": SECRET}}, system_prompt="abc", settings=Path("s.json"))
    )
    assert shown == "ClaudeOptions(system_prompt=<3 characters>, mcp_servers=['search'], settings=..., env=['TOKEN'])"


SECRETIVE: dict[str, dict[str, Any]] = {
    "mcp env": {"mcp_servers": {"a": {"command": "x", "env": {"T": SECRET}}}},
    "mcp headers": {"mcp_servers": {"a": {"type": "http", "url": "http://127.0.0.1/", "headers": {"Authorization": SECRET}}}},
    "mcp as text": {"mcp_servers": '{"mcpServers": {"a": {"command": "x", "env": {"T": "' + SECRET + '"}}}}'},
    "system prompt": {"system_prompt": SECRET},
    "system prompt preset": {"system_prompt": {"type": "preset", "preset": "claude_code", "append": SECRET}},
    "system prompt custom": {"system_prompt": {"type": "custom", "prompt": SECRET}},
    "appended prompt": {"append_system_prompt": SECRET},
    "subagents' prompt": {"append_subagent_system_prompt": SECRET},
    "plan mode": {"plan_mode_instructions": SECRET},
    "settings": {"settings": {"env": {"T": SECRET}}},
    "settings as text": {"settings": '{"env": {"T": "' + SECRET + '"}}'},
    "sandbox": {"sandbox": {"network": {"httpProxyPort": SECRET}}},
    "sandbox and settings": {"sandbox": {"enabled": True}, "settings": '{"apiKeyHelper": "' + SECRET + '"}'},
    "agents": {"agents": {"a": {"description": "d", "prompt": SECRET}}},
    "env": {"env": {"T": SECRET}},
}


@pytest.mark.parametrize("delivery", ["files", "initialize"])
@pytest.mark.parametrize("values", SECRETIVE.values(), ids=list(SECRETIVE))
def test_a_secret_is_never_on_the_command_line_nor_in_a_repr(values: dict[str, Any], delivery: Delivery) -> None:
    options = ClaudeOptions(**values)
    launch = build_launch(options, cli="/bin/claude", inherited={**KEY, "OTHER": SECRET}, delivery=delivery)
    made = launch.with_paths(files=[f"/run/payload-{index}" for index in range(len(launch.files))])
    carried = b"".join(planned.content for planned in launch.files) + repr([launch.env, launch.initialize]).encode()
    assert SECRET.encode() in carried, "the secret has to arrive somewhere, or this test proves nothing"
    for shown in (repr(options), str(options), repr(launch), repr(made), repr(launch.files), *made.argv, *made.notes):
        assert SECRET not in shown
