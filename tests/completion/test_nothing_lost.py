"""What a good call leaves besides its answer: standard error, the conversation, and events that JSON takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.codex import CodexOptions
from claude_transport.completion import complete_sync, partial_completion, stream_sync
from claude_transport.testing import FakeCodex, Scenario, assistant, result, steps, tool_use
from claude_transport.testing.scenario import ScriptedTurn

MakeOptions = Callable[..., ct.ClaudeOptions]
SECRET = "warned of sk-ant-SENTINEL"
SPOKEN = Scenario(otherwise=ScriptedTurn((steps.Stderr(SECRET + "\n"), steps.Text("Hello."), steps.Result())))


async def test_a_good_call_keeps_its_standard_error_and_does_not_show_it(cli_options: MakeOptions) -> None:
    heard: list[str] = []
    with anyio.fail_after(60):
        completion = await ct.complete("Hi", options=cli_options(SPOKEN), on_stderr=heard.append)
    assert (completion.text, completion.stderr_tail.splitlines(), heard) == ("Hello.", [SECRET], [SECRET])
    assert "SENTINEL" not in repr(completion)
    assert f"stderr_tail='<{len(completion.stderr_tail)} characters>'" in repr(completion)


async def test_a_failed_call_and_a_stream_keep_it_too(cli_options: MakeOptions) -> None:
    failed = Scenario(otherwise=ScriptedTurn((steps.Stderr(SECRET + "\n"), steps.Exit(3))))
    with anyio.fail_after(60), pytest.raises(ct.ProcessError) as caught:
        await ct.complete("Hi", options=cli_options(failed), retry=ct.RetryPolicy.none())
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.stderr_tail.splitlines(), there.exit_code) == ([SECRET], 3)
    heard: list[str] = []
    stream = ct.stream("Hi", options=cli_options(SPOKEN), on_stderr=heard.append)
    assert [piece async for piece in stream] == ["Hello."]
    assert (stream.completion.stderr_tail.splitlines(), heard) == ([SECRET], [SECRET])


def test_a_script_hears_it_too(cli_options: MakeOptions) -> None:
    heard: list[str] = []
    assert complete_sync("Hi", options=cli_options(SPOKEN), on_stderr=heard.append, timeout=60).text == "Hello."
    assert heard == [SECRET]
    with stream_sync("Hi", options=cli_options(SPOKEN), on_stderr=heard.append, timeout=60) as pieces:
        assert list(pieces) == ["Hello."]
    assert heard == [SECRET, SECRET]


async def test_codex_and_a_transport_of_the_caller_have_a_standard_error_too(cli_options: MakeOptions, tmp_path: Path) -> None:
    heard: list[str] = []
    with FakeCodex() as fake, anyio.fail_after(60):
        codex = tmp_path / "codex"
        codex.write_text(f'#!/bin/sh\necho "{SECRET}" >&2\nexec "{fake.path}" "$@"\n', "utf-8")
        codex.chmod(0o755)
        completion = await ct.complete("Hi", agent="codex", codex=CodexOptions(codex_path=codex), on_stderr=heard.append)
    assert (completion.text, completion.stderr_tail.splitlines()) == ("Hi", heard)
    assert SECRET in heard
    with anyio.fail_after(60):
        completion = await ct.complete("Hi", options=cli_options(SPOKEN), make_transport=ct.SubprocessTransport)
    assert completion.stderr_tail.splitlines() == [SECRET]


async def _asynchronous(_line: str) -> None: ...


@pytest.mark.parametrize("value", ["print", _asynchronous])
async def test_what_cannot_hear_lines_is_refused(value: Any) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", on_stderr=value)
    assert str(caught.value) == f"on_stderr must be a plain function (not async), not {value!r}"
    with pytest.raises(ct.ConfigurationError, match="give it to the transport that make_transport makes") as caught:
        await ct.complete("Hi", on_stderr=print, make_transport=ct.SubprocessTransport)
    assert caught.value.option == "on_stderr"


STRANGE: list[dict[str, Any] | bytes] = [
    b"noise",
    b"[1]",
    b'{"type": "assistant", "message": 7}',
    b'{"type": "of tomorrow", "x": [1, {"y": null}]}',
    b'{"type": "system", "subtype": "of tomorrow", "n": 123456789012345678901234567890}',
    b'{"type": "assistant", "message": {"content": [{"type": "text", "text": "\xff"}]}}',
    b'{"type": "user", "message": {"content": "\\ud800"}}',
]


async def test_every_event_can_be_written_as_json_and_the_conversation_is_what_was_said() -> None:
    begun = {"type": "system", "subtype": "init", "session_id": "s", "tools": [], "model": "m"}
    read = {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "read"}]}}
    spoken = [begun, tool_use("Read", {}, id="t"), read, assistant("Hello."), result("Hello.")]
    completion = await ct.complete("Hi", make_transport=lambda _options: ct.MockTransport([*STRANGE, *spoken]))
    kinds = [event.type for event in completion.events]
    assert {"decode_failure", "of tomorrow", "assistant", "result"} <= set(kinds)
    for event in completion.events:
        assert json.loads(json.dumps(event.to_dict()))["type"] == event.type
    said = [event.type for event in completion.conversation]
    assert said[-5:] == ["system", "assistant", "user", "assistant", "result"]
    assert {event.type for event in completion.conversation[:-5]} <= {"assistant", "user"}
