"""The reason of every class of error: where it comes from, that the text shows it once and without secrets, and that a copy keeps it."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from typing import Any

import pytest

import claude_transport
from claude_transport import errors
from claude_transport.protocol.diagnosis import ReportedFailure

NAMES = [name for name in errors.__all__ if not name.endswith("Warning")]
CLASSES = [getattr(errors, name) for name in NAMES]
KEY = "sk-ant-api03-abcdefghijklmnop"


def everywhere(kind: Any) -> dict[str, Any]:
    """Errors of this class, by where their reason comes from."""
    caused = kind("it failed")
    caused.__cause__ = OSError(13, "Permission denied")
    found = {"given": kind("it failed", reason="said"), "cause": caused}
    if hasattr(caused, "stderr_tail"):
        found["standard error"] = kind("it failed", stderr_tail="first\n\nlast\n")
    if hasattr(caused, "result"):
        found["result"] = kind("it failed", result=ReportedFailure(result="API Error: 500"))
    return found


WORDS = {"given": "said", "cause": "Permission denied", "standard error": "first | last", "result": "API Error: 500"}


@pytest.mark.parametrize("kind", CLASSES, ids=NAMES)
def test_every_class_shows_its_reason_once_and_a_copy_keeps_it(kind: Any) -> None:
    for source, error in everywhere(kind).items():
        for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (type(each), each.reason, str(each)) == (kind, WORDS[source], f"it failed: {WORDS[source]}")
            assert (each.code, each.category, each.retryable, each.args) == (kind.code, kind.category, kind.retryable, ("it failed",))


@pytest.mark.parametrize("kind", CLASSES, ids=NAMES)
def test_every_class_keeps_the_facts_that_it_is_given(kind: Any) -> None:
    bases = [each for each in kind.__mro__ if issubclass(each, errors.ClaudeTransportError) and each is not errors.ClaudeTransportError]
    parameters = [each for base in bases if "__init__" in vars(base) for each in inspect.signature(base.__init__).parameters.values()]
    facts = {each.name: (each.name,) for each in parameters if each.kind is each.KEYWORD_ONLY}
    error = kind("it failed", **facts)
    assert {name: getattr(error, name) for name in facts} == facts


@pytest.mark.parametrize("kind", CLASSES, ids=NAMES)
def test_without_anything_known_there_is_no_reason(kind: Any) -> None:
    assert (kind("it failed").reason, str(kind("it failed"))) == ("", "it failed")


def test_what_the_message_says_is_not_said_again_and_the_suffix_stays_the_end() -> None:
    assert str(errors.ConnectionLost("it broke: no route", reason="no route")) == "it broke: no route"
    told = errors.Overloaded("Try again. (transport=cli, category=rate_limit)", reason="busy")
    assert str(told) == "Try again. Reason: busy (transport=cli, category=rate_limit)"


def test_a_reason_is_one_short_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_TOKEN", "plain-words-of-hers")
    for said in (f"bad key {KEY}\nand plain-words-of-hers\x1b[2J", "y" * 480 + " " + KEY):
        for error in (
            errors.ProcessError("gone", reason=said),
            errors.ProcessError("gone", stderr_tail=said),
            errors.ResultError("bad", result=ReportedFailure(errors=(said,))),
        ):
            assert len(error.reason) <= 510
            assert error.reason.isprintable()
            for shown in (str(error), repr(error), repr(pickle.loads(pickle.dumps(error)))):
                assert "api03" not in shown
                assert "plain-words" not in shown


def test_a_copy_takes_no_secret_of_a_cause_along_and_not_all_of_what_it_says() -> None:
    error = errors.ConnectionLost("gone")
    error.__cause__ = OSError(f"bad key {KEY} " + "y" * 100_000)
    copied = copy.copy(error)
    kept = str(vars(copied))
    assert "api03" not in kept
    assert "bad key" in kept
    assert len(kept) < 20_000


def test_a_warning_is_one_line_of_bounded_length_without_secrets() -> None:
    with pytest.warns(errors.ClaudeTransportWarning) as warned:
        errors.warn_caller(f"bad key {KEY}\nFORGED\x1b[2J" + "y" * 100_000)
    (told,) = (str(each.message) for each in warned)
    assert told.startswith("bad key [secret]\\nFORGED\\x1b[2Jyyy")
    assert told.isprintable()
    assert len(told) < 3100


def test_the_other_side_is_heard_through_causes_and_a_circle_of_causes_ends() -> None:
    inner = errors.ProcessError("it ended", stderr_tail="boom")
    outer = errors.ConnectionLost("the connection broke")
    outer.__cause__ = inner
    inner.__cause__ = outer
    assert (outer.reason, inner.reason) == ("boom", "boom")
    silent = errors.ConnectionLost("a")
    silent.__cause__ = errors.CLIConnectionError("no server listens")
    assert silent.reason == "no server listens"


def test_a_warning_that_the_program_makes_an_error_is_a_typed_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.ClaudeTransportWarning)
        with pytest.raises(errors.ConfigurationError, match=r"^look here$") as caught:
            errors.warn_caller("look here")
    assert isinstance(caught.value.__cause__, errors.ClaudeTransportWarning)


@pytest.mark.parametrize(("error", "words"), [(OSError(24, "Too many open files"), "Too many open files"), (OSError("full"), "full")])
def test_a_name_that_cannot_be_loaded_now_is_a_typed_error(error: OSError, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.delitem(vars(claude_transport), "SessionPool", raising=False)
    monkeypatch.setattr("claude_transport.lazy.import_module", fail)
    with pytest.raises(errors.CLIConnectionError, match=rf"^cannot import claude_transport\.pool\S*: {words}; import it earlier") as caught:
        _ = claude_transport.SessionPool
    assert caught.value.__cause__ is error
