"""The page about compatibility names the versions that `pyproject.toml` and the package have."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from claude_transport.codex.features import CODEX_RANGE
from claude_transport.launch.features import NEWEST_CLI, OLDEST_CLI

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/compatibility.md").read_text("utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = {name: needs for name, needs in PROJECT["optional-dependencies"].items() if name != "all"}
REQUIREMENT = re.compile(r"([\w.-]+)>=([\d.]+)(?:; .*)?")


def bounds(requirements: Iterable[str]) -> dict[str, str]:
    """Return the oldest version of each package. A requirement with another limit is refused."""
    found = {each: REQUIREMENT.fullmatch(each) for each in requirements}
    assert [each for each, match in found.items() if match is None] == []
    return {match[1]: match[2] for match in found.values() if match}


def table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the table under a heading."""
    section = PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_every_package_that_an_installation_may_bring_has_its_oldest_version_there() -> None:
    wanted = bounds(PROJECT["dependencies"])
    for needs in EXTRAS.values():
        found = bounds(needs)
        assert [package for package in found if wanted.get(package, found[package]) != found[package]] == []  # `nox -s lowest` is one run
        wanted |= found
    wanted["trio"] = bounds(each for each in PYPROJECT["dependency-groups"]["test"] if str(each).startswith("trio>"))["trio"]
    assert {package: version for package, version, _ in table("### Packages")} == wanted


def test_every_extra_is_named_beside_what_it_needs() -> None:
    needed_by = {package: set(re.findall(r"`([\w-]+)`", cell)) for package, _, cell in table("### Packages")}
    for extra, needs in EXTRAS.items():
        assert [package for package in bounds(needs) if extra not in needed_by[package]] == []
    assert {name for names in needed_by.values() for name in names} == EXTRAS.keys()


def test_every_python_that_the_package_names_has_its_end_there() -> None:
    named = [name for each in PROJECT["classifiers"] if re.fullmatch(r"3\.\d+", name := each.split(" :: ")[-1])]
    rows = dict(table("### Python"))
    assert [*rows] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert [end for end in rows.values() if not re.fullmatch(r"October 20\d\d", end)] == []


def test_the_agents_have_the_range_that_the_package_accepts() -> None:
    rows = {program: versions for program, versions, _ in table("### Claude and Codex")}
    assert rows == {"`claude`": f"{OLDEST_CLI} to {NEWEST_CLI}", "`codex`": f"{CODEX_RANGE.oldest} to {CODEX_RANGE.newest}"}


def test_the_repairs_of_an_older_release_end_when_the_security_policy_says() -> None:
    (days,) = re.findall(r"security fixes for (\d+) days", PAGE)
    assert f"| for {days} days after the newest one |" in (ROOT / "SECURITY.md").read_text("utf-8")
