"""A release could be cut now: the package is whole, its links lead somewhere, the changelog assembles, and workflows may do little."""

from __future__ import annotations

import email
import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from session_steps import declared

from claude_transport.codex.features import OBSERVED
from claude_transport.launch.features import NEWEST_CLI, OLDEST_CLI

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = PROJECT["version"]
PYTHONS = [name for each in PROJECT["classifiers"] if re.fullmatch(r"3\.\d+", name := each.split(" :: ")[-1])]
EXAMPLE = "https://example.org/owner/name"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WRITES = {
    ("release.yml", "attest"): {"id-token", "attestations"},
    ("release.yml", "rehearse"): {"id-token"},
    ("release.yml", "publish"): {"id-token"},
    ("docs.yml", "publish"): {"pages", "id-token"},
    ("codeql.yml", "analyze"): {"security-events"},
}
"""The jobs that may change something, and what."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to build. An unpacked sdist has its metadata already, so it is copied without."""
    if not (ROOT / "PKG-INFO").exists():
        return ROOT
    left_out = shutil.ignore_patterns("PKG-INFO", ".nox", ".venv*", ".*_cache", "__pycache__", "_build")
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "copy", ignore=left_out))


def build(what: str, to: Path, *, source: Path, repository: str | None) -> Path:
    """Build the sdist or the wheel of a folder, and return its path."""
    env = {name: value for name, value in os.environ.items() if name != "CLAUDE_TRANSPORT_REPOSITORY"}
    if repository is not None:
        env["CLAUDE_TRANSPORT_REPOSITORY"] = repository
    code = f"import sys, hatchling.build; print(hatchling.build.build_{what}(sys.argv[1]))"
    ran = subprocess.run([sys.executable, "-c", code, str(to)], cwd=source, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return to / ran.stdout.split()[-1]


def metadata_of(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"claude_transport-{VERSION}.dist-info/METADATA"))


