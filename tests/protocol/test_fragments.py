"""A secret in several fragments of a text is removed, and everything else comes through in its order."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.protocol.fragments import FragmentRedactor, read_fragment
from claude_transport.protocol.redaction import Redactor

KNOWN = "correct-horse-battery"
REDACTOR = Redactor(secrets=[KNOWN])
STOP: dict[str, Any] = {"type": "stream_event", "event": {"type": "content_block_stop", "index": 0}}
SECRETS = {
    "a key": ("my key is ", "sk-ant-api03-0123456789abcdef0123456789abcdef", " I think"),
    "a known secret": ("say ", KNOWN, " twice"),
    "a password behind its name": ("the password: ", "hunter22x", " is old"),
    "a private key": ("", "-----BEGIN PRIVATE KEY-----\nMIIBVQ IBADAN\nBgkqhk\n-----END PRIVATE KEY-----", "\nkeep it"),
    "the user in an address": ("https://", "me:hunter22hunter22", "@host.internal/ now"),
}


def delta(text: str, *, index: int = 0, field: str = "text") -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": index, "delta": {"type": "a_delta", field: text}}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None}


def lines_through(messages: list[dict[str, Any]], knowing: Redactor = REDACTOR) -> list[dict[str, Any]]:
    """What comes out for these messages, in order, each with the number that it was given."""
    redactor: FragmentRedactor[int] = FragmentRedactor(knowing)
    out: list[tuple[int, bytes]] = []
    for number, message in enumerate(messages):
        out += redactor.feed(number, json.dumps(message).encode())
    out += redactor.rest()
    assert [number for number, _ in out] == list(range(len(messages)))
    return [json.loads(line) for _, line in out]


def text_of(messages: list[dict[str, Any]], *, field: str = "text") -> str:
    return "".join(message["event"]["delta"][field] for message in messages if "delta" in message.get("event", {}))


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 40, 500])
def test_each_of_several_secrets_leaves_its_mark_and_the_words_between_them_stay(size: int) -> None:
    text = "".join(f"the {place} is sk-ant-api03-{place * 6} and " for place in ("first", "second", "third")) + "no more"
    shown = text_of(lines_through([*map(delta, cut(text, size)), STOP]))
    assert shown == REDACTOR.text(text)
    assert shown.count("[secret]") == 3


@pytest.mark.parametrize("field", ["text", "thinking", "partial_json"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 500])
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_in_fragments_is_removed_and_the_text_around_it_stays(kind: str, size: int, field: str) -> None:
    before, secret, after = SECRETS[kind]
    shown = text_of(lines_through([*(delta(part, field=field) for part in cut(before + secret + after, size)), STOP]), field=field)
    assert shown == REDACTOR.text(before + secret + after)
    for part in ("0123456789abcdef", "battery", "hunter22", "MIIB", "Bgkqhk"):
        assert part not in shown


@pytest.mark.parametrize("field", ["text", "partial_json"])
@pytest.mark.parametrize("size", [1, 3, 7, 12, 500])
@pytest.mark.parametrize("secret", ["correct horse battery", "one line\nof two", 'a "quoted" \\ secret'])
def test_a_known_secret_of_several_words_is_removed_from_its_first_word_on(secret: str, size: int, field: str) -> None:
    redactor = Redactor(secrets=[secret])
    text = f"it is correct: {secret} and no more"
    if field == "partial_json":
        text = json.dumps({"said": text})
    shown = text_of(lines_through([*(delta(part, field=field) for part in cut(text, size)), STOP], redactor), field=field)
    assert shown == text.replace(json.dumps(secret)[1:-1] if field == "partial_json" else secret, "[secret]")


def test_what_only_begins_like_a_known_secret_comes_through() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(Redactor(secrets=["correct horse battery"]))
    assert [number for number, _ in redactor.feed(0, json.dumps(delta("a correct horse ")).encode())] == []
    lines = [*redactor.feed(1, json.dumps(delta("and a correct one ")).encode())]
    assert text_of([json.loads(line) for _, line in lines]) == "a correct horse and a correct one "


@given(words=st.lists(st.text(alphabet="abc \n", min_size=1, max_size=8), max_size=30), size=st.integers(1, 9))
def test_a_text_without_secrets_keeps_every_fragment(words: list[str], size: int) -> None:
    messages = [delta(part) for part in cut(" ".join(words), size)]
    assert lines_through([*messages, STOP]) == [*messages, STOP]


def test_texts_that_are_told_in_turns_are_kept_apart_and_other_lines_keep_their_places() -> None:
    one, two = cut("key sk-ant-api03-aaaaaaaaaaaaaaaa", 4), cut("key sk-ant-api03-bbbbbbbbbbbbbbbb", 4)
    messages: list[dict[str, Any]] = []
    for first, second in zip(one, two, strict=True):
        messages += [delta(first), {"type": "keep_alive"}, delta(second, index=1)]
    out = lines_through([*messages, STOP])
    assert [each for each in out if each["type"] == "keep_alive"] == [{"type": "keep_alive"}] * len(one)
    for index in (0, 1):
        assert text_of([each for each in out if each.get("event", {}).get("index") == index and each != STOP]) == "key [secret]"


def test_the_deltas_of_codex_are_fragments_too() -> None:
    parts = cut("the key sk-ant-api03-0123456789abcdef ends", 3)
    out = lines_through([{"method": "item/agentMessage/delta", "params": {"itemId": "i", "delta": part}} for part in parts])
    assert "".join(each["params"]["delta"] for each in out) == "the key [secret] ends"


def test_no_more_than_a_word_waits_and_never_more_than_the_bound() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    assert [number for number, _ in redactor.feed(0, json.dumps(delta("one wo")).encode())] == []
    assert [number for number, _ in redactor.feed(1, json.dumps(delta("rd ")).encode())] == [0, 1]
    waiting = 2
    for number in range(2, 2000):
        shown = [*redactor.feed(number, json.dumps(delta("x" * 100)).encode())]
        waiting += len(shown)
        assert number - waiting <= 64 * 2**10 / 100
    assert waiting > 1000


@pytest.mark.parametrize("field", ["text", "partial_json"])
def test_behind_a_gap_the_rest_of_a_text_is_hidden_and_the_next_text_is_seen(field: str) -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    redactor.miss()
    rest = [delta(part, field=field) for part in ("0123456789abcdef", " and the other", " horse")]
    begin = {"type": "stream_event", "event": {"type": "content_block_start", "index": 0}}
    lines = [*rest, {"type": "keep_alive"}, begin, delta("a new text ", field=field), STOP]
    out = [line for number, message in enumerate(lines) for line in redactor.feed(number, json.dumps(message).encode())]
    assert [number for number, _ in out] == list(range(len(lines)))
    shown = [json.loads(line) for _, line in out]
    assert text_of(shown[:3], field=field) == "[secret]"
    assert shown[3:] == lines[3:]


def test_behind_a_gap_the_end_of_a_text_ends_what_is_hidden() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    redactor.miss()
    lines = [delta("half"), STOP, delta("whole ")]
    out = [json.loads(line) for number, message in enumerate(lines) for _, line in redactor.feed(number, json.dumps(message).encode())]
    assert text_of(out) == "[secret]whole "


def test_not_many_lines_wait_however_short_they_are() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    assert not [*redactor.feed(0, json.dumps(delta("a wo")).encode())]
    released = next(number for number in range(1, 10_000) if [*redactor.feed(number, b"{}")])
    assert released <= 1024
    assert redactor.held_bytes == 0


@pytest.mark.parametrize(
    "message",
    [
        {"method": "item/agentMessage/delta", "params": {"itemId": "i" * 10**6, "delta": "a"}},
        {"event": {"delta": {"text": "a"}}, "type": "content_block_delta", "parent_tool_use_id": "i" * 10**6},
    ],
)
def test_the_name_of_a_text_is_short_however_long_its_id_is(message: dict[str, Any]) -> None:
    found = read_fragment(json.dumps(message).encode())
    assert found is not None
    assert len(found[0]) < 1000


@pytest.mark.parametrize(
    "line",
    [b"", b"not JSON with content_block_delta", b'{"event":{"delta":7}}', b'"content_block_delta"', b'{"method":"a/delta","params":[]}'],
)
def test_what_is_no_delta_is_none(line: bytes) -> None:
    assert read_fragment(line) is None


# -------------------------------------------------------------------------------------------------------- what is kept, and how long


def begin(text: str) -> FragmentRedactor[int]:
    """A redactor that has shown the beginning of a text."""
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    list(redactor.feed(0, json.dumps(delta(text)).encode()))
    return redactor


def shown_of(redactor: FragmentRedactor[int], *messages: dict[str, Any]) -> list[str]:
    """The fragments that come out while these messages go in."""
    out = [line for message in messages for _, line in redactor.feed(0, json.dumps(message).encode())]
    return [text_of([json.loads(line)]) for line in out]


@pytest.mark.parametrize("size", [20, 65, 400])
def test_no_line_of_a_long_private_key_is_shown(size: int) -> None:
    body = [f"MII{number:02d}" + "k" * 59 for number in range(30)]
    text = "\n".join(["here:", "-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", "keep it"])
    shown = text_of(lines_through([*map(delta, cut(text, size)), STOP]))
    assert "MII" not in shown
    assert "kkkk" not in shown
    assert shown.startswith("here:\n")
    assert shown.endswith("keep it")


def test_a_key_that_has_begun_makes_no_line_wait_for_its_end() -> None:
    redactor = begin("-----BEGIN PRIVATE KEY-----\n")
    assert len(shown_of(redactor, *(delta(f"word{number} ") for number in range(20)))) == 20


def test_only_the_pieces_of_the_last_word_wait() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    assert shown_of(redactor, delta("abc"), delta("def ghi")) == ["abc"]
    assert shown_of(redactor, delta("jkl mno")) == ["def ghi"]


def test_a_fragment_whose_line_names_an_end_ends_nothing() -> None:
    parts = [{**delta(part), "note": "result"} for part in cut("my key is sk-ant-api03-0123456789abcdef0123456789abcdef I think", 7)]
    assert text_of(lines_through([*parts, STOP])) == "my key is [secret] I think"


def test_a_secret_that_ends_like_its_mark_is_removed_as_a_whole() -> None:
    redactor = Redactor(secrets=["ret]"])
    assert text_of(lines_through([delta("re"), delta("t]"), STOP], redactor)) == "[secret]"


@pytest.mark.parametrize("name", ['password: "', '{"api_key": "'])
def test_a_secret_that_begins_like_a_private_key_is_still_told_by_its_name(name: str) -> None:
    shown = text_of(lines_through([delta(name + "-----BEGIN "), delta('hunter22 words"'), STOP]))
    assert shown == name + '[secret]"'


def test_each_gap_leaves_a_mark_of_its_own() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    redactor.miss()
    assert shown_of(redactor, delta("half "), delta("a word ")) == ["[secret]", ""]
    redactor.miss()
    assert shown_of(redactor, delta("and more "), delta("of it ")) == ["[secret]", ""]


def test_a_line_in_between_does_not_end_what_is_hidden_behind_a_gap() -> None:
    redactor: FragmentRedactor[int] = FragmentRedactor(REDACTOR)
    redactor.miss()
    lines = shown_of(redactor, delta("0123456789"), {"type": "keep_alive"}, delta("abcdef and "))
    assert lines == ["[secret]", "", ""]


def test_what_was_said_before_a_gap_hides_nothing_of_the_next_text() -> None:
    redactor = begin("the password: ")
    redactor.miss()
    start = {"type": "stream_event", "event": {"type": "content_block_start", "index": 0}}
    assert shown_of(redactor, start, delta("visible words "))[1:] == ["visible words "]


def test_a_text_of_megabytes_costs_no_memory_once_it_is_shown() -> None:
    redactor = begin("")
    line = json.dumps(delta("a word " * 600)).encode()
    tracemalloc.start()
    try:
        for number in range(500):
            assert len(list(redactor.feed(number, line))) == 1
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_ten_thousand_texts_cost_no_more_memory_than_the_last_of_them() -> None:
    redactor = begin("")
    tracemalloc.start()
    try:
        for number in range(10_000):
            assert len(list(redactor.feed(number, json.dumps(delta("a word " * 70, index=number)).encode()))) == 1
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
