"""A path that nobody chose is announced once, where library users expect it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from claude_transport.completion.call import Announcer, announcement_of
from claude_transport.completion.resolution import Resolution, TransportChoice, TransportKind

AUTO = Resolution(kind="cli", layer="default", reason="", choice="auto")


def test_s1_4_the_first_auto_that_comes_to_the_cli_is_announced_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    announcer = Announcer()
    assert [announcer.announce(AUTO, payer="subscription"), announcer.announce(AUTO)] == [True, False]
    (record,) = caplog.records
    assert record.name == "claude_transport.completion"
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        'using the Claude CLI (the subscription pays); transport="api" or CLAUDE_TRANSPORT=api chooses the API instead'
    )


@pytest.mark.parametrize(("kind", "choice"), [("cli", "cli"), ("api", "api"), ("api", "auto")])
def test_s1_4_explicit_choices_and_the_api_are_never_announced(
    kind: TransportKind, choice: TransportChoice, caplog: pytest.LogCaptureFixture
) -> None:
    announcer = Announcer()
    assert not announcer.announce(Resolution(kind=kind, layer="argument", reason="", choice=choice))
    assert caplog.records == []
    assert announcer.announce(AUTO), "silence used up the one announcement"


def test_s1_4_an_auto_that_was_asked_for_is_announced_too() -> None:
    asked = Resolution(kind="cli", layer="argument", reason="", choice="auto")
    assert announcement_of(asked) == announcement_of(AUTO)


def test_s1_4_who_asks_for_the_line_gets_it_in_place_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    assert Announcer().announce(AUTO, payer="api account", say=said.append)
    assert said == [announcement_of(AUTO, payer="api account")]
    assert "an API account pays" in said[0]
    assert caplog.records == []


def test_s1_4_the_library_writes_nothing_to_stderr_by_itself() -> None:
    code = """
from claude_transport.completion.call import announce
from claude_transport.completion.resolution import resolve_transport
found = resolve_transport(env={}, cli_available=True)
print(announce(found), announce(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True False\n", "")