def links_of(text: str) -> list[str]:
    """The targets of all links and images of a Markdown text, outside of code."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", prose)


def anchors_of(text: str) -> set[str]:
    return {"#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


# ------------------------------------------------------------------------------------------------------------------ the package


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"), source=source, repository=EXAMPLE)


def test_every_link_of_the_long_description_is_absolute_and_leads_to_a_file(wheel: Path) -> None:
    text = str(metadata_of(wheel).get_payload())
    links = links_of(text)
    assert len(links) > 30
    inside = re.compile(rf"{re.escape(EXAMPLE)}/(?:blob|raw)/v{re.escape(VERSION)}/([^#]+)")
    for link in links:
        found = inside.match(link)
        assert link in anchors_of(text) or link.startswith("https://"), link
        assert found is None or (ROOT / found[1]).exists(), link
        assert not link.startswith(EXAMPLE) or found is not None, link
    assert sum(link.startswith(EXAMPLE) for link in links) > 25


def test_the_links_of_the_project_come_from_the_same_setting(wheel: Path) -> None:
    urls = dict(line.split(", ") for line in metadata_of(wheel).get_all("Project-URL"))
    assert urls.keys() == {"Source", "Issues", "Changelog", "Security"}
    assert all(url.startswith(EXAMPLE) for url in urls.values())


def test_without_an_address_no_link_is_made_up(source: Path, tmp_path: Path) -> None:
    metadata = metadata_of(build("wheel", tmp_path, source=source, repository=None))
    text = str(metadata.get_payload())
    assert metadata.get_all("Project-URL") is None
    assert [link for link in links_of(text) if not link.startswith("https://") and link not in anchors_of(text)] == []
    assert "Write a transport" in text  # the words of a link stay
    assert "A simulated Claude answers, word by word" not in text  # those of a picture do not


def test_the_page_of_an_index_needs_no_checkout(wheel: Path) -> None:
    text = str(metadata_of(wheel).get_payload())
    assert "pip install -q 'claude-transport[cli]' && .venv/bin/claude-transport ask --offline" in text
    assert "Try it without a key." in text
    assert "nox" not in text
    assert "'.[" not in text


@pytest.mark.parametrize("address", ["http://example.org/a/b", "example.org/a", "https://example.org", "https://u:p@example.org/a/b"])
def test_an_address_that_is_no_repository_is_refused(address: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is not like https://host/owner/name"):
        build("wheel", tmp_path, source=source, repository=address)


def test_the_sdist_has_what_builds_and_tests_the_package(source: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path, source=source, repository=EXAMPLE)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "hatch_build.py",
        "noxfile.py",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        "SUPPORT.md",
        "CITATION.cff",
    } <= names
    assert {".ci/run", ".github/workflows/release.yml", "claude_transport/py.typed", "tests/test_release.py", "docs/index.md"} <= names
    assert not any(name.startswith(("docs/_build", ".git/", "dist/", ".venv")) for name in names)


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert tops == {"claude_transport", f"claude_transport-{VERSION}.dist-info"}


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 900


# ---------------------------------------------------------------------------------------------------------------- the changelog


SECTION = (ROOT / "CHANGELOG.md").read_text("utf-8").partition(f"\n## {VERSION} (")[2].partition("\n## ")[0]
"""What the changelog says of the version of the package."""


def test_the_next_section_of_the_changelog_is_assembled_from_every_fragment(tmp_path: Path) -> None:
    pytest.importorskip("towncrier")
    shutil.copytree(ROOT / "docs/changelog.d", tmp_path / "docs/changelog.d")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    for kind in ("added", "changed", "fixed"):
        (tmp_path / f"docs/changelog.d/+of-this-test.{kind}.md").write_text(f"This was {kind} by a test.\n", "utf-8")
    fragments = {path.name: path.read_text("utf-8") for path in (tmp_path / "docs/changelog.d").glob("*.md")}
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "99.0.0", "--date", "2026-01-02"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    written = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    section, earlier = written.split("\n## 99.0.0 (2026-01-02)\n")[1].split("\n## ", 1)
    assert earlier.startswith(f"{VERSION} (")
    assert re.findall(r"^### (.*)$", section, re.MULTILINE) == ["Added", "Changed", "Fixed"]
    plain = re.sub(r"\s+", " ", section)
    assert [name for name, text in fragments.items() if re.sub(r"\s+", " ", text).strip() not in plain] == []
    assert list((tmp_path / "docs/changelog.d").glob("*.md")) == []


def test_a_draft_can_be_made_where_no_fragment_is_left(tmp_path: Path) -> None:
    pytest.importorskip("towncrier")
    (tmp_path / "docs/changelog.d").mkdir(parents=True)
    shutil.copy(ROOT / "docs/changelog.d/.gitkeep", tmp_path / "docs/changelog.d")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "99.0.0"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_changelog_has_a_section_of_this_version_in_short_groups() -> None:
    groups = re.findall(r"^### (.*)$", SECTION, re.MULTILINE)
    assert len(groups) == len(set(groups)) > 5
    points = re.findall(r"^- (.*)$", SECTION, re.MULTILINE)
    assert len(points) > 20
    assert [point for point in points if len(point) > 500] == []


def test_the_first_release_tells_of_no_time_before_it() -> None:
    if VERSION == "0.1.0":
        assert re.findall(r"no longer|any more|used to|it took|used before|### (?:Changed|Fixed)", SECTION) == []


# ---------------------------------------------------------------------------------------------------------------- the workflows


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_a_job_only_what_it_must_write(path: Path) -> None:
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        granted = {scope for scope, level in job.get("permissions", {}).items() if level == "write"}
        assert granted == WRITES.get((path.name, name), set())
        assert job["timeout-minutes"] <= 60


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_a_hash_with_its_tag_beside_it_and_no_checkout_keeps_a_credential(path: Path) -> None:
    used = re.findall(r"uses: (.*)$", path.read_text("utf-8"), re.MULTILINE)
    assert [action for action in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40} # v\d+(\.\d+)+", action)] == []
    for job in loaded(path)["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_an_action_has_the_same_hash_everywhere() -> None:
    used = re.findall(r"uses: ([\w.-]+/[\w.-]+)[\w/.-]*(@.*)$", "".join(path.read_text("utf-8") for path in WORKFLOWS), re.MULTILINE)
    assert len(set(used)) == len({action for action, _ in used}) > 5


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_workflow_puts_words_of_a_stranger_into_a_shell(path: Path) -> None:
    commands = [step["run"] for job in loaded(path)["jobs"].values() for step in job["steps"] if "run" in step]
    assert [command for command in commands if "${{" in command and "${{ matrix." not in command] == []
    assert "pull_request_target" not in path.read_text("utf-8")
    assert "https://" not in path.read_text("utf-8")  # no address is made up


def test_the_tests_run_on_every_system_and_every_supported_python() -> None:
    matrix = loaded(ROOT / ".github/workflows/tests.yml")["jobs"]["systems"]["strategy"]["matrix"]
    (following,) = re.findall(r'^NEXT_PYTHON = "(.*?)"', (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE)
    assert matrix["python"] == [*PYTHONS, following]
    assert matrix["system"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


def test_every_week_the_tests_run_without_the_lock_of_the_interpreter_as_the_page_says() -> None:
    workflow = loaded(ROOT / ".github/workflows/tests.yml")
    job = workflow["jobs"]["free_threaded"]
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {}))
    assert (python, job["if"], job["steps"][-1]["run"]) == ("3.14t", "github.event_name == 'schedule'", "python -m nox -s tests")
    assert "Once a week it also runs them on the free-threaded 3.14." in (ROOT / "docs/reference/pythons.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["everything", "systems", "lowest"])
def test_a_job_installs_what_the_tests_fail_without_where_ci_is_set(name: str) -> None:
    """`.ci/run` installs it only as root, which the user of a hosted runner is not."""
    job = loaded(ROOT / ".github/workflows/tests.yml")["jobs"][name]
    needed = set(re.findall(r"--no-install-recommends (.*)$", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE))
    words = {word for line in needed for word in line.split()} - {"python3-venv", "chromium"}  # the image has these
    assert len(words) > 4
    installed = next(step for step in job["steps"] if "apt-get install" in step.get("run", ""))
    assert words <= set(installed["run"].split())
    assert job["steps"].index(installed) < len(job["steps"]) - 1


def test_only_on_linux_with_every_program_a_missing_one_is_an_error() -> None:
    jobs = loaded(ROOT / ".github/workflows/tests.yml")["jobs"]
    assert "env" not in jobs["everything"]
    assert jobs["systems"]["env"]["CI"] == "${{ matrix.system == 'ubuntu-latest' && 'true' || '' }}"
    assert jobs["lowest"]["env"]["CI"] == ""


def test_every_session_that_a_workflow_runs_is_one_of_nox() -> None:
    sessions = declared((ROOT / "noxfile.py").read_text("utf-8"))
    named = {
        name for path in WORKFLOWS for name in re.findall(r"nox -s (\w+)|session: (\w+)", path.read_text("utf-8")) for name in name if name
    }
    assert {"tests", "windows", "lowest", "release_check", "docs"} <= named
    assert named - sessions.keys() == set()


def test_every_session_that_a_page_names_is_one_of_nox() -> None:
    pages = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "_build" not in path.parts]
    named = {name for page in pages for name in re.findall(r"nox -s (\w+)", page.read_text("utf-8"))}
    sessions = declared((ROOT / "noxfile.py").read_text("utf-8")).keys()
    assert named - sessions == set()
    assert named | {"checks", "collected"} == sessions  # those two are a part of others, and no page needs them


def test_a_release_is_published_without_a_token_of_its_own() -> None:
    publish = loaded(ROOT / ".github/workflows/release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "secrets." not in "".join(path.read_text("utf-8") for path in WORKFLOWS)


def test_a_release_is_attested_and_uploaded_to_the_test_index_before_the_real_one() -> None:
    jobs = loaded(ROOT / ".github/workflows/release.yml")["jobs"]
    assert [jobs[name]["needs"] for name in ("attest", "rehearse", "publish")] == ["build", ["build", "attest"], "rehearse"]
    check, upload = jobs["rehearse"]["steps"][1:]
    assert check["run"] == 'test -n "$TEST_INDEX"'  # an empty address would be that of the real index
    assert check["env"]["TEST_INDEX"] == upload["with"]["repository-url"] == "${{ vars.TEST_INDEX }}"
    assert [step["with"] for step in jobs["attest"]["steps"] if step["uses"].startswith("actions/attest@")] == [
        {"subject-path": "dist/*"},
        {"subject-path": "dist/*", "sbom-path": "sbom/claude-transport.cdx.json"},
    ]
    assert jobs["publish"]["steps"][-1]["with"] == {"attestations": True}


def test_dependabot_looks_after_the_actions_and_the_packages() -> None:
    updates = loaded(ROOT / ".github/dependabot.yml")["updates"]
    assert [update["package-ecosystem"] for update in updates] == ["github-actions", "pip"]


# ----------------------------------------------------------------------------------------------------------------- the policies


def test_a_python_is_a_supported_one_when_the_page_says_what_was_run_on_it() -> None:
    page = (ROOT / "docs/reference/pythons.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (3\.\d+) \| (.*) \|$", page, re.MULTILINE))
    assert [version for version, told in rows.items() if not told.startswith("not run")] == PYTHONS
    assert f"supports {PYTHONS[0]} to {PYTHONS[-1]}." in page
    assert f"[Python {PYTHONS[0]} to {PYTHONS[-1]}](docs/reference/pythons.md) are supported" in (ROOT / "README.md").read_text("utf-8")


def test_what_is_cited_is_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (cited["cff-version"], cited["type"], cited["title"]) == ("1.2.0", "software", "claude_transport")
    assert (cited["version"], cited["license"], cited["authors"]) == (VERSION, PROJECT["license"], PROJECT["authors"])
    assert cited["message"]


@pytest.mark.parametrize("name", ["SUPPORT.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md"])
def test_a_page_for_the_community_leads_to_files_and_titles_that_exist(name: str) -> None:
    for link in links_of((ROOT / name).read_text("utf-8")):
        path, _, anchor = link.partition("#")
        assert link.startswith("https://") or (ROOT / path).exists(), link
        assert not anchor or link.startswith("https://") or f"#{anchor}" in anchors_of((ROOT / (path or name)).read_text("utf-8")), link


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_a_page_names_the_versions_of_the_agents_that_are_supported(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    claude, codex = (re.search(rf"(?i){name}`? ([\d.]+) to ([\d.]+)", text) for name in ("claude", "codex"))
    assert claude is not None
    assert claude.groups() == (OLDEST_CLI, NEWEST_CLI)
    assert codex is None or codex.groups() == (OBSERVED[0], OBSERVED[-1])


def test_the_security_policy_names_the_version_that_gets_fixes() -> None:
    minor = ".".join(VERSION.split(".")[:2])
    assert f"`{minor}` now" in (ROOT / "SECURITY.md").read_text("utf-8")


def test_the_version_of_the_package_is_that_of_its_metadata() -> None:
    assert importlib.import_module("importlib.metadata").version("claude-transport") == VERSION
