"""Which session a process in place of another one goes on with, and where the CLI keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from claude_transport.launch.launch import find_transcript, options_to_continue
from claude_transport.launch.options import ClaudeOptions

ID, OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "aaaaaaaa-bbbb-4ccc-8ddd-ffffffffffff"


def save(configuration: Path, project: Path, session_id: str = ID) -> Path:
    """A transcript where CLI 2.1.329 puts it."""
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(project.resolve()))
    folder = configuration / "projects" / (name if len(name) <= 200 else name[:200] + "-1abcdef")
    folder.mkdir(parents=True, exist_ok=True)
    transcript = folder / f"{session_id}.jsonl"
    transcript.touch()
    return transcript


@pytest.mark.parametrize("variable", ["CLAUDE_CONFIG_DIR", "HOME"])
def test_a_transcript_is_found_where_the_environment_of_the_cli_says(tmp_path: Path, variable: str) -> None:
    env = {variable: str(tmp_path)}
    assert find_transcript(ID, env=env, cwd=tmp_path) is None
    transcript = save(tmp_path / ".claude" if variable == "HOME" else tmp_path, tmp_path)
    assert find_transcript(ID, env=env, cwd=tmp_path) == transcript
    assert find_transcript(OTHER, env=env, cwd=tmp_path) is None
    assert find_transcript(ID, env={}, cwd=tmp_path) is None


def test_the_session_of_another_directory_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = tmp_path / "my project_é", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    transcript = save(tmp_path, project)
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    assert find_transcript(ID, env=env, cwd=elsewhere) is None
    (tmp_path / "link").symlink_to(project)
    assert find_transcript(ID, env=env, cwd=tmp_path / "link") == transcript
    monkeypatch.chdir(project)
    assert find_transcript(ID, env=env) == transcript


def test_a_path_that_is_too_long_for_a_name_is_known_by_its_beginning(tmp_path: Path) -> None:
    project = tmp_path / ("deep" * 50) / "project"
    project.mkdir(parents=True)
    transcript = save(tmp_path, project)
    assert find_transcript(ID, env={"CLAUDE_CONFIG_DIR": str(tmp_path)}, cwd=project) == transcript


def test_a_saved_session_is_resumed_and_not_forked_a_second_time() -> None:
    forked = ClaudeOptions(session_id=ID, resume=OTHER, fork_session=True, resume_session_at="x", resume_drops_turn="y", model="haiku")
    assert options_to_continue(forked) == ClaudeOptions(resume=ID, model="haiku")
    assert options_to_continue(ClaudeOptions(session_id=ID, continue_conversation=True, fork_session=True)) == ClaudeOptions(resume=ID)


@pytest.mark.parametrize("options", [ClaudeOptions(resume=OTHER), ClaudeOptions(), ClaudeOptions(session_id=ID, isolated_config=True)])
def test_what_names_no_session_that_lasts_stays_as_it_is(options: ClaudeOptions) -> None:
    assert options_to_continue(options) is options
