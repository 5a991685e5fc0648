"""Finding the binary: who decides, in which order, what is reported, and that nothing is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from claude_transport.codex.discovery import find_codex
from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError
from claude_transport.launch.discovery import CLI, PATH_VARIABLE, find_bundled_directory, find_cli, read_cli_version, remember_cli_version


def make(path: Path, *, mode: int = 0o755) -> Path:
    """A program that leaves a mark when somebody starts it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\ntouch "$0.started"\n', "utf-8")
    path.chmod(mode)
    return path


@pytest.fixture
def world(tmp_path: Path) -> dict[str, Path]:
    """A binary in every place, keyed by the place."""
    return {
        "explicit": make(tmp_path / "explicit/claude"),
        "variable": make(tmp_path / "variable/claude"),
        "path": make(tmp_path / "path/claude"),
        "bundled": make(tmp_path / "bundled/claude"),
        "home": make(tmp_path / "home/.local/bin/claude"),
    }


def find(world: dict[str, Path], tmp_path: Path, **more: str) -> CLI:
    env = {"PATH": str(tmp_path / "path")} | ({PATH_VARIABLE: str(world["variable"])} if "variable" in world else {})
    explicit = world.get("explicit")
    return find_cli(explicit, env=env, home=tmp_path / "home", bundled=tmp_path / "bundled", **more)


def test_the_order_is_explicit_variable_path_bundled_well_known(world: dict[str, Path], tmp_path: Path) -> None:
    found = []
    for place in ("explicit", "variable", "path", "bundled", "home"):
        found.append((place, find(world, tmp_path)))
        world.pop(place).unlink()
    assert [cli.source for _, cli in found] == ["explicit path", PATH_VARIABLE, "PATH", "claude_agent_sdk", "well-known place"]
    assert [Path(cli.path).relative_to(tmp_path).parts[0] for _, cli in found] == [place for place, _ in found]


def test_a_wrong_explicit_path_is_an_error_and_never_a_reason_to_look_further(world: dict[str, Path], tmp_path: Path) -> None:
    world["explicit"].unlink()
    with pytest.raises(CLINotFoundError, match="cli_path") as caught:
        find(world, tmp_path)
    assert caught.value.searched == (f"explicit path: {world['explicit']} (not there)",)
    assert caught.value.advice == "Correct cli_path, or leave it out, so that the program is searched for."


@pytest.mark.parametrize(("find", "option"), [(find_cli, "cli_path"), (find_codex, "codex_path")])
@pytest.mark.parametrize("given", [7, b"/bin/claude", ["claude"]])
def test_what_is_no_path_is_refused_with_the_name_of_the_option(find: Any, option: str, given: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{option} is a path, not {type(given).__name__}") as refused:
        find(given, env={})
    assert refused.value.option == option


def test_a_wrong_variable_is_an_error_that_names_it(world: dict[str, Path], tmp_path: Path) -> None:
    del world["explicit"]
    world["variable"].unlink()
    with pytest.raises(CLINotFoundError, match=PATH_VARIABLE):
        find(world, tmp_path)


def test_an_empty_variable_is_an_unset_one(tmp_path: Path) -> None:
    binary = make(tmp_path / "claude")
    assert find_cli(env={"PATH": str(tmp_path), PATH_VARIABLE: ""}, home=tmp_path).path == str(binary)


def test_a_chosen_file_without_the_right_to_run_is_its_own_error(tmp_path: Path) -> None:
    binary = make(tmp_path / "claude", mode=0o644)
    with pytest.raises(NotExecutableError) as caught:
        find_cli(binary, env={})
    assert caught.value.path == str(binary)


def test_on_path_what_may_not_be_run_is_passed_over_and_reported(tmp_path: Path) -> None:
    make(tmp_path / "a/claude", mode=0o644)
    (tmp_path / "b/claude").mkdir(parents=True)
    right = make(tmp_path / "c/claude")
    found = find_cli(env={"PATH": os.pathsep.join(str(tmp_path / name) for name in "abc")}, home=tmp_path, bundled=tmp_path)
    assert found == CLI(
        str(right),
        "PATH",
        (
            f"PATH: {tmp_path}/a/claude (not executable)",
            f"PATH: {tmp_path}/b/claude (a directory)",
            f"PATH: {right} (found)",
        ),
    )


def test_nothing_found_reports_every_place_in_order_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # whatever this machine has in its well-known places
    with pytest.raises(CLINotFoundError) as caught:
        find_cli(env={"PATH": f"{tmp_path}/p:{tmp_path}/q"}, home=tmp_path / "h", bundled=tmp_path / "b")
    sources = [place.partition(":")[0] for place in caught.value.searched]
    assert sources[:3] == ["PATH", "PATH", "claude_agent_sdk"]
    assert set(sources[3:]) == {"well-known place"}
    assert caught.value.__notes__ == ["looked at:\n  " + "\n  ".join(caught.value.searched)]
    assert str(caught.value) == f"no claude was found in {len(caught.value.searched)} places. {caught.value.advice}"
    assert "pip install claude-agent-sdk" in caught.value.advice
    assert PATH_VARIABLE in caught.value.advice


def test_a_chosen_name_without_a_directory_is_looked_up_on_path(tmp_path: Path) -> None:
    binary = make(tmp_path / "bin/claude-next")
    assert find_cli("claude-next", env={"PATH": str(tmp_path / "bin")}).path == str(binary)
    with pytest.raises(CLINotFoundError, match="no absolute directory on PATH"):
        find_cli("claude-next", env={})


def test_a_relative_path_is_made_absolute_because_the_child_has_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = make(tmp_path / "bin/claude")
    monkeypatch.chdir(tmp_path)
    assert find_cli("bin/claude", env={}).path == str(binary)


def test_relative_and_empty_directories_on_path_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "claude")
    make(tmp_path / "bin/claude")
    monkeypatch.chdir(tmp_path)
    right = make(tmp_path / "right/claude")
    assert find_cli(env={"PATH": f":.:bin:{tmp_path}/right"}, home=tmp_path / "h").path == str(right)


