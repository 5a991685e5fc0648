"""Official options taken apart: every one of them has a row, and arrives where the row says."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest
from mcp.server import Server
from official_values import SET

import claude_transport as ct
from claude_transport import errors
from claude_transport.interop.agent_sdk import options_from, transport_from
from claude_transport.interop.agent_sdk.translation import OPTION_ROWS

FIELDS = [field.name for field in dataclasses.fields(sdk.ClaudeAgentOptions)]


def official(**options: Any) -> sdk.ClaudeAgentOptions:
    return sdk.ClaudeAgentOptions(**options)


def test_the_table_has_one_row_for_each_official_option() -> None:
    assert sorted(row.option for row in OPTION_ROWS) == sorted(FIELDS)


def test_every_place_that_the_table_names_is_there() -> None:
    for row in OPTION_ROWS:
        if row.here.startswith("`ClaudeOptions."):
            assert row.here.split("`")[1].removeprefix("ClaudeOptions.") in ct.ClaudeOptions.__struct_fields__


@pytest.mark.parametrize("option", [row.option for row in OPTION_ROWS if row.is_same])
def test_an_option_of_the_same_name_is_handed_on_as_it_is(option: str) -> None:
    assert getattr(options_from(official(**{option: SET[option]})).options, option) == SET[option]


def test_the_defaults_mean_what_they_mean_there() -> None:
    options = options_from(official()).options
    assert (options.system_prompt, options.strict_mcp_config, options.setting_sources, options.permission_mode) == ("", False, None, None)
    assert options_from(official()).query_options == {}
    assert options_from(official()).transport_options == {}


@pytest.mark.parametrize(
    ("given", "option", "value"),
    [
        ({"max_turns": 0}, "max_turns", None),
        ({"model": ""}, "model", None),
        ({"cwd": ""}, "cwd", None),
        ({"system_prompt": "Be brief."}, "system_prompt", "Be brief."),
        ({"system_prompt": {"type": "preset", "preset": "claude_code"}}, "system_prompt", {"type": "preset", "preset": "claude_code"}),
        ({"skills": "all"}, "setting_sources", ["user", "project"]),
        ({"skills": "all", "setting_sources": []}, "setting_sources", []),
        ({"thinking": {"type": "disabled"}, "max_thinking_tokens": 5}, "max_thinking_tokens", None),
        ({"max_thinking_tokens": 5}, "max_thinking_tokens", 5),
        ({"output_format": {"type": "text"}}, "output_format", None),
        ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format", {"type": "json_schema", "schema": {}}),
        ({"mcp_servers": "servers.json"}, "mcp_servers", "servers.json"),
    ],
)
def test_an_option_that_is_said_otherwise_here_keeps_its_meaning(given: dict[str, Any], option: str, value: object) -> None:
    assert getattr(options_from(official(**given)).options, option) == value


def test_servers_of_this_process_go_to_the_query_and_all_others_to_the_cli() -> None:
    server: Server[Any] = Server("sums")
    outside = {"type": "stdio", "command": "true"}
    given = official(mcp_servers={"sums": {"type": "sdk", "name": "sums", "instance": server}, "outside": outside})
    moved = options_from(given)
    assert moved.options.mcp_servers == {"outside": outside}
    assert moved.query_options.get("mcp_servers") == {"sums": server}
    transport = transport_from(given).transport
    assert isinstance(transport, ct.SubprocessTransport)
    assert isinstance(transport.options, ct.ClaudeOptions)
    assert transport.options.mcp_servers == {"outside": outside, "sums": {"type": "sdk", "name": "sums"}}


def test_what_belongs_to_the_transport_is_found_there() -> None:
    lines: list[str] = []
    assert options_from(official(max_buffer_size=10, stderr=lines.append)).transport_options == {
        "max_line_bytes": 10,
        "on_stderr": lines.append,
    }


def test_skills_become_rules_for_the_official_client_which_sends_the_filter_itself() -> None:
    for skills, rules in ((["one"], ["Read", "Skill(one)"]), ("all", ["Read", "Skill"])):
        transport = transport_from(official(skills=skills, allowed_tools=["Read"])).transport
        assert isinstance(transport, ct.SubprocessTransport)
        assert isinstance(transport.options, ct.ClaudeOptions)
        assert (transport.options.skills, transport.options.allowed_tools) == (None, rules)


def test_a_session_store_has_no_counterpart_but_the_official_client_may_keep_its_own() -> None:
    store = sdk.InMemorySessionStore()
    with pytest.raises(errors.ConfigurationError) as caught:
        options_from(official(session_store=store))
    assert caught.value.option == "session_store"
    transport = transport_from(official(session_store=store)).transport
    assert isinstance(transport, ct.SubprocessTransport)
    assert isinstance(transport.options, ct.ClaudeOptions)
    assert transport.options.session_mirror


def test_an_option_of_a_newer_sdk_is_refused_once_it_is_set() -> None:
    @dataclasses.dataclass
    class Newer(sdk.ClaudeAgentOptions):
        from_the_future: int | None = None

    options_from(Newer())
    with pytest.raises(errors.ConfigurationError) as caught:
        options_from(Newer(from_the_future=1))
    assert caught.value.option == "from_the_future"


def test_what_are_no_official_options_is_refused() -> None:
    for call in (options_from, transport_from):
        with pytest.raises(errors.ConfigurationError, match="ClaudeAgentOptions, not ClaudeOptions"):
            call(ct.ClaudeOptions())  # type: ignore[operator]


def test_a_schema_that_only_initialize_can_carry_is_refused_under_the_official_client() -> None:
    schema = {"type": "object", "description": "x" * 5_000}
    with pytest.raises(errors.ConfigurationError) as caught:
        transport_from(official(output_format={"type": "json_schema", "schema": schema}))
    assert caught.value.option == "output_format"


def test_query_options_are_the_arguments_of_query() -> None:
    ours = typing.get_type_hints(ct.client.QueryOptions)
    theirs = typing.get_type_hints(ct.Query.__init__)
    assert ours == {name: kind for name, kind in theirs.items() if name not in ("transport", "return")}


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "move-from-the-agent-sdk.md").read_text("utf-8")
    for row in OPTION_ROWS:
        assert f"| `{row.option}` | {row.here} | {row.note} |\n" in page
