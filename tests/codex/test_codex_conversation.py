"""The state machine of a conversation with Codex, on what a real one said and on what a broken one may say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codex_recordings import NAMES, entries_of, lines_of, object_on
from hypothesis import given
from hypothesis import strategies as st

from claude_transport import errors
from claude_transport.codex import (
    AgentMessageDelta,
    CodexNotification,
    CodexRequest,
    CodexTurnResult,
    CommandApproval,
    ExecEvent,
    FileChangeApproval,
    NewText,
    TurnCompleted,
    decode_message,
)
from claude_transport.codex.conversation import MAX_KEPT, MAX_TEXT_CHARS, MAX_UNCLAIMED, CodexConversation, TurnRecord
from claude_transport.codex.errors import error_of
from claude_transport.codex.messages import NOTIFICATIONS
from claude_transport.codex.watch import CodexWatch, TurnEnded

APP = [name for name in NAMES if name.startswith("app_") and name not in ("app_unix_socket", "app_websocket")]


def run(name: str) -> tuple[CodexConversation, list[TurnRecord]]:
    """Feed a recording to a conversation as the session does. Returns it, and the turn of each prompt."""
    conversation = CodexConversation()
    turns: list[TurnRecord] = []
    asked: dict[Any, dict[str, Any]] = {}
    for entry in entries_of(name):
        value = object_on(entry["line"].encode()) if entry["dir"] in ("in", "out") else None
        if value is None:
            continue
        if entry["dir"] == "in":
            if "method" in value:
                asked[value.get("id")] = value
            if value.get("method") == "turn/start":
                conversation.expect(value["params"]["threadId"])
        elif "method" not in value:
            request = asked[value["id"]]
            if request["method"] in ("thread/start", "thread/resume", "thread/fork") and "result" in value:
                conversation.thread(value["result"]["thread"]["id"])
            if request["method"] == "turn/start":
                if "result" in value:
                    turns.append(conversation.claim(request["params"]["threadId"], value["result"]["turn"]["id"]))
                else:
                    conversation.give_up(request["params"]["threadId"])
        else:
            message = decode_message(entry["line"].encode())
            if isinstance(message, CodexNotification):
                conversation.take(message)
    return conversation, turns


def results(name: str) -> list[CodexTurnResult]:
    return [turn.result for turn in run(name)[1] if turn.result is not None]


EXPECTED = {
    "app_text": [("completed", "Hello, world")] * 2,
    "app_401": [("failed", "")],
    "app_429": [("failed", "")],
    "app_500": [("failed", "")],
    "app_response_failed_context": [("failed", "")],
    "app_command_accept": [("completed", "Hello, world")],
    "app_command_cancel": [("interrupted", "")],
    "app_command_decline": [("completed", "Hello, world")],
    "app_command_error_answer": [("completed", "Hello, world")],
    "app_command_nonsense_answer": [("completed", "Hello, world")],
    "app_file_accept": [("completed", "Hello, world")],
    "app_dynamic_tool": [("completed", "Hello, world")],
    "app_interrupt": [("interrupted", "slow "), ("completed", "Hello, world")],
    "app_interrupt_while_a_command_runs": [("interrupted", "")],
    "app_steer": [("completed", "steered")] * 2,
    "app_resume_2": [("completed", "again")],
    "app_two_threads_at_once": [("completed", "slow slow slow slow slow ")] * 2,
    "app_large_lines": [("completed", "Hello, world")],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_turn_of_a_recording_ends_as_it_did(name: str) -> None:
    assert [(result.status, result.text) for result in results(name)] == EXPECTED[name]


@pytest.mark.parametrize("name", APP)
def test_only_the_end_of_its_own_turn_ends_a_turn(name: str) -> None:
    conversation, turns = run(name)
    ended = {message.turn.id for line in lines_of(name) if isinstance(message := decode_message(line), TurnCompleted)}
    assert {turn.turn_id for turn in turns if turn.result is not None} == ended & {turn.turn_id for turn in turns}
    assert {turn.turn_id for turn in conversation.running} == {turn.turn_id for turn in turns} - ended


def test_a_turn_that_was_dropped_at_the_end_of_input_has_no_result() -> None:
    for name in ("app_eof_during_turn", "app_sigterm_during_turn"):
        conversation, (turn,) = run(name)
        assert conversation.running == (turn,)
        assert (turn.result, turn.text) == (None, "slow ")


def test_a_prompt_during_a_turn_is_folded_into_it() -> None:
    _, (first, second) = run("app_steer")
    assert first is second
    assert first.claims == 2


def test_two_threads_with_the_same_item_ids_are_kept_apart() -> None:
    _, (one, two) = run("app_two_threads_at_once")
    assert one.thread_id != two.thread_id
    assert one.text == two.text == "slow slow slow slow slow "


def test_tokens_are_counted_for_each_turn_and_the_whole_thread() -> None:
    first, second = results("app_text")
    for result in (first, second):
        assert result.usage.to_dict() == {
            "totalTokens": 107,
            "inputTokens": 100,
            "cachedInputTokens": 40,
            "cacheWriteInputTokens": 0,
            "outputTokens": 7,
            "reasoningOutputTokens": 2,
        }
    assert (first.thread_usage.total_tokens, second.thread_usage.total_tokens) == (107, 214)
    (tool,) = results("app_dynamic_tool")  # two requests to the model in one turn
    assert (tool.usage.total_tokens, tool.thread_usage.total_tokens) == (214, 214)
    (resumed,) = results("app_resume_2")  # Codex repeats what the thread had used before
    assert (resumed.usage.total_tokens, resumed.thread_usage.total_tokens) == (107, 214)


def test_a_retry_is_counted_and_is_no_failure() -> None:
    (result,) = results("app_429")
    assert result.retries == 1
    assert isinstance(result.error, errors.RateLimited)
    turn = TurnRecord("T", "U")
    for message in (retry(), completed()):
        turn.take(message)
    assert turn.result is not None
    assert (turn.result.status, turn.result.error, turn.result.retries) == ("completed", None, 1)


# Messages as Codex writes them


def said(method: str, *, thread: str = "T", **params: Any) -> Any:
    return decode_message(json.dumps({"method": method, "params": {"threadId": thread, **params}}).encode())


def started(text: str = "", name: str = "msg_1", turn: str = "U", phase: str | None = None) -> Any:
    return said("item/started", turnId=turn, item={"type": "agentMessage", "id": name, "text": text, "phase": phase})


def finished(text: str, name: str = "msg_1", turn: str = "U", phase: str | None = None) -> Any:
    return said("item/completed", turnId=turn, item={"type": "agentMessage", "id": name, "text": text, "phase": phase})


def delta(text: str, name: str = "msg_1", turn: str = "U") -> Any:
    return said("item/agentMessage/delta", turnId=turn, itemId=name, delta=text)


def retry() -> Any:
    info = {"responseStreamDisconnected": {"httpStatusCode": None}}
    return said("error", turnId="U", willRetry=True, error={"message": "Reconnecting... 1/1", "codexErrorInfo": info})


def unreachable() -> Any:
    """What the real Codex says, of all versions from 0.150 to 0.169, when the connection is refused, and when DNS or TLS fail."""
    info = {"responseStreamDisconnected": {"httpStatusCode": None}}
    details = "Connection failed: error sending request"
    said_of_it = {"message": "Reconnecting... waiting for network", "codexErrorInfo": info, "additionalDetails": details}
    return said("error", turnId="U", willRetry=True, error=said_of_it)


def begun(turn: str = "U", thread: str = "T") -> Any:
    return said("turn/started", thread=thread, turn={"id": turn, "status": "inProgress"})


def completed(turn: str = "U", status: str = "completed", thread: str = "T", **fields: Any) -> Any:
    return said("turn/completed", thread=thread, turn={"id": turn, "status": status, **fields})


AGAIN = {
    "the same again": ([started(), delta("Hello"), retry(), started(), delta("Hello"), delta(", world")], "Hello, world", "Hello, world"),
    "cut differently": (
        [started(), delta("Hel"), delta("lo"), started(), delta("Hello, "), delta("world")],
        "Hello, world",
        "Hello, world",
    ),
    "shorter than before": ([started(), delta("Hello, world"), started(), delta("Hello")], "Hello", "Hello, world"),
    "another course": ([started(), delta("slow "), started(), delta("steered")], "steered", "slow steered"),
    "another course later": ([started(), delta("a b"), started(), delta("a "), delta("c")], "a c", "a ba c"),
    "two messages of one id": ([started(), delta("one"), finished("one"), started(), delta("two"), finished("two")], "two", "onetwo"),
    "without deltas": ([started(), finished("whole")], "whole", "whole"),
    "without a beginning": ([delta("Hello")], "Hello", "Hello"),
    "under another id": (
        [started(), delta("Hel"), retry(), started(name="b"), delta("Hello", "b"), delta(" there", "b"), finished("Hello there", "b")],
        "Hello there",
        "Hello there",
    ),
    "under another id, at once": ([started(), delta("Hel"), retry(), finished("Hello", "b")], "Hello", "Hello"),
    "under another id, another course": ([started(), delta("Hello"), retry(), started(name="b"), delta("Bye", "b")], "Bye", "HelloBye"),
    "under the same id after a retry": ([started(), delta("Hel"), retry(), started(), delta("Hello")], "Hello", "Hello"),
    "again and then at once": ([started(), delta("slow "), started(), finished("steered")], "steered", "slow steered"),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_text_that_is_said_again_is_there_once(name: str) -> None:
    messages, text, shown = AGAIN[name]
    turn, new = TurnRecord("T", "U"), NewText()
    pieces = []
    for message in messages:
        turn.take(message)
        pieces.append(new.of(message))
    assert turn.text == text
    assert "".join(pieces) == shown


def test_the_answer_is_the_final_message_or_else_the_last_one() -> None:
    turn = TurnRecord("T", "U")
    for message in (finished("I look.", "a", phase="commentary"), finished("42", "b", phase="final_answer"), finished("Bye.", "c")):
        turn.take(message)
    assert turn.text == "42"


def test_the_summary_of_a_turn_holds_the_answer_when_nothing_else_did() -> None:
    turn = TurnRecord("T", "U")
    turn.take(completed(items=[{"type": "agentMessage", "id": "m", "text": "whole"}]))
    assert turn.result is not None
    assert turn.result.text == "whole"


@pytest.mark.parametrize("fields", [{"status": "failed"}, {"status": "exploded", "error": {"message": "x"}}])
def test_a_failed_turn_has_an_error_also_when_codex_gives_no_reason(fields: Any) -> None:
    turn = TurnRecord("T", "U")
    turn.take(completed(**fields))
    assert turn.result is not None
    assert turn.result.status == "failed"
    assert isinstance(turn.result.error, errors.APIFailed)


# The order of an answer and of what follows it


def test_a_turn_may_begin_and_end_before_its_prompt_is_answered() -> None:
    conversation = CodexConversation()
    conversation.expect("T")
    for message in (begun(), delta("Hello"), completed()):
        conversation.take(message)
    turn = conversation.claim("T", "U")
    assert turn.result is not None
    assert turn.result.text == "Hello"
    assert conversation.running == ()


def test_a_turn_whose_beginning_was_silenced_ends_all_the_same() -> None:
    conversation = CodexConversation()
    conversation.expect("T")
    conversation.take(completed())
    turn = conversation.claim("T", "U")
    assert turn.result is not None


def test_a_prompt_may_be_answered_before_its_turn_begins() -> None:
    conversation = CodexConversation()
    conversation.expect("T")
    turn = conversation.claim("T", "U")
    assert conversation.running == (turn,)
    assert conversation.take(begun()) is turn
    conversation.take(completed("another"))
    assert turn.result is None
    conversation.take(completed())
    assert turn.result is not None


def test_a_turn_that_waits_for_the_network_has_failed_when_it_is_interrupted() -> None:
    conversation = CodexConversation()
    conversation.expect("T")
    turn = conversation.claim("T", "U")
    for message in (begun(), retry()):
        conversation.take(message)
    assert turn.unreachable is None  # Codex counts: it gives up by itself
    conversation.take(unreachable())
    assert turn.unreachable is not None
    conversation.take(completed(status="interrupted"))
    result = turn.result
    assert result is not None
    assert result.error is not None
    assert (result.status, result.retries, result.error.code, type(result.error)) == (
        "failed",
        2,
        "result.connection_failed",
        errors.APIFailed,
    )
    assert result.error.reason == "Connection failed: error sending request"
    with pytest.raises(errors.APIFailed) as caught:
        result.raise_for_error()
    assert (caught.value.code, caught.value.retryable) == ("result.connection_failed", True)


def test_a_turn_whose_network_came_back_is_complete() -> None:
    conversation = CodexConversation()
    conversation.expect("T")
    turn = conversation.claim("T", "U")
    for message in (begun(), unreachable(), started(), finished("Hello"), completed()):
        conversation.take(message)
    assert turn.result is not None
    assert (turn.result.status, turn.result.error, turn.result.text) == ("completed", None, "Hello")


def test_observers_are_told_that_such_a_turn_has_failed() -> None:
    watch = CodexWatch()
    ended = [event for message in (begun(), unreachable(), completed(status="interrupted")) for event in watch.heard(message)][-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.result.is_error, ended.result.outcome.code) == (True, "result.connection_failed")
    ended = [event for message in (begun("V"), completed("V", status="interrupted")) for event in watch.heard(message)][-1]
    assert isinstance(ended, TurnEnded)
    assert ended.result.outcome.code == "result.interrupted"


def test_what_belongs_to_no_turn_of_this_program_makes_none() -> None:
    conversation = CodexConversation()
    conversation.thread("T")
    for message in (delta("x", turn="old"), completed("old"), begun(thread="elsewhere"), completed(thread="elsewhere")):
        assert conversation.take(message) is None
    assert conversation.running == ()


def test_turns_that_nothing_claims_are_bounded() -> None:
    conversation = CodexConversation()
    conversation.expect("T")
    records = [conversation.take(begun(f"U{number}")) for number in range(3 * MAX_UNCLAIMED)]
    assert len({id(record) for record in records}) == 3 * MAX_UNCLAIMED
    assert conversation.take(delta("x", turn="U0")) is None  # forgotten
    assert conversation.take(delta("x", turn=f"U{3 * MAX_UNCLAIMED - 1}")) is records[-1]


def test_of_many_messages_of_the_model_in_one_turn_the_last_are_kept() -> None:
    turn = TurnRecord("T", "U")
    turn.take(finished("the answer", "first", phase="final_answer"))
    for number in range(MAX_KEPT - 1):
        turn.take(finished(f"text {number}", f"m{number}"))
    assert turn.text == "the answer"
    turn.take(finished("one too many", "last"))
    assert turn.text == "one too many"


def test_of_many_messages_that_never_end_the_oldest_are_forgotten() -> None:
    turn = TurnRecord("T", "U")
    for number in range(MAX_KEPT + 1):
        turn.take(started(f"begun {number}", f"m{number}"))
    turn.take(delta("?", "m1"))
    assert turn.text == f"begun {MAX_KEPT}", "m1 is still open, and its piece joins it"
    turn.take(delta("?", "m0"))
    assert turn.text == "?", "m0 was forgotten, and its piece begins a message"


def test_of_many_file_changes_that_are_asked_about_the_oldest_are_forgotten() -> None:
    turn = TurnRecord("T", "U")
    for number in range(MAX_KEPT + 1):
        changes = [{"path": f"/{number}", "kind": {"type": "add"}, "diff": ""}]
        turn.take(
            said("item/started", turnId="U", item={"type": "fileChange", "id": f"c{number}", "changes": changes, "status": "inProgress"})
        )
    assert [[change.path for change in turn.changes_of(name)] for name in ("c0", "c1", f"c{MAX_KEPT}")] == [[], ["/1"], [f"/{MAX_KEPT}"]]


def test_a_text_without_an_end_is_kept_up_to_a_bound() -> None:
    turn, piece = TurnRecord("T", "U"), AgentMessageDelta(thread_id="T", turn_id="U", item_id="m", delta="x" * (MAX_TEXT_CHARS // 4))
    for _ in range(6):
        turn.take(piece)
    assert len(turn.text) == MAX_TEXT_CHARS


def test_the_end_of_a_turn_without_an_id_ends_none_for_observers() -> None:
    watch = CodexWatch()
    for line in (b'{"method":"turn/completed","params":{"threadId":"t","turn":{"status":"completed"}}}', b'{"method":"turn/completed"}'):
        assert watch.heard(decode_message(line)) == []


def test_a_question_waits_until_it_is_answered_or_moot() -> None:
    conversation, _ = run("app_file_accept")
    asked = [message for line in lines_of("app_file_accept") if isinstance(message := decode_message(line), FileChangeApproval)]
    conversation.ask(asked[0])
    assert conversation.pending_approvals == (asked[0],)
    conversation.take(said("serverRequest/resolved", requestId=0))
    assert conversation.pending_approvals == ()
    assert not conversation.answer(0)


def test_a_question_about_files_finds_the_changes_that_came_before_it() -> None:
    conversation = CodexConversation()
    for line in lines_of("app_file_accept"):
        message = decode_message(line)
        if isinstance(message, CodexNotification):
            conversation.thread(message.thread_id)
            conversation.take(message)
        elif isinstance(message, FileChangeApproval):
            assert [change.diff for change in conversation.changes_of(message)] == ["first line\n"]
            return
    raise AssertionError("no question")


# What a failure means


def test_the_result_of_an_interrupted_turn_raises_that_it_was_interrupted() -> None:
    result = next(result for result in results("app_interrupt") if result.status == "interrupted")
    with pytest.raises(errors.RunInterrupted) as caught:
        result.raise_for_error()
    assert (caught.value.code, caught.value.result, result.ok, result.error) == ("result.interrupted", result, False, None)


def test_the_result_of_a_failed_turn_raises_a_new_error_each_time_and_that_of_a_complete_one_none() -> None:
    (failed,) = results("app_429")
    raised = []
    for _ in range(2):
        with pytest.raises(errors.RateLimited) as caught:
            failed.raise_for_error()
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert failed.error is not None
    assert {(each.code, each.reason, each.resets_at) for each in raised} == {("result.rate_limited", failed.error.reason, None)}
    for complete in results("app_text"):
        complete.raise_for_error()


CODES = {
    "app_401": ("exec.cli.auth_failed", False),
    "app_429": ("result.rate_limited", True),
    "app_500": ("result.server_error", True),
    "app_response_failed_context": ("result.prompt_too_long", False),
}


@pytest.mark.parametrize("name", CODES)
def test_a_recorded_failure_has_the_code_that_it_has_with_claude(name: str) -> None:
    (result,) = results(name)
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == CODES[name]
    assert isinstance(result.error.result, TurnCompleted)
    assert result.turn_error is not None
    assert result.error.reason in result.turn_error.message


EXEC_CODES = {
    "exec_400": "result.invalid_request",
    "exec_401": "exec.cli.auth_failed",
    "exec_429": "result.rate_limited",
    "exec_500": "result.server_error",
    "exec_no_key": "exec.cli.auth_failed",
    "exec_stream_cut": "result.connection_failed",
}


@pytest.mark.parametrize("name", EXEC_CODES)
def test_the_words_decide_where_codex_gives_nothing_else(name: str) -> None:
    (event,) = [message for line in lines_of(name) if isinstance(message := decode_message(line), ExecEvent) and message.error is not None]
    assert event.error is not None
    assert error_of(event.error).code == error_of(event.error.message).code == EXEC_CODES[name]


INFOS: dict[str, tuple[Any, type[errors.ResultError], str]] = {
    "contextWindowExceeded": ("contextWindowExceeded", errors.PromptTooLong, "result.prompt_too_long"),
    "sessionBudgetExceeded": ("sessionBudgetExceeded", errors.BudgetExceeded, "result.budget"),
    "usageLimitExceeded": ("usageLimitExceeded", errors.RateLimited, "result.rate_limited"),
    "rateLimitExceeded": ("rateLimitExceeded", errors.RateLimited, "result.rate_limited"),
    "serverOverloaded": ("serverOverloaded", errors.Overloaded, "result.overloaded"),
    "flexUnavailable": ("flexUnavailable", errors.Overloaded, "result.overloaded"),
    "policyCapacityUnavailable": ("policyCapacityUnavailable", errors.Overloaded, "result.overloaded"),
    "modelNotFound": ("modelNotFound", errors.ModelNotFound, "result.model_not_found"),
    "cyberPolicy": ("cyberPolicy", errors.Refused, "result.refusal"),
    "misalignmentPolicyViolation": ("misalignmentPolicyViolation", errors.Refused, "result.refusal"),
    "inferenceHookDenied": ("inferenceHookDenied", errors.Refused, "result.refusal"),
    "internalServerError": ("internalServerError", errors.APIFailed, "result.server_error"),
    "unauthorized": ("unauthorized", errors.AuthFailed, "exec.cli.auth_failed"),
    "badRequest": ("badRequest", errors.APIFailed, "result.invalid_request"),
    "other": ("other", errors.APIFailed, "result.api_error"),
    "nothing": (None, errors.APIFailed, "result.api_error"),
    "a new text": ("somethingNew", errors.APIFailed, "result.api_error"),
    "a new object": ({"somethingNew": {"httpStatusCode": 401}}, errors.APIFailed, "result.api_error"),
    "rubbish": ([1, 2], errors.APIFailed, "result.api_error"),
    "401": ({"httpConnectionFailed": {"httpStatusCode": 401}}, errors.AuthFailed, "exec.cli.auth_failed"),
    "403": ({"responseStreamConnectionFailed": {"httpStatusCode": 403}}, errors.AuthFailed, "exec.cli.auth_failed"),
    "402": ({"httpConnectionFailed": {"httpStatusCode": 402}}, errors.BillingFailed, "result.billing"),
    "404": ({"httpConnectionFailed": {"httpStatusCode": 404}}, errors.ModelNotFound, "result.model_not_found"),
    "418": ({"httpConnectionFailed": {"httpStatusCode": 418}}, errors.APIFailed, "result.invalid_request"),
    "429": ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, errors.RateLimited, "result.rate_limited"),
    "529": ({"responseStreamDisconnected": {"httpStatusCode": 529}}, errors.Overloaded, "result.overloaded"),
    "599": ({"responseStreamDisconnected": {"httpStatusCode": 599}}, errors.APIFailed, "result.server_error"),
    "no status": ({"responseStreamDisconnected": {"httpStatusCode": None}}, errors.APIFailed, "result.connection_failed"),
    "no facts": ({"httpConnectionFailed": None}, errors.APIFailed, "result.connection_failed"),
}


@pytest.mark.parametrize("name", INFOS)
def test_the_info_of_codex_decides_which_error_it_is(name: str) -> None:
    info, kind, code = INFOS[name]
    message = completed(status="failed", error={"message": "it did not work", "codexErrorInfo": info})
    error = error_of(message.turn.error)
    assert type(error) is kind
    assert error.code == code


def test_the_info_decides_before_the_words() -> None:
    message = completed(status="failed", error={"message": "rate limit 429", "codexErrorInfo": "unauthorized"})
    assert isinstance(error_of(message.turn.error), errors.AuthFailed)


WORDS = {
    "You've hit your usage limit. Try again at 5 PM.": "result.rate_limited",
    "unexpected status 503 Service Unavailable: x": "result.server_error",
    "exceeded retry limit, last status: 429 Too Many Requests": "result.rate_limited",
    '{"error": {"code": "model_not_found", "message": "x"}}': "result.model_not_found",
    '{"error": {"type": "insufficient_quota", "message": "x"}}': "result.billing",
    '{"error": "x"}': "result.api_error",
    "{" * 100_000: "result.api_error",
    "": "result.api_error",
}


@pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))
def test_words_alone_name_the_usual_causes(words: str) -> None:
    assert error_of(words).code == WORDS[words]


def test_an_error_holds_no_secret_of_the_message() -> None:
    key = "sk-proj-" + "a1B2" * 12
    error = error_of(f"unexpected status 401 Unauthorized: Incorrect API key provided: {key}")
    assert key not in str(error)
    assert key not in str(error)


def test_requests_of_codex_are_typed() -> None:
    kinds = {type(message) for name in APP for line in lines_of(name) if isinstance(message := decode_message(line), CodexRequest)}
    assert {CommandApproval, FileChangeApproval} <= kinds


# Anything, in any order

ANY = st.sampled_from(["T", "U", "m", "", 7, None, {}, []])
KIND = st.sampled_from(["agentMessage", "fileChange", "reasoning", "new"])
STATUS = st.sampled_from(["completed", "failed", "inProgress", "odd"])
ITEMS = st.fixed_dictionaries({"type": KIND, "id": ANY, "text": ANY, "changes": ANY})
TURNS = st.fixed_dictionaries({"id": ANY, "status": STATUS, "items": ANY, "error": ANY})
PLAIN = dict.fromkeys(["turnId", "itemId", "delta", "tokenUsage", "requestId", "status"], ANY)
FIELDS = st.fixed_dictionaries({}, optional=PLAIN | {"item": ITEMS, "turn": TURNS})
SAID = st.tuples(st.sampled_from([*NOTIFICATIONS, "brand/new"]), st.sampled_from(["T", "other", 7, None]), FIELDS)


@given(st.lists(SAID | st.sampled_from(["expect", "claim", "give up"]), max_size=30))
def test_nothing_that_codex_says_breaks_the_conversation(said_things: list[Any]) -> None:
    conversation, new = CodexConversation(), NewText()
    conversation.thread("T")
    for thing in said_things:
        if thing == "expect":
            conversation.expect("T")
        elif thing == "claim":
            assert conversation.claim("T", "U").turn_id == "U"
        elif thing == "give up":
            conversation.give_up("T")
        else:
            method, thread, fields = thing
            message = decode_message(json.dumps({"method": method, "params": {"threadId": thread, **fields}}).encode())
            assert isinstance(message, CodexNotification)
            conversation.take(message)
            new.of(message)
        for turn in conversation.running:
            assert turn.result is None
            assert isinstance(turn.text, str)