def test_on_windows_native_programs_come_before_batch_files_and_npm_scripts_do_not_count(tmp_path: Path) -> None:
    make(tmp_path / "a/claude")
    make(tmp_path / "b/claude.cmd")
    env = {"PATH": f"{tmp_path}/a;{tmp_path}/b"}
    assert find_cli(env=env, home=tmp_path, bundled=tmp_path, platform="win32").path == str(tmp_path / "b/claude.cmd")
    make(tmp_path / "b/claude.exe")
    assert find_cli(env=env, home=tmp_path, bundled=tmp_path, platform="win32").path == str(tmp_path / "b/claude.exe")


def test_on_windows_the_case_of_a_variable_and_quotes_on_its_path_do_not_matter(tmp_path: Path) -> None:
    right = make(tmp_path / "a/claude.exe")
    found = find_cli(env={"Path": f'"{tmp_path}/a";.'}, home=tmp_path, bundled=tmp_path, platform="win32")
    assert (found.path, found.source) == (str(right), "PATH")
    right = make(tmp_path / "npm/claude.cmd")
    found = find_cli(env={"AppData": str(tmp_path)}, home=tmp_path, bundled=tmp_path, platform="win32")
    assert (found.path, found.source) == (str(right), "well-known place")


def test_on_windows_the_installers_places_are_looked_at_with_a_short_path(tmp_path: Path) -> None:
    right = make(tmp_path / "npm/claude.cmd")
    found = find_cli(env={"APPDATA": str(tmp_path), "USERPROFILE": str(tmp_path / "u")}, bundled=tmp_path / "b", platform="win32")
    assert (found.path, found.source) == (str(right), "well-known place")


# --------------------------------------------------------------------------------------------------- the bundled binary


