"""What a rehearsed installation gets and tells, and that the page has a row of each way to install on each Python."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from installing import WORKS, Row, candidates, clean_environment, commands, first_command, interpreter, result
from session_steps import declared

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs/reference/pythons.md").read_text("utf-8")
ASK = 'claude-transport ask --offline "Hello, Claude"'


def environment(of: Mapping[str, str], home: Path) -> dict[str, str]:
    return clean_environment(of, home=home, tool=Path("/tools"), index="http://127.0.0.1:1/simple/", python="/python")


def test_the_first_command_of_the_readme_is_run_with_the_name_of_the_package() -> None:
    assert first_command(README) == (f"python3 -m venv .venv && .venv/bin/pip install -q 'claude-transport[cli]' && .venv/bin/{ASK}")


@pytest.mark.parametrize("changed", ["'.[cli]'", '"Hello, Claude"', "```bash"])
def test_another_first_command_is_refused_instead_of_rehearsing_something_else(changed: str) -> None:
    with pytest.raises(ValueError, match="the first command does not install and ask"):
        first_command(README.replace(changed, "x"))


def test_every_way_to_install_asks_the_same() -> None:
    lines = commands(README)
    assert [*lines] == ["pip", "uv", "pipx", "uv tool"]
    assert all(line.endswith(ASK) and "'claude-transport[cli]'" in line for line in lines.values())


def test_an_installation_gets_an_empty_home_and_the_variables_that_say_where_packages_come_from(tmp_path: Path) -> None:
    of = {
        "HOME": "/me",
        "PATH": "/mine",
        "PYTHONPATH": "/src",
        "VIRTUAL_ENV": "/v",
        "ANTHROPIC_API_KEY": "k",
        "https_proxy": "p",
        "PIP_CERT": "c",
    }
    env = environment(of, tmp_path)
    assert env.keys() == {"HOME", "PATH", "PYTHON", "https_proxy", "PIP_CERT", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "NO_PROXY"}
    assert env["HOME"] == str(tmp_path)
    assert env["PATH"].split(":")[:2] == [str(tmp_path / ".local/bin"), "/tools"]
    assert "/mine" not in env["PATH"]


def test_the_index_on_loopback_comes_beside_the_configured_ones(tmp_path: Path) -> None:
    env = environment({"PIP_EXTRA_INDEX_URL": "file:///a", "UV_INDEX": "file:///b", "NO_PROXY": "localhost"}, tmp_path)
    assert env["PIP_EXTRA_INDEX_URL"] == "file:///a http://127.0.0.1:1/simple/"
    assert env["UV_INDEX"] == "http://127.0.0.1:1/simple/ file:///b"
    assert env["NO_PROXY"] == "localhost,127.0.0.1"


def test_an_interpreter_is_looked_for_on_the_path_and_where_managers_keep_theirs(tmp_path: Path) -> None:
    places = [tmp_path / place for place in ("path", "home/.pyenv/versions/3.12.1/bin", "home/.local/share/uv/python/cpython-3.12.9-x/bin")]
    for place in [*places, tmp_path / "home/.pyenv/versions/3.13.0/bin"]:
        place.mkdir(parents=True)
        (place / f"python{'3.13' if '3.13' in str(place) else '3.12'}").touch()
    found = [*candidates("3.12", f"{places[0]}::{tmp_path}/none", tmp_path / "home")]
    assert found == [place / "python3.12" for place in places]


def test_a_python_that_the_machine_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "python3.99"  # such a file is on the path where a manager of Pythons has none of this version
    stand_in.write_text("#!/bin/sh\necho 3.99; exit 127\n", "utf-8")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter("3.99") is None
    assert (
        str(Row("all", "3.99", None, "not run: there is no such interpreter"))
        == "| all | 3.99 |  | not run: there is no such interpreter |"
    )


def test_the_python_of_an_environment_is_found_outside_of_it() -> None:
    found = interpreter("{}.{}".format(*sys.version_info))
    assert found is not None
    assert subprocess.check_output([found, "-I", "-c", "import sys; print(sys.prefix == sys.base_prefix)"], text=True) == "True\n"


@pytest.mark.parametrize(
    ("code", "out", "downloads", "said"),
    [
        (0, "[simulated] You said: “Hello, Claude”", ["claude_transport-0.1.0-py3-none-any.whl"], WORKS),
        (0, "[simulated] You said: “Hello, Claude”", [], "the wheel came from elsewhere"),
        (0, "Traceback", ["claude_transport-0.1.0-py3-none-any.whl"], "another answer: 'Traceback'"),
        (3, "", ["claude_transport-0.1.0-py3-none-any.whl"], "exit code 3: no such package"),
    ],
)
def test_only_an_answer_of_the_uploaded_wheel_counts(code: int, out: str, downloads: list[str], said: str) -> None:
    ran = subprocess.CompletedProcess("", code, stdout=out, stderr="a warning\nno such package\n")
    assert result(ran, downloads) == said


def test_the_page_has_a_row_of_every_way_to_install_on_every_supported_python() -> None:
    rows = re.findall(r"^\| (pip|uv|pipx|uv tool) \| (3\.\d+)\.\d+ \| \d+ \| it answers \|$", PAGE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pythons = [name for each in project["classifiers"] if re.fullmatch(r"3\.\d+", name := each.split(" :: ")[-1])]
    assert rows == [(tool, python) for python in pythons for tool in commands(README)]


def test_ci_builds_uploads_and_installs_the_package() -> None:
    sessions = declared((ROOT / "noxfile.py").read_text("utf-8"))
    assert "'release_check -- --rehearse'" in sessions["without_tests"]
    assert "tests/release/release_check.py" in sessions["release_check"]
    assert '"tests/release/installing.py", "--quick"' in (ROOT / "tests/release/release_check.py").read_text("utf-8")
