"""What a transport refuses, before it has started anything: the whole error, and that nothing is left."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.transport import Client
from claude_transport.transports.stream import check_bounds

COMMAND = "command must be a sequence of arguments with the program first, not one string or an empty sequence"
BYTES = "max_line_bytes must be a whole number of at least 1 byte, not "
SECONDS = "close_timeout must be a number of seconds, 0 or more, not "
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"command": "cat"}, "command", COMMAND),
    ({"command": b"cat"}, "command", COMMAND),
    ({"command": []}, "command", COMMAND),
    ({"launcher": "ssh host"}, "launcher", "launcher must be a Launcher, not str"),
    ({"options": {"model": "x"}}, "options", "options must be the options of an agent, such as ClaudeOptions, not dict"),
    *(({"max_line_bytes": value}, "max_line_bytes", f"{BYTES}{value!r}") for value in (0, -1, 1.5, True, None, "1")),
    *(({"close_timeout": value}, "close_timeout", f"{SECONDS}{value!r}") for value in (-0.1, float("nan"), False, None, "1")),
]


@pytest.mark.parametrize(("given", "option", "said"), REFUSED)
def test_an_argument_of_a_process_that_cannot_work_is_refused_by_name(given: dict[str, Any], option: str, said: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SubprocessTransport(**given)
    assert (str(caught.value), caught.value.option) == (said, option)


def test_the_bounds_of_a_transport_may_be_at_their_ends() -> None:
    check_bounds(max_line_bytes=1, close_timeout=0, connect_timeout=float("inf"))


async def test_a_cli_that_was_started_without_permission_prompts_is_not_asked_for_them() -> None:
    asking = Client(answers=frozenset({"can_use_tool"}))
    with FakeClaude(Scenario()) as fake:
        for prompt, is_refused in ((None, True), ("stdio", False)):
            transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path, permission_prompt_tool_name=prompt))
            transport.attach(Client())
            async with transport:
                transport.attach(Client())
                if not is_refused:
                    transport.attach(asking)
                    continue
                with pytest.raises(ct.ConfigurationError, match="the CLI was started before can_use_tool was known") as caught:
                    transport.attach(asking)
                assert caught.value.option == "permission_prompt_tool_name"
        async with ct.SubprocessTransport(command=fake.command) as transport:
            transport.attach(asking)


async def test_a_system_without_a_free_thread_or_place_is_a_spawn_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cli = tmp_path / "claude"
    cli.write_text("#!/bin/sh\ncat\n")
    cli.chmod(0o700)

    async def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    def no_place(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    options = ct.ClaudeOptions(cli_path=cli, settings={"env": {"A": "a-long-secret-value"}})
    with monkeypatch.context() as patched:
        patched.setattr(anyio.to_thread, "run_sync", no_thread)
        with pytest.raises(ct.errors.SpawnError, match=r"needs a thread, and none can be started: can't start new thread") as threads:
            await ct.SubprocessTransport(options).connect()
    assert threads.value.path == "claude"
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkdtemp", no_place)
        with pytest.raises(ct.errors.SpawnError, match=r"cannot be written to the temporary directory: .*No space left") as places:
            await ct.SubprocessTransport(options).connect()
    assert places.value.path == str(cli)


async def test_the_bounds_of_lines_reach_the_transport_that_is_opened(tmp_path: Path) -> None:
    cli = tmp_path / "claude"
    line = '{"type":"system","text":"' + "x" * 100 + '"}'
    cli.write_text(f"#!/bin/sh\necho '{line}'\ncat\n")
    cli.chmod(0o700)
    for strict in (False, True):
        async with ct.open_transport(ct.ClaudeOptions(cli_path=cli), max_line_bytes=50, strict=strict) as transport:
            await transport.end_input()
            if strict:
                with pytest.raises(ct.errors.LineTooLong):
                    [message async for message in transport.read_messages()]
                continue
            assert [message async for message in transport.read_messages()] == []
            assert transport.info.oversized_lines == 1
