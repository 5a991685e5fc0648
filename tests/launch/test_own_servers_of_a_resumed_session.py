"""A session that goes on has the MCP servers of the program on its command line; any other session is started as its options say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claude_transport import ClaudeOptions
from claude_transport.launch.settings import naming_own_servers

SHOP = {"command": "shop"}
OWN = {"type": "sdk", "name": "own"}


@pytest.mark.parametrize("how", [{"resume": "a title"}, {"continue_conversation": True}])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"own": OWN}),
        ({"shop": SHOP}, {"own": OWN, "shop": SHOP}),
        ({"own": SHOP}, {"own": SHOP}),
        (json.dumps({"mcpServers": {"shop": SHOP}}), {"own": OWN, "shop": SHOP}),
    ],
    ids=["no others", "another", "one of the same name", "a text"],
)
def test_they_stand_beside_the_servers_of_the_options(how: dict[str, Any], given: Any, expected: object) -> None:
    assert naming_own_servers(ClaudeOptions(mcp_servers=given, **how), ["own"]).mcp_servers == expected


@pytest.mark.parametrize(
    ("given", "chosen", "strict"), [({}, None, False), ({"a": SHOP}, None, True), ({}, True, True), ({"a": SHOP}, False, False)]
)
def test_they_do_not_decide_whether_the_servers_of_the_user_are_used(given: Any, chosen: bool | None, strict: bool) -> None:
    options = ClaudeOptions(resume="a title", mcp_servers=given, strict_mcp_config=chosen)
    assert naming_own_servers(options, ["own"]).strict_mcp_config is strict


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (ClaudeOptions(), ["own"]),
        (ClaudeOptions(resume="a title"), []),
        (ClaudeOptions(resume="a title", mcp_servers=Path("servers.json")), ["own"]),
        (ClaudeOptions(resume="a title", mcp_servers={"shop": SHOP}, mcp_servers_delivery="initialize"), ["own"]),
    ],
    ids=["a new session", "no such servers", "a file", "sent in initialize"],
)
def test_other_options_stay_as_they_are(options: ClaudeOptions, names: list[str]) -> None:
    assert naming_own_servers(options, names) is options
