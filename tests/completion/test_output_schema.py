"""Whether an answer fits a JSON schema, for an agent that does not check it; and which schemas are refused before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest

from claude_transport.agents.output_schema import check_schema, find_misfit
from claude_transport.errors import ConfigurationError

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": ["integer", "null"], "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (PERSON, {"name": "Ada", "age": 36}, {"name": "Ada"}),
        (PERSON, {"name": "Ada", "age": None}, {"name": "Ada", "age": 1.5}),
        (PERSON, {"name": "Ada", "age": 36.0}, {"name": "Ada", "age": 36, "born": 1815}),
        (PERSON, {"name": "Ada", "age": 0}, {"name": "", "age": 0}),
        (PERSON, {"name": "Ada", "age": 0}, {"name": "Ada", "age": -1}),
        (PERSON, {"name": "Ada", "age": 0}, [{"name": "Ada", "age": 0}]),
        (TREE, [[], [[]]], [[], [1]]),
        ({"type": "integer"}, 10**400, True),
        ({"type": "number"}, 1.5, "1.5"),
        ({"type": "boolean"}, False, 0),
        ({"enum": ["a", 1, None]}, 1.0, True),
        ({"const": {"a": [1, False]}}, {"a": [1, False]}, {"a": [1, 0]}),
        ({"const": [1, 2]}, [1, 2], [1]),
        ({"const": [1]}, [1], [1, 2]),
        ({"const": {"a": 1}}, {"a": 1}, {"a": 1, "b": 2}),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, 3, 2),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 2, 3),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 2, 3),
        ({"not": {"type": "null"}}, 0, None),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 2.5}, 2, 1),
        ({"exclusiveMaximum": 2.5}, 2, 2.5),
        ({"multipleOf": 0.1}, 0.3, 0.35),
        ({"pattern": "^a+$", "maxLength": 3}, "aaa", "aaaa"),
        ({"pattern": "^a+$"}, "a", "b"),
        ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, [1, 2], [1, 1]),
        ({"minItems": 1}, [1], []),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1], ["a", "b"]),
        ({"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": {"type": "string"}}, {"x-a": 1, "b": "c"}, {"b": 1}),
        ({"properties": {"never": False}}, {}, {"never": 1}),
        ({"minProperties": 1, "maxProperties": 1}, {"a": 1}, {}),
    ],
)
def test_a_value_that_fits_is_accepted_and_one_that_does_not_is_told_why(schema: Any, good: Any, bad: Any) -> None:
    check_schema(schema)
    assert find_misfit(good, schema) is None
    assert str(find_misfit(bad, schema)).startswith("the answer")


def test_keywords_that_only_describe_restrict_no_value() -> None:
    schema = {"title": "anything", "format": "date", "description": "no restriction", "default": 1, "examples": [2], "$comment": "none"}
    check_schema(schema)
    assert [find_misfit(value, schema) for value in ("x", 1, None, [], {})] == [None] * 5


def test_the_place_of_the_misfit_is_named() -> None:
    schema = {"properties": {"people": {"items": PERSON}}}
    told = find_misfit({"people": [{"name": "Ada", "age": 1}, {"name": 5, "age": 1}]}, schema)
    assert told == "the answer.people[1].name is 5, and not of the type 'string'"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"unevaluatedProperties": False}, "the keyword 'unevaluatedProperties' is not known here"),
        ({"properties": {"a": {"if": {}}}}, "the keyword 'if'"),
        ({"type": "text"}, "type must be one of object"),
        ({"type": 5}, "type must be one of object"),
        ({"required": "name"}, "required must be a list of texts"),
        ({"required": ["name", 1]}, "required must be a list of texts"),
        ({"properties": []}, "properties must be an object of schemas"),
        ({"anyOf": {}}, "anyOf must be a list of schemas"),
        ({"items": [{}]}, "is no schema"),
        ({"pattern": "("}, "is no pattern"),
        ({"patternProperties": {"(": {}}}, "is no pattern"),
        ({"minimum": "0"}, "minimum must be a number"),
        ({"minimum": float("inf")}, "minimum must be a number"),
        ({"multipleOf": 0}, "multipleOf must be a number"),
        ({"enum": "abc"}, "enum must be a list"),
        ({"uniqueItems": 1}, "uniqueItems must be a boolean"),
        ({"$ref": 5}, r"\$ref must be a text"),
        ({"$ref": "https://example.org/schema"}, "does not name a place"),
        ({"$ref": "#/$defs/missing"}, "there is no schema at"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused_by_name(schema: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        check_schema(schema)
    assert caught.value.option == "output_format"


def test_depth_without_end_is_a_misfit_and_no_crash() -> None:
    endless: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    check_schema(endless)
    assert find_misfit(1, endless) == "the answer is nested too deep to be checked"
    deep: Any = {}
    for _ in range(20_000):
        deep = {"not": deep}
    with pytest.raises(ConfigurationError, match="nested too deep"):
        check_schema(deep)


@pytest.mark.parametrize(("letters", "shown"), [(118, f"'{'x' * 118}'"), (119, f"'{'x' * 119}…"), (10_000, f"'{'x' * 119}…")])
def test_of_a_long_value_120_characters_are_shown(letters: int, shown: str) -> None:
    assert find_misfit("x" * letters, {"type": "integer"}) == f"the answer is {shown}, and not of the type 'integer'"
