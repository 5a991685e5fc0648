"""A text is redacted before it is cut. Half a key does not look like one, so the cut is tried at every place of a key."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

import claude_transport as ct
from claude_transport import errors
from claude_transport.client.reports import Prose
from claude_transport.completion.classification import classify_cli_exception
from claude_transport.protocol.envelope import DecodeFailure
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.redaction import Redactor
from claude_transport.text import secret_forms
from claude_transport.text.printable import MARGIN_CHARS, redacted_head, redacted_tail
from claude_transport.wrappers.gen_ai import limited

KNOWN = "violet harbour-1729/Æsop"  # known by its value: two words
SHAPED = "sk-ant-api03-Zm9vYmFyYmF6cXV4-9_A"  # known by its form
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ"
LONG = f"ghp_{'z9' * 120}"
"""A token of which little is left, so that what lay on a cut far behind comes into what is shown."""
KEYS = {"known": KNOWN, "shaped": SHAPED, "token": TOKEN}
LEAST = 4
"""Characters of a key that may be left: fewer say nothing."""


def offsets(cut: int, key: str) -> range:
    """Where a key may begin so that the cut lies before it, in it or behind it: every fifth place, because each takes a while."""
    return range(cut - len(key) - 4, cut + 4, 5)


def piece_of(key: str, shown: str, *, least: int = LEAST) -> str:
    """The first part of `key` with so many characters that `shown` holds; empty when there is none."""
    parts = (key[at : at + least + 1] for at in range(len(key) - least))
    return next((part for part in parts if part in shown), "")


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("at_most", [64, 1000])
def test_the_beginning_of_a_text_has_no_part_of_a_key_wherever_the_cut_is(key: str, at_most: int) -> None:
    redact = Redactor(secrets=[KNOWN]).text
    for before in range(at_most - len(key) - 2, at_most + 2):
        shown = redacted_head(f"{'.' * before} {key} and more {'x ' * 20_000}", redact, at_most=at_most)
        assert (piece_of(key, shown), shown[: min(before, at_most)]) == ("", "." * min(before, at_most)), before
        assert len(shown) <= at_most + len("[secret]")


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("at_most", [64, 1000])
def test_the_end_of_a_text_has_no_part_of_a_key_wherever_the_cut_is(key: str, at_most: int) -> None:
    redact = Redactor(secrets=[KNOWN]).text
    for after in range(at_most - len(key) - 2, at_most + 2):
        shown = redacted_tail(f"{'x ' * 20_000} {key} {'.' * after}", redact, at_most=at_most)
        assert (piece_of(key, shown), shown[len(shown) - min(after, at_most) :]) == ("", "." * min(after, at_most)), after


@pytest.mark.parametrize("cut", [redacted_head, redacted_tail])
def test_a_short_text_is_redacted_whole_and_a_long_one_in_part(cut: Callable[..., str]) -> None:
    read: list[int] = []

    def redact(text: str) -> str:
        read.append(len(text))
        return text

    assert cut("abc", redact, at_most=3) == "abc"
    assert cut("x" * 10_000_000, redact, at_most=3) == "xxx"
    assert read == [3, 3, 3 + MARGIN_CHARS]


# ------------------------------------------------------------------------------------------------------------- where texts are cut

BLANK = 2**14
"""White space before a key: a reason is put on one line, so that what lay on a cut far behind comes to its beginning."""


def reason(text: str) -> str:
    return str(errors.ClaudeTransportError("It failed.", reason=text))


def result(text: str) -> str:
    failed = errors.APIFailed("It failed.")
    failed.result = ct.ResultMessage(subtype="success", is_error=True, num_turns=1, result=text)
    return str(failed)


def cause(text: str) -> str:
    error = errors.ClaudeTransportError("It failed.")
    error.__cause__ = OSError(text)
    return str(error)


@pytest.mark.parametrize("shown_by", [reason, result, cause])
def test_the_reason_of_an_error_has_no_part_of_a_key_wherever_the_cut_is(
    shown_by: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", KNOWN)
    for key in KEYS.values():
        for cut, filler in ((500, "."), (BLANK, " ")):
            for before in offsets(cut - len("It says "), key):
                shown = shown_by(f"It says{filler * before} {key} more {'.' * len(key)}")
                assert (piece_of(key, shown), shown.startswith("It failed. Reason: It says")) == ("", True), before


def test_the_last_words_of_a_process_have_no_part_of_a_key_wherever_the_cut_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", KNOWN)
    for key in KEYS.values():
        for after in offsets(BLANK - len("The end"), key):
            error = ct.ProcessError("It ended.", exit_code=1, stderr_tail=f"{'.' * 500} {key}{chr(10) * after}The end")
            assert (piece_of(key, str(error)), str(error).endswith("The end")) == ("", True), after


def test_a_warning_has_no_part_of_a_key_wherever_the_cut_is() -> None:
    many = f"{LONG} " * (BLANK // (len(LONG) + 1) - 1)
    for before in offsets(BLANK - len(many), SHAPED):
        text = f"{many}{'.' * before} {SHAPED} {'.' * 500}"
        with pytest.warns(errors.ClaudeTransportWarning) as caught:
            errors.warn_caller(text)
        assert piece_of(SHAPED, str(caught[0].message)) == "", before


@pytest.mark.parametrize("offset", range(0, len(KNOWN) + 4, 4))
async def test_the_reason_of_a_call_has_no_part_of_a_secret_of_its_options_wherever_the_cut_is(offset: int) -> None:
    """The options know a key that neither the environment of this process nor the transport does."""
    said = f"more {KNOWN} {'.' * (500 - offset)}"
    options = ct.ClaudeOptions(env={"GATEWAY_TOKEN": KNOWN}, env_mode="exact")
    mock = ct.MockTransport.script().expect(type="user").end(exit_code=1, stderr=said)
    with pytest.raises(ct.ProcessError) as caught:
        await ct.complete("Hi", options=options, make_transport=lambda _: mock, retry=ct.RetryPolicy.none())
    error = caught.value
    assert piece_of(KNOWN, error.reason + "".join(traceback.format_exception(error))) == ""
    assert error.reason.endswith("." * (500 - offset))


def test_the_error_of_a_call_has_the_reason_of_its_cause_before_it_was_cut() -> None:
    redact = Redactor(secrets=[KNOWN]).text
    for before in offsets(499, KNOWN):
        error = errors.CLIConnectionError("It cannot be reached.")
        error.__cause__ = OSError(f"{'.' * before} {KNOWN} more")
        reason = errors.reason_without(classify_cli_exception(error), redact)
        assert (piece_of(KNOWN, reason), reason.startswith("." * min(before, 499))) == ("", True), before


def test_a_name_in_a_span_has_no_part_of_a_key_wherever_the_cut_is() -> None:
    for before in range(400 - len(LONG) - len(SHAPED) - 4, 400 - len(LONG)):
        shown = limited(f"{LONG} {'.' * before} {SHAPED} {'.' * 900}")
        assert (piece_of(SHAPED, shown), len(shown) <= 200) == ("", True), before


def test_the_first_line_of_another_program_has_no_part_of_a_key_wherever_the_cut_is() -> None:
    for key in KEYS.values():
        for before in offsets(4096, key):
            prose = Prose.of(DecodeFailure(raw=f"{' ' * before}{key} more".encode(), error="no JSON"))
            error = prose.error(ct.TransportInfo(kind="x"), Redactor(secrets=[KNOWN]))
            assert piece_of(key, str(error)) == "", before


@pytest.mark.parametrize("quote", ["", '{"type":"x","text":"'], ids=["text", "json"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_the_beginning_of_a_line_that_is_too_long_has_no_part_of_a_key(key: str, quote: str) -> None:
    redactor = Redactor(secrets=[KNOWN])
    whole = f"{quote}The key is {key} and so on"
    begin = len(whole[: whole.index(key)].encode())
    for length in range(begin, len(whole.encode())):
        line = OversizedLine(whole.encode()[:length], size=10_000, limit=100)
        shown = redactor.line(line)
        assert isinstance(shown, OversizedLine)
        assert (shown.size, shown.limit, shown.startswith(f"{quote}The key is".encode())) == (10_000, 100, True)
        assert piece_of(key, shown.decode("utf-8", "replace")) == "", length


def test_a_line_that_is_too_long_keeps_what_is_no_secret() -> None:
    head = b'{"type":"user","message":{"content":"' + b"a long text " * 20
    assert Redactor(secrets=[KNOWN]).line(OversizedLine(head, size=10_000, limit=100)) == head


def test_what_is_remembered_of_names_is_bounded() -> None:
    """A peer chooses the names of the fields of its lines."""
    caches = [each for each in vars(secret_forms).values() if hasattr(each, "cache_info")]
    assert [0 < each.cache_info().maxsize <= 4096 for each in caches] == [True, True]
