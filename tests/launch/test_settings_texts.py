"""The texts of the settings files that a session reads on this machine: redactors look for secrets in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.settings import permission_settings, settings_texts, with_settings_read

PLACES = {
    "given.json": "of the option settings",
    "servers.json": "of the option mcp_servers",
    "config/settings.json": "of the user",
    ".claude/settings.json": "of the project",
    ".claude/settings.local.json": "of the user for the project",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a file in each place."""
    for place, text in PLACES.items():
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(text), "utf-8")
    return tmp_path


def texts(project: Path, **options: Any) -> list[str]:
    inherited = {"CLAUDE_CONFIG_DIR": str(project / "config")}
    return [json.loads(text) for text in settings_texts(ClaudeOptions(cwd=project, **options), inherited)]


@pytest.mark.parametrize("kind", [str, Path])
def test_the_files_of_all_places_are_read(kind: Any, project: Path) -> None:
    assert texts(project, settings=kind("given.json"), mcp_servers=kind("servers.json")) == [*PLACES.values()]


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({}, ["config/settings.json", ".claude/settings.json", ".claude/settings.local.json"]),
        ({"setting_sources": []}, []),
        ({"setting_sources": ["user"]}, ["config/settings.json"]),
        ({"setting_sources": ["project"]}, [".claude/settings.json"]),
        ({"setting_sources": ["local"]}, [".claude/settings.local.json"]),
        ({"setting_sources": ["user"], "isolated_config": True}, []),
        ({"setting_sources": [], "settings": '{"env": {}}', "mcp_servers": {}}, []),
        ({"setting_sources": [], "settings": "missing.json", "mcp_servers": ""}, []),
    ],
    ids=str,
)
def test_a_file_that_the_session_does_not_read_is_left_out(options: dict[str, Any], places: list[str], project: Path) -> None:
    assert texts(project, **options) == [PLACES[place] for place in places]


def test_the_texts_are_read_when_they_are_asked_for_and_never_shown(project: Path) -> None:
    found = settings_texts(ClaudeOptions(cwd=project, setting_sources=["project", "local"]))
    assert repr(found) == "LazyTexts(unread)"
    assert (len(found), json.loads(found[0])) == (2, "of the project")
    assert repr(found) == "LazyTexts(2)"


@pytest.mark.parametrize("text", [None, "no JSON", "[]"])
def test_options_whose_settings_file_cannot_be_read_stay_as_they_are(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    if text is not None:
        path.write_text(text, "utf-8")
    options = ClaudeOptions(settings=path)
    assert with_settings_read(options) is options


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}, "sandbox"),
        ({"settings": {"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}}, "settings"),
    ],
    ids=["sandbox", "settings"],
)
def test_a_sandbox_that_allows_commands_is_named_by_its_option(options: dict[str, Any], named: str) -> None:
    assert ("sandbox", "allows", named) in [tuple(row) for row in permission_settings(ClaudeOptions(**options))]


def test_of_a_large_file_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"env": {"A": "x" * 2**21}}), "utf-8")
    options = ClaudeOptions(settings=path, setting_sources=[])
    for each in (options, with_settings_read(options)):
        assert [len(text) for text in settings_texts(each)] == [2**20]
