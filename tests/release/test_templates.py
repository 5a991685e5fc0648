"""What GitHub and tools of citation read has the keys that they ask for: forms of issues, the template of pull requests, CITATION.cff.

A form with a mistake is not shown by GitHub, and an invalid CITATION.cff gives no citation; neither says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "ISSUE_TEMPLATE"
FORMS = sorted(path for path in FOLDER.glob("*.yml") if path.name != "config.yml")
KEYS = {"name", "description", "title", "labels", "assignees", "projects", "type", "body"}
ATTRIBUTES = {
    "markdown": {"value"},
    "input": {"label", "description", "placeholder", "value"},
    "textarea": {"label", "description", "placeholder", "value", "render"},
    "dropdown": {"label", "description", "multiple", "options", "default"},
    "checkboxes": {"label", "description", "options"},
}
"""The elements of a form, and what each may have. All but `markdown` need a label."""
CITED = {
    "abstract": str,
    "authors": list,
    "cff-version": str,
    "commit": str,
    "contact": list,
    "date-released": str,
    "doi": str,
    "identifiers": list,
    "keywords": list,
    "license": str,
    "license-url": str,
    "message": str,
    "preferred-citation": dict,
    "references": list,
    "repository": str,
    "repository-artifact": str,
    "repository-code": str,
    "title": str,
    "type": str,
    "url": str,
    "version": str,
}
"""The keys of CFF 1.2.0, and their types."""
BOTH = {"address", "alias", "city", "country", "email", "fax", "orcid", "post-code", "region", "tel", "website"}
ENTITY = BOTH | {"date-end", "date-start", "location", "name"}
PERSON = BOTH | {"affiliation", "family-names", "given-names", "name-particle", "name-suffix"}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def form_mistakes(form: dict[str, Any]) -> list[str]:
    """Return what GitHub would refuse in a form."""
    found = [f"no key {key}" for key in form.keys() - KEYS]
    found += [f"{key} is no text of more than three letters" for key in ("name", "description") if len(str(form.get(key) or "")) <= 3]
    body = form.get("body")
    if not isinstance(body, list) or all(element.get("type") == "markdown" for element in body):
        return [*found, "body asks nothing"]
    for key in ("id", "label"):
        used = [element.get(key) or element["attributes"].get(key) for element in body if element.get("type") != "markdown"]
        found += [f"{key} {each} is there twice" for each in sorted({each for each in used if used.count(each) > 1}, key=str)]
    return [*found, *(f"{element.get('id')}: {said}" for element in body for said in element_mistakes(element))]


def element_mistakes(element: dict[str, Any]) -> list[str]:
    """Return what GitHub would refuse in one element."""
    kind, attributes = element.get("type"), element.get("attributes") or {}
    if kind not in ATTRIBUTES:
        return [f"no type {kind}"]
    found = [f"no key {key}" for key in element.keys() - {"type", "id", "attributes", "validations"}]
    found += [f"no attribute {key}" for key in attributes.keys() - ATTRIBUTES[kind]]
    found += ["the id has other characters"] if not re.fullmatch(r"[\w-]+", str(element.get("id", "x")), re.ASCII) else []
    needed = "value" if kind == "markdown" else "label"
    found += [f"{needed} is empty"] if not attributes.get(needed) else []
    if kind in ("dropdown", "checkboxes"):
        options = attributes.get("options") or []
        found += ["options are missing or there twice"] if not options or len({str(each) for each in options}) < len(options) else []
    required = (element.get("validations") or {}).get("required", False)
    return [*found, *(["required is no boolean"] if not isinstance(required, bool) else [])]


def citation_mistakes(cited: dict[str, Any]) -> list[str]:
    """Return what CFF 1.2.0 does not allow. Dates are written with quotes, since YAML would make something else of them."""
    found = [f"{key} is missing" for key in ("authors", "cff-version", "message", "title") if not cited.get(key)]
    found += [f"no key {key}" for key in cited.keys() - CITED.keys()]
    found += [f"{key} is no {CITED[key].__name__}" for key, value in cited.items() if key in CITED and not isinstance(value, CITED[key])]
    found += ["type is neither software nor dataset"] if cited.get("type", "software") not in ("software", "dataset") else []
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", str(cited.get("date-released", "2026-01-01"))):
        found.append("date-released is no date")
    for author in cited.get("authors") or []:
        found += [f"no author can have {key}" for key in author.keys() - (ENTITY if "name" in author else PERSON)]
        found += ["an author has no name"] if not author.keys() & {"name", "family-names", "given-names", "alias"} else []
    return found


# ------------------------------------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_github_shows_the_form(path: Path) -> None:
    assert form_mistakes(loaded(path)) == []


def test_there_is_a_form_for_a_bug_an_idea_and_a_question_and_no_other_way() -> None:
    assert [path.stem for path in FORMS] == ["bug", "idea", "question"]
    names = [loaded(path)["name"] for path in FORMS]
    assert len({*names}) == len(names)
    assert loaded(FOLDER / "config.yml") == {"blank_issues_enabled": False}  # a question has a form, so no contact link is needed


def test_the_page_for_support_names_the_forms_as_they_are_called() -> None:
    text = (ROOT / "SUPPORT.md").read_text("utf-8")
    assert {loaded(FOLDER / f"{form}.yml")["name"] for form in ("bug", "question")} <= set(re.findall(r'the form "([^"]+)"', text))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_that_shows_code_or_output_warns_of_secrets(path: Path) -> None:
    text = path.read_text("utf-8")
    assert path.stem == "idea" or re.search(r"secrets|No keys|without keys", text)


def test_the_template_of_a_pull_request_asks_what_contributing_asks() -> None:
    text = (ROOT / ".github/PULL_REQUEST_TEMPLATE.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What it does, and why", "How it was seen to work", "Whole"]
    items = re.findall(r"^- (.*)$", text, re.MULTILINE)
    assert len(items) >= 4
    assert all(item.startswith("[ ] ") for item in items)
    quoted = [word for item in items for word in re.findall(r"`([^`]+)`", item)]
    assert [word for word in quoted if word != "nox" and not (ROOT / word).exists()] == []


def test_a_tool_can_cite_the_package() -> None:
    assert citation_mistakes(loaded(ROOT / "CITATION.cff")) == []


# ---------------------------------------------------------------------------------------------------- what the checks would see


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Bug"}, ["name is no text of more than three letters"]),
        ({"description": None}, ["description is no text of more than three letters"]),
        ({"about": "x"}, ["no key about"]),
        ({"body": []}, ["body asks nothing"]),
        ({"body": [{"type": "markdown", "attributes": {"value": "x"}}]}, ["body asks nothing"]),
        ({"body": [{"type": "text", "id": "a", "attributes": {"label": "A"}}]}, ["a: no type text"]),
        ({"body": [{"type": "input", "id": "a b", "attributes": {"label": "A"}}]}, ["a b: the id has other characters"]),
        ({"body": [{"type": "input", "id": "a", "attributes": {}}]}, ["a: label is empty"]),
        ({"body": [{"type": "input", "id": "a", "attributes": {"label": "A", "render": "x"}}]}, ["a: no attribute render"]),
        ({"body": [{"type": "dropdown", "id": "a", "attributes": {"label": "A"}}]}, ["a: options are missing or there twice"]),
        (
            {"body": [{"type": "input", "id": "a", "attributes": {"label": "A"}, "validations": {"required": "yes"}}]},
            ["a: required is no boolean"],
        ),
        ({"body": [{"type": "input", "id": "a", "attributes": {"label": each}} for each in "AB"]}, ["id a is there twice"]),
        ({"body": [{"type": "input", "id": each, "attributes": {"label": "A"}} for each in "ab"]}, ["label A is there twice"]),
    ],
)
def test_a_form_that_github_would_not_show_is_seen(change: dict[str, Any], said: list[str]) -> None:
    form = {"name": "A form", "description": "For a test", "body": [{"type": "input", "id": "a", "attributes": {"label": "A"}}]}
    assert form_mistakes(form) == []
    assert form_mistakes({**form, **change}) == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"message": ""}, ["message is missing"]),
        ({"authors": []}, ["authors is missing"]),
        ({"authors": [{"email": "a@example.org"}]}, ["an author has no name"]),
        ({"authors": [{"name": "A", "family-names": "B"}]}, ["no author can have family-names"]),
        ({"licence": "MIT"}, ["no key licence"]),
        ({"version": 0.1}, ["version is no str"]),
        ({"type": "library"}, ["type is neither software nor dataset"]),
        ({"date-released": "soon"}, ["date-released is no date"]),
    ],
)
def test_a_citation_that_no_tool_could_read_is_seen(change: dict[str, Any], said: list[str]) -> None:
    assert citation_mistakes({**loaded(ROOT / "CITATION.cff"), **change}) == said
