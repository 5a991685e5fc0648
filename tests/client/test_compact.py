"""`query.compact()`: one turn that sends `/compact` and gives the boundary, or an error that says why there is none."""

from __future__ import annotations

from typing import Any

import pytest
from peers import ForeignTransport, answer_to, result, said

from claude_transport import ClaudeOptions, Query, ResultError, TransportWrapper, UsageError
from claude_transport.messages import CompactBoundary
from claude_transport.transports import Client, SessionTerms

METADATA = {"trigger": "manual", "pre_tokens": 12443, "post_tokens": 2545, "cumulative_dropped_tokens": 9898, "duration_ms": 20}
INIT = {"type": "system", "subtype": "init", "session_id": "s", "uuid": "i"}
BOUNDARY = {"type": "system", "subtype": "compact_boundary", "session_id": "s", "uuid": "b", "compact_metadata": METADATA}


class Compacts(ForeignTransport):
    """Answers each prompt with these frames."""

    def __init__(self, *frames: dict[str, Any]) -> None:
        super().__init__(answers=False, on_write=self.play)
        self.frames = frames

    def play(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "control_request":
            self.say(answer_to(frame))
        elif frame["type"] == "user":
            for answer in self.frames:
                self.say(answer)


class Verbatim(TransportWrapper):
    """A transport whose options send prompts as they are."""

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(verbatim_prompts=True)


@pytest.mark.parametrize(
    ("arguments", "sent"), [((), "/compact"), (("keep the numbers",), "/compact keep the numbers"), ((" ",), "/compact")]
)
async def test_compacting_is_a_turn_that_gives_its_boundary(arguments: tuple[str, ...], sent: str) -> None:
    transport = Compacts(INIT, BOUNDARY, result(None))
    async with Query(transport) as query:
        boundary = await query.compact(*arguments)
        assert not query.open_turns
    assert isinstance(boundary, CompactBoundary)
    assert (boundary.compact_metadata.pre_tokens, boundary.compact_metadata.post_tokens) == (12443, 2545)
    (prompt,) = transport.prompts()
    assert (prompt["message"]["content"], prompt["priority"]) == (sent, "later")


async def test_what_was_not_compacted_is_an_error_with_the_words_of_the_cli() -> None:
    async with Query(Compacts(INIT, said("Error: No messages to compact"), result(""))) as query:
        with pytest.raises(ResultError) as caught:
            await query.compact()
    assert str(caught.value) == "the conversation was not compacted: Error: No messages to compact"
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("result.failed", "api", False)
    assert caught.value.result.subtype == "success"


async def test_a_failed_turn_raises_what_failed() -> None:
    failure = {**result("API Error: 529", is_error=True, api_error_status=529)}
    async with Query(Compacts(failure)) as query:
        with pytest.raises(ResultError) as caught:
            await query.compact()
    assert "not compacted" not in str(caught.value)
    assert caught.value.result.is_error is True


async def test_it_is_refused_where_it_would_be_a_plain_prompt() -> None:
    transport = Compacts(INIT, BOUNDARY, result(None))
    async with Query(Verbatim(transport)) as query:
        with pytest.raises(UsageError, match="verbatim_prompts"):
            await query.compact()
    async with Query(plain := Compacts(INIT, BOUNDARY, result(None))) as query:
        with pytest.raises(UsageError, match="instructions is text, not int"):
            await query.compact(3)  # type: ignore[arg-type]
    assert transport.prompts() == plain.prompts() == []
    assert ClaudeOptions().verbatim_prompts is False
