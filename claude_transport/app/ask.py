"""`claude-transport ask`: one prompt, its answer as it is written."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import anyio

from claude_transport.app.answer import AnswerReader
from claude_transport.app.arguments import PROGRAM, split_rules
from claude_transport.app.backend import run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.interruption import run_interruptibly
from claude_transport.app.path_choice import choose_path
from claude_transport.app.permission import Keyboard, PermissionAsker
from claude_transport.app.progress import open_progress
from claude_transport.app.render import Face
from claude_transport.app.summary import summarize
from claude_transport.app.terminal import choose_look, is_terminal
from claude_transport.app.ticking import while_ticking
from claude_transport.completion.call import announce
from claude_transport.completion.classification import classify_result
from claude_transport.errors import ConfigurationError, MissingResult
from claude_transport.launch.options import ClaudeOptions
from claude_transport.one_shot import OneShot, query
from claude_transport.printable import printable
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage
from claude_transport.protocol.messages import InitMessage, ResultMessage
from claude_transport.streams.process import DEFAULT_CLOSE_TIMEOUT
from claude_transport.transport import Transport
from claude_transport.transports.subprocess import SubprocessTransport

HURRIED_EXIT = 1.0
"""Seconds of its own that claude gets to end with `--timeout`; without one it is `query()` that says."""
HURRIED_CLOSE = 1.5
"""Seconds after that, in which it is ended; who set a limit does not want to wait for many more seconds behind it."""


def run(args: argparse.Namespace) -> int:
    """Ask, show the answer, and return the exit code. Raises what `failures` knows how to report."""
    prompt = read_prompt(args.prompt)
    if args.offline and args.cli_path is not None:
        raise ConfigurationError("--offline and --cli-path name two different programs; give one", option="cli_path")
    return run_on(args.backend, partial(_ask, args, prompt, None))


def run_through(args: argparse.Namespace, prompts: Sequence[str], around: Callable[[Transport], Transport]) -> int:
    """`run()` for several prompts, one after the other, in one conversation through `around(transport)`."""
    checked = [_check_prompt(prompt) for prompt in prompts]
    if args.offline and args.cli_path is not None:
        raise ConfigurationError("--offline and --cli-path name two different programs; give one", option="cli_path")
    return run_on(args.backend, partial(_ask, args, checked, around))


def read_prompt(given: str | None) -> str:
    """The prompt that was given, or stdin for `-` and None. Raises `ConfigurationError` when there is none."""
    if given is None and is_terminal(sys.stdin):
        raise ConfigurationError("there is no PROMPT, and nothing comes through a pipe on stdin", option="prompt")
    try:
        # an argument is bytes, of which the locale (LC_ALL=C) may not know that they are UTF-8
        from_stdin = given is None or given == "-"
        prompt = _without_line_end(sys.stdin.buffer.read().decode()) if from_stdin else os.fsencode(given or "").decode()
    except UnicodeError as error:
        raise ConfigurationError("the prompt is not UTF-8 text", option="prompt") from error
    except OSError as error:
        raise ConfigurationError(f"stdin cannot be read: {error.strerror or error}", option="prompt") from error
    return _check_prompt(prompt)


def _check_prompt(prompt: str) -> str:
    if not prompt.strip():
        raise ConfigurationError("the prompt is empty", option="prompt")
    return prompt


def _without_line_end(text: str) -> str:
    """The text without the line end that `echo` and editors put behind the last line; one only, what else is there was meant."""
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


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

        return RichFace(sys.stdout, sys.stderr, look=look, quiet=args.quiet)
    progress = None
    if look.stderr_color and not args.quiet:  # who wants no colours wants nothing that moves either, as with rich
        progress = open_progress("", stream=sys.stderr, look=look, unit="s", scale=1)
    return Face(sys.stdout, sys.stderr, look=look, quiet=args.quiet, progress=progress)


async def _ask(args: argparse.Namespace, prompt: str | list[str], around: Callable[[Transport], Transport] | None) -> int:
    face = _face(args)
    with ExitStack() as stack:
        stack.enter_context(_library_log(face, verbose=args.verbose))
        cli_path = args.cli_path
        if args.offline:
            from claude_transport.app.offline import NOTICE, simulated_claude

            cli_path = str(stack.enter_context(simulated_claude()).path)
            face.mention(f"{face.look.symbol('dot')} {NOTICE}")
        options = _options(args, cli_path)
        chosen = choose_path(args, options)
        for warning in chosen.warnings if args.verbose else ():
            face.say(f"{face.look.symbol('dot')} {warning}", style="dim")
        if chosen.cell.kind == "api" and isinstance(prompt, str):
            from claude_transport.app.ask_api import APIAnswer

            answer = APIAnswer(prompt, options, timeout=args.timeout, face=face, raw=args.json, summary=_wants_summary(args))
            return await run_interruptibly(answer.show, give_up=answer.give_up)
        if chosen.resolution is not None:
            announce(chosen.resolution, payer=chosen.payer, say=partial(_announce, face))
        on_stderr = partial(face.say, style="dim") if args.verbose else None
        close_timeout = DEFAULT_CLOSE_TIMEOUT if args.timeout is None else HURRIED_CLOSE
        transport: Transport = SubprocessTransport(options, on_stderr=on_stderr, close_timeout=close_timeout)
        if around is not None:
            transport = around(transport)
        return await run_interruptibly(partial(_converse, args, prompt, transport, face), give_up=transport.close)


def _announce(face: Face, line: str) -> None:
    said = line.replace('transport="api"', "--transport api")
    face.mention(f"{PROGRAM}: {said}")


def _wants_summary(args: argparse.Namespace) -> bool:
    return bool(args.verbose or (is_terminal(sys.stderr) and not args.json and not args.quiet))


async def _each(prompts: list[str]) -> AsyncIterator[str]:
    for prompt in prompts:
        yield prompt


async def _converse(args: argparse.Namespace, prompt: str | list[str], transport: Transport, face: Face) -> int:
    reader = AnswerReader()
    asker = PermissionAsker(face, Keyboard(sys.stdin, sys.stderr), on_refusal=reader.silenced.add)
    said = prompt if isinstance(prompt, str) else _each(prompt)
    patience = 5.0 if args.timeout is None else HURRIED_EXIT
    conversation = query(said, transport=transport, exit_timeout=patience, can_use_tool=asker.can_use_tool)
    started = time.monotonic()
    face.waiting("starting claude")
    try:
        with anyio.move_on_after(args.timeout):
            await while_ticking(partial(_show_all, conversation, reader, face, raw=args.json), face.on_tick)
    finally:
        await _finish(conversation, face)
    result = reader.result
    answers = [result] if isinstance(prompt, str) else reader.results
    if result is None or len(answers) < len(_as_list(prompt)):  # the time was up: without it, a result that is missing has raised already
        raise MissingResult(f"no answer in {args.timeout:g} s", code="exec.cli.timeout", category="timeout")
    if _wants_summary(args):
        seconds = time.monotonic() - started
        face.say(summarize(result, model=reader.model, seconds=seconds, look=face.look, tokens=reader.tokens), style="dim")
    for answer in answers:  # what went wrong first says most
        failure = None if answer is None else classify_result(answer)
        if failure is not None:
            raise failure
    return EXIT_OK


def _as_list(prompt: str | list[str]) -> list[str]:
    return [prompt] if isinstance(prompt, str) else prompt


async def _show_all(conversation: OneShot, reader: AnswerReader, face: Face, *, raw: bool) -> None:
    held: list[Message] = []
    async for message in conversation:
        if isinstance(message, InitMessage):
            face.waiting("waiting for claude")
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


@contextmanager
def _library_log(face: Face, *, verbose: bool) -> Iterator[None]:
    """A block in which what the library logs becomes lines on stderr: warnings, and with `verbose` everything of interest."""
    logger = logging.getLogger("claude_transport")
    before = (logger.level, logger.propagate)
    handler = _FaceHandler(face, level=logging.INFO if verbose else logging.WARNING)
    if not verbose:  # whoever says --allowed-tools knows that these are not asked about
        handler.addFilter(lambda record: record.name != "claude_transport.client.shadowing")
    logger.addHandler(handler)
    logger.setLevel(handler.level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level, logger.propagate = before
        logger.setLevel(level)


class _FaceHandler(logging.Handler):
    """Says what is logged: a line for each record, and those of a traceback below it."""

    def __init__(self, face: Face, *, level: int) -> None:
        super().__init__(level)
        self._face = face

    def emit(self, record: logging.LogRecord) -> None:
        first, *more = record.getMessage().split("\n")
        self._face.say(f"{self._face.look.symbol('dot')} {printable(first)}", style="dim")
        for line in more:  # of a traceback
            self._face.say(f"  {printable(line)}", style="dim")
