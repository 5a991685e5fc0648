"""Plays what a patched `subprocess.Popen` or `asyncio.create_subprocess_exec` prints, for the tests of packages that patch one of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import claude_transport as ct


def from_popen(options: ct.ClaudeOptions) -> ct.MockTransport:
    """Return a transport that plays what `subprocess.Popen` prints."""
    try:
        process: Any = subprocess.Popen(_command(options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **_surroundings(options))
    except FileNotFoundError as exc:
        raise ct.CLINotFoundError(str(exc)) from exc
    lines = iter(process.stdout.readline, "") if hasattr(process.stdout, "readline") else process.stdout
    errors = process.stderr.read() if hasattr(process.stderr, "read") else "".join(process.stderr)
    return play(lines, code=process.wait(), stderr=errors)


def from_exec(options: ct.ClaudeOptions) -> ct.MockTransport:
    """Return a transport that plays what `asyncio.create_subprocess_exec` prints. The mock of a process never waits."""
    try:
        process: Any = _done(asyncio.create_subprocess_exec(*_command(options), **_surroundings(options)))
    except FileNotFoundError as exc:
        raise ct.CLINotFoundError(str(exc)) from exc
    return play(_items(process.stdout), code=process.returncode, stderr=_done(process.stderr.read()))


def play(lines: Iterable[str | bytes], *, code: int = 0, stderr: object = "") -> ct.MockTransport:
    """Return a transport that answers one prompt with these lines, and then ends with this code."""
    mock = ct.MockTransport.script().expect_control("initialize").reply().expect(type="user")
    mock.reply(*[line.encode() if isinstance(line, str) else line for line in lines] or [b""])
    return mock.end(code, stderr=stderr.decode() if isinstance(stderr, bytes) else stderr if isinstance(stderr, str) else "")


def _command(options: ct.ClaudeOptions) -> list[str]:
    """Return the command line, its flags in two words, with the system prompt, which a real call has in a file."""
    words = [word for argument in ct.launch.build_argv(options, "claude") for word in argument.split("=", 1)]
    for flag, text in (("--system-prompt", options.system_prompt), ("--append-system-prompt", options.append_system_prompt)):
        words += [flag, text] if isinstance(text, str) else []
    return words


def _surroundings(options: ct.ClaudeOptions) -> dict[str, Any]:
    return {"cwd": None if options.cwd is None else os.fspath(options.cwd), "env": options.env or None}


def _items(items: AsyncIterator[bytes]) -> Iterator[bytes]:
    while True:
        try:
            yield _done(items.__anext__())
        except StopAsyncIteration:
            return


def _done(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the mock of a process waits")
