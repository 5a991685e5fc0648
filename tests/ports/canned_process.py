"""Plays what a patched `subprocess.Popen` prints, for the tests of packages that put one in place of a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

import claude_transport as ct


def from_popen(options: ct.ClaudeOptions) -> ct.MockTransport:
    """Return a transport that plays what `subprocess.Popen` prints.

    `Popen` gets the command line of `options`, its flags in two words, and the system prompt, which a real call has in a file.
    """
    words = [word for argument in ct.launch.build_argv(options, "claude") for word in argument.split("=", 1)]
    for flag, text in (("--system-prompt", options.system_prompt), ("--append-system-prompt", options.append_system_prompt)):
        words += [] if text is None else [flag, text]
    try:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=None if options.cwd is None else os.fspath(options.cwd),
            env=options.env or None,
        )
    except FileNotFoundError as exc:
        raise ct.CLINotFoundError(str(exc)) from exc
    assert process.stdout is not None
    assert process.stderr is not None
    return play(iter(process.stdout.readline, ""), code=process.wait(), stderr="".join(process.stderr))


def play(lines: Iterable[str], *, code: int = 0, stderr: str = "") -> ct.MockTransport:
    """Return a transport that answers one prompt with these lines, and then ends with this code."""
    mock = ct.MockTransport.script().expect_control("initialize").reply().expect(type="user")
    return mock.reply(*[line.encode() for line in lines] or [b""]).end(code, stderr=stderr)
