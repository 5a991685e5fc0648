"""What a failed attempt leaves in the result of one call: no text, on both paths, with the real binary and with `anthropic`.

One table of failures, and one fake API for both paths: each asserts the whole record of both, and that the two are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 120.0
ONCE = ct.RetryPolicy.none()
WORDS = ["one ", "two ", "three ", "four"]
LONG = replies.text("".join(WORDS), chunks=WORDS)


@dataclass(frozen=True)
class Case:
    """What the API does, the error of both paths, why the model stopped, and the text that a stream may have yielded before the error."""

    name: str
    script: Any
    error: type[ct.ClaudeTransportError]
    code: str
    category: str
    stop_reason: str | None = None
    heard: tuple[str, ...] = ("",)


def prefixes(text: list[str]) -> tuple[str, ...]:
    return tuple("".join(text[:count]) for count in range(len(text) + 1))


CASES = (
    Case("overloaded", replies.error(529), ct.Overloaded, "result.overloaded", "rate_limit"),
    Case("rate-limit", replies.error(429), ct.RateLimited, "result.rate_limited", "rate_limit"),
    Case(
        "mid-stream",
        replies.sse_error("overloaded_error", reply=LONG, after_events=6),
        ct.Overloaded,
        "result.overloaded",
        "rate_limit",
        heard=prefixes(WORDS[:3]),
    ),
    Case(
        "cut",
        replies.cut(LONG, after_events=6, times=None),
        ct.errors.APIFailed,
        "result.connection_failed",
        "transport",
        heard=prefixes(WORDS[:3]),
    ),
    Case("refusal", replies.refusal("No."), ct.errors.Refused, "result.refusal", "api", "refusal", heard=("No.",)),
    Case(
        "max-tokens",
        replies.max_tokens("Cut text"),
        ct.errors.APIFailed,
        "result.max_output_tokens",
        "api",
        "max_tokens",
        heard=("Cut text", "\n".join(["Cut text"] * 4)),
    ),
)


@pytest.fixture
async def api(anyio_backend: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CLAUDE_TRANSPORT", raising=False)
    async with FakeMessagesAPI() as api:
        yield api


@pytest.fixture
def options(api: FakeMessagesAPI, claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> ct.ClaudeOptions:
    return ct.ClaudeOptions(
        cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", tools=(), system_prompt="", strict_mcp_config=True
    )


def record(error: ct.ClaudeTransportError) -> dict[str, Any]:
    """All that a failed call says about its text, and why it failed."""
    there = ct.completion.partial_completion(error)
    assert there is not None
    last = [event for event in there.events if isinstance(event, ct.ResultMessage)][-1]
    result = getattr(error, "result", None)
    return {
        "error": (type(error), error.code, error.category),
        "text": there.text,
        "text_blocks": there.text_blocks,
        "raw_message": (there.raw_message.content, there.raw_message.stop_reason),
        "stop_reason": there.stop_reason,
        "structured_output": there.structured_output,
        "warnings": there.warnings,
        "attempts": there.attempts,
        "the result reports it": (
            result == last,
            last.is_error,
            last.outcome.code,
            any(word in str(last.result) for word in ("No.", "one two", "Cut text")),
        ),
    }


def expected(case: Case) -> dict[str, Any]:
    return {
        "error": (case.error, case.code, case.category),
        "text": "",
        "text_blocks": (),
        "raw_message": ([], case.stop_reason),
        "stop_reason": case.stop_reason,
        "structured_output": None,
        "warnings": (),
        "attempts": 1,
        "the result reports it": (True, True, case.code, False),
    }


@pytest.mark.needs("retries of an answer that broke off")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_text_of_a_failed_attempt_is_in_no_result(api: FakeMessagesAPI, options: ct.ClaudeOptions, case: Case) -> None:
    records = []
    for transport in ("cli", "api"):
        api.replace(case.script)
        with anyio.fail_after(PATIENCE), pytest.raises(ct.ClaudeTransportError) as caught:
            await ct.complete("Hi", transport=transport, model="haiku", options=options, retry=ONCE)
        records.append(record(caught.value))
    assert records == [expected(case)] * 2


@pytest.mark.needs("retries of an answer that broke off")
@pytest.mark.parametrize("case", [case for case in CASES if case.heard != ("",)], ids=lambda case: case.name)
async def test_the_error_of_a_stream_says_that_its_pieces_belong_to_a_failed_attempt(
    api: FakeMessagesAPI, options: ct.ClaudeOptions, case: Case
) -> None:
    """The pieces are the beginning of one answer, each once, also when the CLI would begin another one."""
    for transport in ("cli", "api"):
        api.replace(case.script)
        pieces = []
        with anyio.fail_after(PATIENCE), pytest.raises(ct.ClaudeTransportError) as caught:
            async for piece in ct.stream("Hi", transport=transport, model="haiku", options=options, retry=ONCE):
                pieces.append(piece)  # noqa: PERF401 - what came before the error counts
        there = ct.completion.partial_completion(caught.value)
        assert there is not None
        assert (type(caught.value), caught.value.code, caught.value.category) == (case.error, case.code, case.category)
        assert (there.text, there.text_blocks, there.raw_message.content) == ("", (), [])
        assert "".join(pieces) in case.heard


@pytest.mark.needs("retries of an answer that broke off")
async def test_what_the_cli_asked_for_again_after_a_refusal_is_the_whole_answer(api: FakeMessagesAPI, options: ct.ClaudeOptions) -> None:
    """The CLI asks once more by itself after a refusal. The API path does not."""
    api.replace([replies.refusal("No.", times=1), "Fine."])
    with anyio.fail_after(PATIENCE):
        completion = await ct.complete("Hi", transport="cli", model="haiku", options=options, retry=ONCE)
    content = [block.to_dict() for block in completion.raw_message.content]
    assert (completion.text, completion.text_blocks, completion.stop_reason) == ("Fine.", ("Fine.",), "end_turn")
    assert content == [{"type": "text", "text": "Fine."}]


@pytest.mark.needs("retries of an answer that broke off")
async def test_a_stream_that_has_yielded_a_refused_beginning_ends_as_refused(api: FakeMessagesAPI, options: ct.ClaudeOptions) -> None:
    for transport in ("cli", "api"):
        api.replace([replies.refusal("No.", times=1), "Fine."])
        pieces = []
        with anyio.fail_after(PATIENCE), pytest.raises(ct.errors.Refused) as caught:
            async for piece in ct.stream("Hi", transport=transport, model="haiku", options=options, retry=ONCE):
                pieces.append(piece)  # noqa: PERF401 - what came before the error counts
        assert (pieces, caught.value.code, caught.value.category) == (["No."], "result.refusal", "api")


@pytest.mark.needs("a schema that the model ignores ends the turn")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        (replies.message(replies.text_block("Just text."), times=None), "result.structured_output_missing"),
        (replies.tool_use("StructuredOutput", {"answer": "x"}, text_before="Here.", times=None), "result.structured_output_invalid"),
    ],
    ids=["missing", "invalid"],
)
async def test_an_answer_that_does_not_fit_its_schema_is_no_text(
    api: FakeMessagesAPI, options: ct.ClaudeOptions, script: Any, code: str
) -> None:
    """Only the CLI takes a schema; the API path refuses it before anything is asked."""
    schema = {"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}
    given = options.replace(output_format={"type": "json_schema", "schema": schema})
    api.replace(script)
    with anyio.fail_after(PATIENCE), pytest.raises(ct.StructuredOutputMissing) as caught:
        await ct.complete("Hi", transport="cli", model="haiku", options=given, retry=ONCE)
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert (caught.value.code, there.text, there.text_blocks, there.structured_output) == (code, "", (), None)
    assert there.raw_message.content == []
    with pytest.raises(ct.ConfigurationError) as refused:
        await ct.complete("Hi", transport="api", model="haiku", options=given, retry=ONCE)
    assert refused.value.option == "output_format"