@pytest.fixture
def official_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed `claude_agent_sdk` that cannot be imported; gives its binary."""
    package = tmp_path / "site/claude_agent_sdk"
    binary = make(package / "_bundled/claude")
    (package / "__init__.py").write_text("raise AssertionError('it was imported')\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in [name for name in sys.modules if name.partition(".")[0] == "claude_agent_sdk"]:
        monkeypatch.delitem(sys.modules, name)
    return binary


def test_the_bundled_binary_is_found_without_importing_its_package(official_sdk: Path, tmp_path: Path) -> None:
    assert find_cli(env={}, home=tmp_path) == CLI(str(official_sdk), "claude_agent_sdk", (f"claude_agent_sdk: {official_sdk} (found)",))
    assert "claude_agent_sdk" not in sys.modules


def test_no_official_sdk_is_no_bundled_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)
    assert find_bundled_directory() is None


@pytest.mark.parametrize("error", [ImportError, ValueError])
def test_a_broken_installation_of_the_official_sdk_counts_as_none(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise error(name)

    monkeypatch.setattr("importlib.util.find_spec", broken)
    assert find_bundled_directory() is None


def test_a_place_that_cannot_be_looked_at_is_named_with_the_kind_of_the_error(tmp_path: Path) -> None:
    place = f"{tmp_path}/{'x' * 300}/claude"
    with pytest.raises(CLINotFoundError, match="which cannot be looked at: OSError") as caught:
        find_cli(place)
    assert caught.value.searched == (f"explicit path: {place} (cannot be looked at: OSError)",)


# ----------------------------------------------------------------------------------------------------- the version


def test_the_version_stands_beside_the_bundled_binary(tmp_path: Path) -> None:
    binary = make(tmp_path / "claude")
    (tmp_path / "claude.version").write_text("2.1.329 (Claude Code)\n", "utf-8")
    assert read_cli_version(binary) == "2.1.329"


def test_the_version_of_an_older_official_sdk_stands_in_its_package(tmp_path: Path) -> None:
    binary = make(tmp_path / "claude_agent_sdk/_bundled/claude")
    (tmp_path / "claude_agent_sdk/_cli_version.py").write_text('"""Bundled version."""\n\n__cli_version__ = "2.1.92"\n', "utf-8")
    assert read_cli_version(binary) == "2.1.92"


def test_the_version_is_the_name_that_the_native_installer_links_to(tmp_path: Path) -> None:
    make(tmp_path / "versions/2.1.400")
    (tmp_path / "claude").symlink_to(tmp_path / "versions/2.1.400")
    assert read_cli_version(CLI(str(tmp_path / "claude"), "PATH")) == "2.1.400"


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ('{"name": "@anthropic-ai/claude-code", "version": "1.0.9"}', "1.0.9"),
        ('{"name": "@anthropic-ai/claude-code"}', None),
        ('{"name": "another", "version": "1.0.9"}', None),
        ("[]", None),
        ("not json", None),
    ],
)
def test_the_version_stands_in_the_package_of_npm(package: str, version: str | None, tmp_path: Path) -> None:
    make(tmp_path / "lib/claude-code/cli.js")
    (tmp_path / "lib/claude-code/package.json").write_text(package, "utf-8")
    (tmp_path / "claude").symlink_to(tmp_path / "lib/claude-code/cli.js")
    assert read_cli_version(tmp_path / "claude") == version


def test_a_version_is_kept_until_the_file_changes(tmp_path: Path) -> None:
    binary = make(tmp_path / "claude")
    assert read_cli_version(binary) is None
    remember_cli_version(binary, "9.9.9")
    assert read_cli_version(binary) == "9.9.9"
    binary.write_text("#!/bin/sh\nexit 0\n# another one\n", "utf-8")
    assert read_cli_version(binary) is None


def test_a_missing_binary_has_no_version_and_none_is_remembered(tmp_path: Path) -> None:
    remember_cli_version(tmp_path / "claude", "9.9.9")
    assert read_cli_version(tmp_path / "claude") is None


def test_neither_finding_nor_reading_the_version_starts_anything(world: dict[str, Path], tmp_path: Path) -> None:
    assert read_cli_version(find(world, tmp_path)) is None
    assert not list(tmp_path.rglob("*.started"))


@pytest.mark.parametrize(
    ("place", "env"),
    [
        *((f"{{home}}/{below}", {}) for below in (".local/bin", ".claude/local", ".npm-global/bin", "node_modules/.bin", ".yarn/bin")),
        *((f"{{home}}/{below}", {}) for below in (".bun/bin", ".volta/bin")),
        ("{home}/prefix/bin", {"NPM_CONFIG_PREFIX": "{home}/prefix"}),
    ],
)
def test_a_cli_is_found_in_the_places_where_it_is_usually_installed(place: str, env: dict[str, str], tmp_path: Path) -> None:
    folder = Path(place.format(home=tmp_path))
    folder.mkdir(parents=True)
    (folder / "claude").write_bytes(b"\x7fELF")
    (folder / "claude").chmod(0o700)
    given = {name: value.format(home=tmp_path) for name, value in env.items()}
    found = find_cli(env={"PATH": str(tmp_path), **given}, home=tmp_path, bundled=tmp_path, platform="linux")
    assert (found.path, found.source) == (str(folder / "claude"), "well-known place")
