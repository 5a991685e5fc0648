"""The matrix of authentication, cell by cell, and who of four decides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from claude_transport.completion.resolution import CHOICES, MATRIX, AvailableMeans, TransportChoice, cell_of, has_api_key, resolve_transport
from claude_transport.errors import ConfigurationError

# the seed's table, written out once more by hand: (API key?, claude?) → auto, cli, api
TABLE = {
    (True, True): ("cli", "cli", "api"),
    (True, False): ("api", "cli fails call exec.cli.binary_not_found", "api"),
    (False, True): ("cli", "cli", "api fails call exec.cli.auth_failed"),
    (False, False): (
        "fails preflight config.no_auth_path",
        "cli fails preflight config.no_auth_path",
        "api fails preflight config.no_auth_path",
    ),
}


@pytest.mark.parametrize(("key", "cli"), TABLE)
@pytest.mark.parametrize("choice", CHOICES)
def test_s1_2_every_cell_of_the_matrix_is_the_tables(key: bool, cli: bool, choice: TransportChoice) -> None:
    cell = cell_of(choice, api_key=key, cli=cli)
    shown = [cell.kind or "", f"fails {cell.failure} {cell.code}" if cell.failure else ""]
    assert " ".join(part for part in shown if part) == TABLE[key, cli][CHOICES.index(choice)]


def test_s1_2_the_matrix_has_all_states_and_all_choices() -> None:
    assert set(MATRIX) == {AvailableMeans(api_key=key, cli=cli) for key in (True, False) for cli in (True, False)}
    assert all(tuple(cells) == CHOICES for cells in MATRIX.values())


@pytest.mark.parametrize("row", MATRIX)
def test_s1_2_auto_resolves_to_what_the_matrix_says(row: AvailableMeans) -> None:
    cell = MATRIX[row]["auto"]
    if cell.kind is None:
        with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY") as caught:
            resolve_transport(env={}, cli_available=row.cli, api_key_available=row.api_key)
        assert caught.value.code == cell.code
        assert caught.value.option == "transport"
    else:
        assert resolve_transport(env={}, cli_available=row.cli, api_key_available=row.api_key).kind == cell.kind


@pytest.mark.parametrize("row", MATRIX)
@pytest.mark.parametrize("choice", ["cli", "api"])
def test_s1_2_an_explicit_choice_is_taken_whatever_there_is(row: AvailableMeans, choice: TransportChoice) -> None:
    found = resolve_transport(choice, env={}, cli_available=row.cli, api_key_available=row.api_key)
    assert (found.kind, found.layer, found.choice) == (choice, "argument", choice)


@pytest.mark.parametrize(
    ("explicit", "variable", "declared", "layer", "kind"),
    [
        ("api", "cli", "cli", "argument", "api"),
        ("auto", "api", "api", "argument", "cli"),
        (None, "api", "cli", "environment", "api"),
        (None, "auto", "api", "environment", "cli"),
        (None, "", "api", "declared", "api"),
        (None, " \t\n", "api", "declared", "api"),
        (None, None, {"transport": "api"}, "declared", "api"),
        (None, None, {"model": "haiku"}, "default", "cli"),
        (None, None, None, "default", "cli"),
    ],
)
def test_s1_3_the_strongest_layer_that_says_something_decides(
    explicit: Any, variable: str | None, declared: Any, layer: str, kind: str
) -> None:
    env = {} if variable is None else {"CLAUDE_TRANSPORT": variable}
    found = resolve_transport(explicit, env=env, declared=declared, cli_available=True, api_key_available=True)
    assert (found.layer, found.kind) == (layer, kind)


def test_s1_3_the_reason_names_who_decided_and_what_was_found() -> None:
    facts: Any = {"cli_available": False, "api_key_available": True}
    assert resolve_transport("cli", env={}, **facts).reason == "the call says cli"
    assert resolve_transport(env={"CLAUDE_TRANSPORT": " api "}, **facts).reason == "CLAUDE_TRANSPORT says api"
    assert resolve_transport(env={}, declared="auto", **facts).reason == (
        "the declaration says auto, no claude was found, and there is an API key"
    )
    assert resolve_transport(env={}, cli_available=True).reason == "the default says auto, and a claude was found"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"declared": {"transport": None}}, "the declaration says null"),
        ({"declared": {"transport": 1}}, "the declaration says 1"),
        ({"declared": ""}, "the declaration says ''"),
        ({"explicit": "CLI"}, "the call says 'CLI'"),
        ({"env": {"CLAUDE_TRANSPORT": "sdk"}}, "CLAUDE_TRANSPORT says 'sdk'"),
    ],
)
def test_s1_3_what_is_no_choice_is_refused_with_the_layer_that_said_it(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match="not one of auto, cli, api") as caught:
        resolve_transport(**{"env": {}, "cli_available": True, **arguments})
    assert said in str(caught.value)
    assert caught.value.option == "transport"


def test_s1_3_a_weaker_layer_is_not_even_read_when_a_stronger_one_decides() -> None:
    assert resolve_transport("api", env={"CLAUDE_TRANSPORT": "nonsense"}, declared="nonsense").kind == "api"


def test_facts_that_are_not_passed_are_looked_for_in_the_given_environment_only(tmp_path: Path) -> None:
    claude = tmp_path / ("claude.exe" if os.name == "nt" else "claude")
    claude.write_text("#!/bin/sh\n")
    claude.chmod(0o755)
    assert resolve_transport(env={"CLAUDE_CLI_PATH": str(claude)}).kind == "cli"
    missing = {"CLAUDE_CLI_PATH": str(tmp_path / "nowhere")}
    assert resolve_transport(env={**missing, "ANTHROPIC_API_KEY": "sk-ant-fake"}).kind == "api"
    assert resolve_transport(env={**missing, "ANTHROPIC_AUTH_TOKEN": "fake"}).kind == "api"
    with pytest.raises(ConfigurationError, match="no claude was found"):
        resolve_transport(env={**missing, "ANTHROPIC_API_KEY": "  "})


def test_a_key_of_nothing_but_whitespace_is_no_key() -> None:
    assert not has_api_key({"ANTHROPIC_API_KEY": " \n", "ANTHROPIC_AUTH_TOKEN": ""})
    assert has_api_key({"ANTHROPIC_API_KEY": " \n", "ANTHROPIC_AUTH_TOKEN": "fake"})
