"""The messages of a Codex turn as `complete()` sees them: those that `claude` would send for the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from codex_recordings import lines_of

import claude_transport as ct
from claude_transport.codex.calling import CodexTranslation
from claude_transport.codex.conversation import CodexConversation, CodexTurnResult
from claude_transport.codex.messages import CodexNotification, TurnStarted, decode_message
from claude_transport.completion.assembly import TextFlow, assemble, may_have_side_effects
from claude_transport.protocol.messages import APIRetryMessage, InitMessage

THREAD, TURN = "thread-1", "turn-1"


class Translated:
    """The first turn of the given lines, translated."""

    def __init__(self, lines: Any, *, schema: Mapping[str, Any] | None = None) -> None:
        conversation = CodexConversation()
        translation = CodexTranslation(session_id=THREAD, model="gpt-5.5", schema=schema)
        self.flow = TextFlow()
        self.pieces: list[str] = []
        self.taken_back = 0
        self.messages: list[ct.Message] = [translation.begin()]
        self.ended: CodexTurnResult | None = None
        for message in map(decode_message, lines):
            if not isinstance(message, CodexNotification):
                continue
            if isinstance(message, TurnStarted):  # as a session does, when it has sent the prompt
                conversation.expect(message.thread_id)
                conversation.claim(message.thread_id, message.turn.id)
            turn = conversation.take(message)
            for said in translation.read(message):
                self._hear(said)
            if turn is not None and turn.result is not None:
                self.ended = turn.result
                self._hear(translation.result(turn.result))
                return

    def _hear(self, message: ct.Message) -> None:
        self.taken_back += isinstance(message, ct.StreamEvent) and message.abandoned_blocks is not None
        if piece := self.flow.hear(message):
            self.pieces.append(piece)
        if not isinstance(message, ct.StreamEvent):
            self.messages.append(message)

    @property
    def result(self) -> ct.ResultMessage:
        found = self.messages[-1]
        assert isinstance(found, ct.ResultMessage)
        return found


def notification(method: str, **params: Any) -> bytes:
    return json.dumps({"method": method, "params": {"threadId": THREAD, "turnId": TURN, **params}}).encode()


def turn_of(*lines: bytes, status: str = "completed", **turn: Any) -> list[bytes]:
    """A whole turn around these lines."""
    begun = {"id": TURN, "status": "inProgress", "items": [], "error": None}
    ended = {**begun, "status": status, **turn}
    return [notification("turn/started", turn=begun), *lines, notification("turn/completed", turn=ended)]


def started(item_id: str = "m", **item: Any) -> bytes:
    return notification("item/started", item={"type": "agentMessage", "id": item_id, "text": "", **item})


def delta(text: str, item_id: str = "m") -> bytes:
    return notification("item/agentMessage/delta", itemId=item_id, delta=text)


def said(text: str, item_id: str = "m", **item: Any) -> bytes:
    return notification("item/completed", item={"type": "agentMessage", "id": item_id, "text": text, **item})


# ------------------------------------------------------------------------------------------------------------- the recordings


def test_a_turn_of_text_has_its_words_counts_model_and_session() -> None:
    turn = Translated(lines_of("app_text"))
    found = assemble(turn.messages)
    assert (found.text, turn.pieces, turn.flow.text) == ("Hello, world", ["Hello", ", ", "world"], "Hello, world")
    assert (found.model, found.session_id, found.stop_reason) == ("gpt-5.5", THREAD, "end_turn")
    used = found.usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens, used.reasoning_tokens) == (60, 40, 7, 2)
    assert used.total_input_tokens == 100
    assert (turn.result.num_turns, turn.result.duration_ms, turn.result.is_error) == (1, 304, False)
    assert isinstance(turn.messages[0], InitMessage)
    assert not may_have_side_effects(turn.messages)


@pytest.mark.parametrize(
    ("name", "tool", "failed"),
    [
        ("app_command_accept", "commandExecution", False),
        ("app_command_decline", "commandExecution", True),
        ("app_file_accept", "fileChange", False),
        ("app_dynamic_tool", "dynamicToolCall", False),
    ],
)
def test_a_tool_is_a_call_with_its_answer(name: str, tool: str, failed: bool) -> None:
    turn = Translated(lines_of(name))
    calls = [call for message in turn.messages if isinstance(message, ct.AssistantMessage) for call in message.tool_uses]
    answers = [answer for message in turn.messages if isinstance(message, ct.UserMessage) for answer in message.tool_results]
    assert [call.name for call in calls] == [tool]
    assert [(answer.tool_use_id, answer.is_error) for answer in answers] == [(calls[0].id, failed)]
    assert may_have_side_effects(turn.messages)
    assert "status" not in calls[0].input
    assert turn.result.num_turns > 1


def test_the_output_of_a_command_is_the_content_of_its_answer() -> None:
    turn = Translated(lines_of("app_command_accept"))
    (call,) = [call for message in turn.messages if isinstance(message, ct.AssistantMessage) for call in message.tool_uses]
    (answer,) = [answer for message in turn.messages if isinstance(message, ct.UserMessage) for answer in message.tool_results]
    assert "command" in call.input
    assert isinstance(answer.content, str)
    assert answer.content


@pytest.mark.parametrize("name", ["app_401", "app_429", "app_500", "app_response_failed_context"])
def test_a_failed_turn_is_a_failed_result_with_the_words_of_codex(name: str) -> None:
    turn = Translated(lines_of(name))
    assert turn.ended is not None
    assert turn.ended.turn_error is not None
    assert (turn.result.is_error, turn.result.result) == (True, turn.ended.turn_error.message)
    assert assemble(turn.messages).failure is turn.result


def test_a_retry_of_codex_is_an_event_and_no_failure() -> None:
    turn = Translated(lines_of("app_429"))
    (retry,) = [message for message in turn.messages if isinstance(message, APIRetryMessage)]
    assert (retry.attempt, retry.max_retries, retry.error_status) == (1, 1, 429)


def test_an_interrupted_turn_says_so_and_keeps_what_was_said() -> None:
    turn = Translated(lines_of("app_interrupt"))
    assert turn.result.outcome.code == "result.interrupted"
    assert turn.flow.text
    assert assemble(turn.messages).text == ""


# --------------------------------------------------------------------------------------------------- what is said again


def test_deltas_that_are_said_again_are_not_doubled() -> None:
    turn = Translated(
        turn_of(started(), delta("Hel"), delta("lo"), started(), delta("H"), delta("ello, w"), delta("orld"), said("Hello, world"))
    )
    assert ("".join(turn.pieces), turn.flow.was_taken_back) == ("Hello, world", False)
    assert turn.pieces == ["Hel", "lo", ", w", "orld"]
    assert assemble(turn.messages).text == "Hello, world"


def retrying() -> bytes:
    return notification("error", error={"message": "Reconnecting... 1/5", "codexErrorInfo": "other"}, willRetry=True)


def test_an_answer_that_is_said_again_under_another_id_is_not_doubled() -> None:
    again = (started("b"), delta("Hello", "b"), delta(", world", "b"), said("Hello, world", "b"))
    turn = Translated(turn_of(started("a"), delta("Hel", "a"), retrying(), *again))
    assert ("".join(turn.pieces), turn.flow.was_taken_back) == ("Hello, world", False)
    assert assemble(turn.messages).text == "Hello, world"
    at_once = Translated(turn_of(started("a"), delta("Hel", "a"), retrying(), said("Hello", "b")))
    assert ("".join(at_once.pieces), at_once.flow.was_taken_back) == ("Hello", False)


def test_an_answer_that_is_not_said_again_is_taken_back() -> None:
    usage = notification("thread/tokenUsage/updated", tokenUsage={"total": {"totalTokens": 1}, "last": {"totalTokens": 1}})
    turn = Translated(turn_of(started("a"), delta("Hel", "a"), retrying(), usage, said("Bye", "b")))
    assert (turn.flow.text, turn.flow.was_taken_back) == ("Bye", True)
    assert assemble(turn.messages).text == "Bye"


def test_an_answer_is_taken_back_once_and_not_what_is_said_in_its_place() -> None:
    usage = notification("thread/tokenUsage/updated", tokenUsage={"total": {"totalTokens": 1}, "last": {"totalTokens": 1}})
    again = (started("b"), delta("By", "b"), usage, delta("e", "b"), said("Bye", "b"), usage)
    turn = Translated(turn_of(started("a"), delta("Hel", "a"), retrying(), usage, *again))
    assert (turn.flow.text, turn.taken_back) == ("Bye", 1)


def test_another_answer_in_the_second_attempt_takes_the_place_of_the_first() -> None:
    turn = Translated(turn_of(started(), delta("Hello"), started(), delta("Hi"), delta(" there"), said("Hi there")))
    assert (turn.flow.text, turn.flow.was_taken_back) == ("Hi there", True)
    assert assemble(turn.messages).text == "Hi there"


def test_a_shorter_second_attempt_takes_the_place_of_the_first() -> None:
    turn = Translated(turn_of(started(), delta("Hello, world"), started(), delta("Hello"), said("Hello")))
    assert (turn.flow.text, turn.flow.was_taken_back) == ("Hello", True)


def test_ids_that_the_model_uses_again_are_different_messages() -> None:
    one, two = (started(), delta("One."), said("One.")), (started(), delta("Two."), said("Two."))
    turn = Translated(turn_of(*one, *two))
    found = assemble(turn.messages)
    assert (found.text, found.text_blocks, turn.flow.text) == ("One.\nTwo.", ("One.", "Two."), "One.\nTwo.")
    ids = [message.message.id for message in turn.messages if isinstance(message, ct.AssistantMessage)]
    assert ids == ["m", "m#2"]


def test_a_message_without_deltas_is_one_piece_and_the_rest_of_one_that_lacks_some_is_added() -> None:
    assert Translated(turn_of(said("At once."))).pieces == ["At once."]
    turn = Translated(turn_of(started(), delta("Hel"), said("Hello")))
    assert (turn.pieces, turn.flow.was_taken_back) == (["Hel", "lo"], False)


def test_deltas_without_a_beginning_are_text_too() -> None:
    assert Translated(turn_of(delta("He"), delta("y"), said("Hey"))).pieces == ["He", "y"]


# ------------------------------------------------------------------------------------------------------------- other items


def test_an_unknown_item_counts_as_a_tool_that_may_have_changed_something() -> None:
    item = {"type": "teleport", "id": "t", "to": "Mars"}
    turn = Translated(turn_of(notification("item/started", item=item), notification("item/completed", item={**item, "status": "failed"})))
    assert may_have_side_effects(turn.messages)
    (call,) = [call for message in turn.messages if isinstance(message, ct.AssistantMessage) for call in message.tool_uses]
    assert (call.name, call.input) == ("teleport", {"to": "Mars"})


@pytest.mark.parametrize("kind", ["userMessage", "plan", "contextCompaction", "enteredReviewMode", "hookPrompt"])
def test_items_that_are_no_tools_leave_no_traces(kind: str) -> None:
    item = {"type": kind, "id": "x"}
    turn = Translated(turn_of(notification("item/started", item=item), notification("item/completed", item=item)))
    assert [type(message) for message in turn.messages] == [InitMessage, ct.ResultMessage]


def test_what_the_model_thinks_is_a_thinking_block() -> None:
    item = {"type": "reasoning", "id": "r", "summary": ["First.", "Then."], "content": []}
    turn = Translated(turn_of(notification("item/completed", item=item), said("Done.")))
    blocks = [block for message in turn.messages if isinstance(message, ct.AssistantMessage) for block in message.content]
    assert [block.type for block in blocks] == ["thinking", "text"]
    assert isinstance(blocks[0], ct.ThinkingBlock)
    assert blocks[0].thinking == "First.\n\nThen."
    assert assemble(turn.messages).text == "Done."


def test_a_model_that_took_over_is_the_model_of_the_answer() -> None:
    turn = Translated(turn_of(notification("model/rerouted", fromModel="gpt-5.5", toModel="gpt-5.5-mini", reason="x"), said("Hi")))
    assert assemble(turn.messages).model == "gpt-5.5-mini"


# ---------------------------------------------------------------------------------------------------- the answer as data

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_an_answer_that_fits_the_schema_is_data() -> None:
    turn = Translated(turn_of(said("Thinking aloud.", "a", phase="commentary"), said('{"n": 3}', "b", phase="final_answer")), schema=SCHEMA)
    assert turn.result.structured_output == {"n": 3}
    assert turn.result.outcome.ok


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("three", "result.structured_output_missing"),
        ("", "result.structured_output_missing"),
        ("[" * 100_000, "result.structured_output_missing"),
        ('{"n": "3"}', "result.structured_output_invalid"),
        ('{"n": 3, "m": 4}', "result.structured_output_invalid"),
        ("null", "result.structured_output_invalid"),
    ],
)
def test_an_answer_that_does_not_fit_is_the_same_error_as_with_claude(text: str, code: str) -> None:
    turn = Translated(turn_of(said(text)), schema=SCHEMA)
    assert turn.result.structured_output is None
    with pytest.raises(ct.StructuredOutputMissing) as caught:
        turn.result.raise_for_error()
    assert caught.value.code == code


def test_without_a_schema_json_is_only_text() -> None:
    turn = Translated(turn_of(said('{"n": 3}')))
    assert (turn.result.structured_output, turn.result.outcome.ok) == (None, True)
