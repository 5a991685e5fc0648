"""`claude-transport ask`: one prompt, its answer as it is written."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from contextlib import ExitStack
from functools import partial

import anyio

from claude_transport.app.answer import AnswerReader
from claude_transport.app.arguments import split_rules
from claude_transport.app.backend import run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.interruption import run_interruptibly
from claude_transport.app.permission import Keyboard, PermissionAsker
from claude_transport.app.render import Face
from claude_transport.app.summary import summarize
from claude_transport.app.terminal import choose_look, is_terminal
from claude_transport.errors import ConfigurationError, MissingResult
from claude_transport.launch.options import ClaudeOptions
from claude_transport.one_shot import OneShot, query
from claude_transport.protocol.diagnosis import error_for
from claude_transport.protocol.messages import DecodeFailure, Message, OversizedMessage, ResultMessage
from claude_transport.transports.subprocess import SubprocessTransport

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Ask, show the answer, and return the exit code. Raises what `failures` knows how to report."""
    prompt = _read_prompt(args.prompt)
    if args.offline and args.cli_path is not None:
        raise ConfigurationError("--offline and --cli-path name two different programs; give one", option="cli_path")
    return run_on(args.backend, partial(_ask, args, prompt))


def _read_prompt(given: str | None) -> str:
    if given is None and is_terminal(sys.stdin):
        raise ConfigurationError("there is no PROMPT, and nothing comes through a pipe on stdin", option="prompt")
    try:
        prompt = given if given not in {None, "-"} else sys.stdin.buffer.read().decode()
        (prompt or "").encode()
    except UnicodeError as error:
        raise ConfigurationError("the prompt is not UTF-8 text", option="prompt") from error
    if not prompt or not prompt.strip():
        raise ConfigurationError("the prompt is empty", option="prompt")
    return prompt


def _options(args: argparse.Namespace, cli_path: str | None) -> ClaudeOptions:
    return ClaudeOptions(
        cli_path=cli_path,
        model=args.model,
        system_prompt=args.system_prompt,
        permission_mode=args.permission_mode,
        allowed_tools=tuple(split_rules(args.allowed_tools)),
        max_turns=args.max_turns,
        cwd=args.cwd,
        include_partial_messages=True,
    )


def _face(args: argparse.Namespace) -> Face:
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    if look.rich and not args.json:
        from claude_transport.app.render_rich import RichFace

        return RichFace(sys.stdout, sys.stderr, look=look)
    return Face(sys.stdout, sys.stderr, look=look)


async def _ask(args: argparse.Namespace, prompt: str) -> int:
    face = _face(args)
    with ExitStack() as stack:
        stack.enter_context(_library_log(face, verbose=args.verbose))
        cli_path = args.cli_path
        if args.offline:
            from claude_transport.app.offline import NOTICE, simulated_claude

            cli_path = str(stack.enter_context(simulated_claude()).path)
            face.say(f"{face.look.symbol('dot')} {NOTICE}", style="dim")
        on_stderr = partial(face.say, style="dim") if args.verbose else None
        transport = SubprocessTransport(_options(args, cli_path), on_stderr=on_stderr)
        return await run_interruptibly(partial(_converse, args, prompt, transport, face), give_up=transport.close)


async def _converse(args: argparse.Namespace, prompt: str, transport: SubprocessTransport, face: Face) -> int:
    reader = AnswerReader()
    asker = PermissionAsker(face, Keyboard(sys.stdin, sys.stderr), on_refusal=reader.silenced.add)
    conversation = query(prompt, transport=transport, can_use_tool=asker.can_use_tool)
    started = time.monotonic()
    face.waiting("starting claude")
    try:
        with anyio.move_on_after(args.timeout) as limit:
            await _show_all(conversation, reader, face, raw=args.json)
    finally:
        await _finish(conversation, face)
    if limit.cancelled_caught and reader.result is None:
        raise MissingResult(f"no answer in {args.timeout:g} s", code="exec.cli.timeout", category="timeout")
    result = reader.result
    if result is None:  # query() raises MissingResult itself; this is for the type checker
        raise MissingResult("the conversation ended without a result")
    if args.verbose or (is_terminal(sys.stderr) and not args.json):
        face.say(summarize(result, model=reader.model, seconds=time.monotonic() - started, look=face.look), style="dim")
    failure = error_for(result)
    if failure is not None:
        raise failure
    return EXIT_OK


async def _show_all(conversation: OneShot, reader: AnswerReader, face: Face, *, raw: bool) -> None:
    held: list[Message] = []
    async for message in conversation:
        pieces = reader.read(message)
        if not raw:
            for piece in pieces:
                await face.show(piece)
        elif isinstance(message, DecodeFailure | OversizedMessage):
            face.say(f"{face.look.symbol('bad')} a line that holds no message was left out ({message.type})", style="yellow")
        else:
            # bookkeeping may follow a result; it is held back until there is another one, so that the last line is the last result
            held.append(message)
            if reader.result is None or isinstance(message, ResultMessage):
                for ready in held:
                    await face.raw(ready.raw)
                held.clear()


async def _finish(conversation: OneShot, face: Face) -> None:
    """End the last line and the child, whatever has happened."""
    with anyio.CancelScope(shield=True):
        try:
            with anyio.move_on_after(1):  # a reader that has stopped reading must not keep the child alive
                await face.finish()
        finally:
            await conversation.aclose()


class _library_log(logging.Handler):  # noqa: N801 - used like a function, in a `with`
    """What the library logs, as lines on stderr while the block lasts: warnings, and with `verbose` everything of interest."""

    def __init__(self, face: Face, *, verbose: bool) -> None:
        super().__init__(logging.INFO if verbose else logging.WARNING)
        self._face = face
        self._logger = logging.getLogger("claude_transport")

    def emit(self, record: logging.LogRecord) -> None:
        self._face.say(f"{self._face.look.symbol('dot')} {record.getMessage()}", style="dim")

    def __enter__(self) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.addHandler(self)
        self._logger.setLevel(self.level)
        self._logger.propagate = False

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]
