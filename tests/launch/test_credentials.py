"""Which credential would win, by the order that the CLI's own headers showed; no value is ever looked at."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from claude_transport.launch.credentials import PAYERS, describe_credentials
from claude_transport.launch.environ import CLOUD_SWITCHES, bare_can_authenticate

SECRET = "sentinel-secret-90fe"

# Strongest first: the source, how it is given, and who wins when it is the strongest one.
ORDER: list[tuple[str, dict[str, Any], str]] = [
    ("cloud", {"env": {"CLAUDE_CODE_USE_VERTEX": "1"}}, "CLAUDE_CODE_USE_VERTEX"),
    ("auth_token", {"env": {"ANTHROPIC_AUTH_TOKEN": SECRET}}, "ANTHROPIC_AUTH_TOKEN"),
    ("api_key", {"env": {"ANTHROPIC_API_KEY": SECRET}}, "ANTHROPIC_API_KEY"),
    ("api_key_helper", {"settings": {"apiKeyHelper": SECRET}}, "apiKeyHelper"),
    ("oauth_token", {"env": {"CLAUDE_CODE_OAUTH_TOKEN": SECRET}}, "CLAUDE_CODE_OAUTH_TOKEN"),
    ("login", {"login": True}, ".credentials.json"),
]


def report(sources: list[dict[str, Any]], folder: Path, **more: Any) -> Any:
    env: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for source in sources:
        env |= source.get("env", {})
        settings |= source.get("settings", {})
        if source.get("login"):
            (folder / ".credentials.json").write_text(SECRET, "utf-8")
    return describe_credentials(env, settings=settings, config_dir=folder, **more)


COMBINATIONS = [chosen for size in range(1, len(ORDER) + 1) for chosen in itertools.combinations(ORDER, size)]


@pytest.mark.parametrize("chosen", COMBINATIONS, ids=["+".join(kind for kind, _, _ in chosen) for chosen in COMBINATIONS])
def test_the_strongest_of_any_set_of_credentials_wins(chosen: tuple[tuple[str, dict[str, Any], str], ...], tmp_path: Path) -> None:
    found = report([source for _, source, _ in chosen], tmp_path)
    assert (found.winner, found.name) == (chosen[0][0], chosen[0][2])
    assert found.payer == PAYERS[chosen[0][0]]
    assert SECRET not in repr(found)
    assert set(found.present) == {name for kind, _, name in chosen[1:] if kind != "login"}


@pytest.mark.parametrize(
    ("kinds", "headers", "ambiguous"),
    [
        ({"auth_token"}, {"Authorization"}, False),
        ({"api_key"}, {"x-api-key"}, False),
        ({"auth_token", "api_key"}, {"Authorization", "x-api-key"}, True),
        ({"api_key_helper"}, {"Authorization", "x-api-key"}, False),
        ({"api_key", "api_key_helper"}, {"Authorization", "x-api-key"}, True),
        ({"api_key", "oauth_token"}, {"x-api-key"}, False),
        ({"oauth_token"}, {"Authorization"}, False),
        ({"login"}, {"Authorization"}, False),
        ({"cloud", "api_key"}, set(), False),
    ],
)
def test_the_headers_are_those_that_the_cli_sent(kinds: set[str], headers: set[str], ambiguous: bool, tmp_path: Path) -> None:
    found = report([source for kind, source, _ in ORDER if kind in kinds], tmp_path)
    assert set(found.headers) == headers
    assert found.ambiguous is ambiguous
    assert any("server decides" in note for note in found.notes) is ambiguous


@pytest.mark.parametrize("switch", CLOUD_SWITCHES)
def test_a_cloud_switch_decides_alone_and_only_when_it_is_on(switch: str) -> None:
    assert describe_credentials({switch: "true", "ANTHROPIC_API_KEY": SECRET}).name == switch
    assert describe_credentials({switch: "0", "ANTHROPIC_API_KEY": SECRET}).winner == "api_key"


def test_an_empty_variable_is_an_unset_one() -> None:
    assert describe_credentials({"ANTHROPIC_AUTH_TOKEN": "", "ANTHROPIC_API_KEY": SECRET}).winner == "api_key"


def test_settings_win_over_the_environment_and_it_is_said() -> None:
    found = describe_credentials({"ANTHROPIC_API_KEY": SECRET}, settings={"env": {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": SECRET}})
    assert found.winner == "auth_token"
    assert any("ANTHROPIC_AUTH_TOKEN comes from the settings" in note for note in found.notes)
    assert "ANTHROPIC_API_KEY" not in found.present


def test_a_login_is_unknown_until_somebody_allows_a_look_and_none_when_it_is_not_there(tmp_path: Path) -> None:
    assert (describe_credentials({}).winner, describe_credentials({}).payer) == ("unknown", "unknown")
    assert (report([], tmp_path).winner, report([], tmp_path).payer) == ("none", "nobody")


def test_a_bare_session_reads_neither_the_oauth_token_nor_the_login(tmp_path: Path) -> None:
    sources = [source for kind, source, _ in ORDER if kind in {"oauth_token", "login"}]
    assert report(sources, tmp_path, bare=True).winner == "none"
    assert report([*sources, {"env": {"ANTHROPIC_API_KEY": SECRET}}], tmp_path, bare=True).winner == "api_key"


@pytest.mark.parametrize("chosen", COMBINATIONS[: len(ORDER)], ids=[kind for kind, _, _ in ORDER])
def test_what_bare_can_use_is_the_same_for_the_report_and_for_the_command_line(chosen: Any, tmp_path: Path) -> None:
    source = chosen[0][1]
    usable = bare_can_authenticate(source.get("env", {}), source.get("settings", {}))
    assert usable is (report([source], tmp_path, bare=True).winner != "none")


@pytest.mark.parametrize("env", [["A"], "text", None, 3])
def test_settings_with_an_env_that_is_no_mapping_are_read_past(env: Any) -> None:
    assert describe_credentials({"ANTHROPIC_API_KEY": SECRET}, settings={"env": env}).winner == "api_key"
    assert bare_can_authenticate({}, {"env": env}) is False
