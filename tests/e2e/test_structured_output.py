"""Structured output of the real CLI: there when the model keeps to the schema, and a typed failure when it does not."""

from __future__ import annotations

import pytest
from live_session import Live

from claude_transport import errors
from claude_transport.testing import replies

SCHEMA = {"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.version_sensitive
async def test_the_answer_comes_as_the_schema_says(live: Live) -> None:
    async with live([replies.tool_use("StructuredOutput", {"answer": 42}), "Done."], output_format=FORMAT) as session:
        result = (await session.ask("What is it?")).raise_for_error()
    assert result.structured_output == {"answer": 42}


async def test_an_answer_that_does_not_fit_is_asked_for_again(live: Live) -> None:
    script = [replies.tool_use("StructuredOutput", {"answer": "x"}), replies.tool_use("StructuredOutput", {"answer": 42}), "Done."]
    async with live(script, output_format=FORMAT) as session:
        assert (await session.ask("What is it?")).structured_output == {"answer": 42}
        assert "must be number" in session.told(1)[0]


async def test_an_answer_that_never_fits_is_a_typed_failure(live: Live) -> None:
    async with live(replies.tool_use("StructuredOutput", {"answer": "x"}, times=None), output_format=FORMAT) as session:
        result = await session.ask("What is it?")
    assert (result.subtype, result.structured_output) == ("error_max_structured_output_retries", None)
    with pytest.raises(errors.StructuredOutputMissing) as caught:
        result.raise_for_error()
    assert caught.value.code == "result.structured_output_invalid"


@pytest.mark.needs("a schema that the model ignores ends the turn")
async def test_a_model_that_leaves_the_schema_alone_is_a_typed_failure_although_the_cli_calls_it_success(live: Live) -> None:
    async with live("Just text.", output_format=FORMAT) as session:
        result = await session.ask("What is it?")
    assert (result.subtype, result.is_error, result.structured_output) == ("success", False, None)
    with pytest.raises(errors.StructuredOutputMissing) as caught:
        result.raise_for_error()
    assert caught.value.code == "result.structured_output_missing"
