"""`claude-transport ask` and `record`: prompts in, the answer as it is written, through claude or the Messages API.

`record` is `ask` with a `RecordingTransport` around the transport. How an answer is shown is in `render`.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TextIO

import anyio
import msgspec

from claude_transport.agents.registry import find_agent
from claude_transport.app.agent_options import check_program, other_programs, refuse_foreign
from claude_transport.app.arguments import split_rules
from claude_transport.app.event_loop import run_interruptibly, run_on, while_ticking
from claude_transport.app.failures import EXIT_FAILED, EXIT_OK, NO_ANSWER, PROGRAM
from claude_transport.app.render import AnswerReader, Face, Remark, ShownToolCall, Words, gist_of, summarize
from claude_transport.app.standard_streams import write_remark
from claude_transport.app.terminal import choose_look, is_terminal, one_line, open_progress, visible
from claude_transport.client.questions import Allow, CallbackContext, Deny
from claude_transport.client.shadowing import NOT_ASKED
from claude_transport.completion.call import announce, stream
from claude_transport.completion.classification import classify_result, with_address
from claude_transport.completion.completion import Completion, partial_completion
from claude_transport.completion.one_shot import OneShot, query
from claude_transport.completion.readiness import PreflightReport, find_config_dir, preflight
from claude_transport.completion.resolution import AgentChoice, AgentKind
from claude_transport.errors import ClaudeTransportError, CLINotFoundError, ConfigurationError, MissingResult, UsageError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, encode_message
from claude_transport.protocol.messages import AssistantMessage, InitMessage, ResultMessage
from claude_transport.text.printable import printable
from claude_transport.transport import Transport
from claude_transport.transports.subprocess import SubprocessTransport

NOTICE: Final = "simulated: no Claude was asked, the answer is made up on this machine"
PACE: Final = 0.03
"""Seconds before each word of the simulated Claude."""
_TOOL_LINE_PATIENCE: Final = 0.5
"""Seconds to wait until the line about a tool call is shown, before the question about it. With `--json` there is no such line."""
_MAX_NAME: Final = 80
"""Characters shown of the name of a tool or a field."""
_MAX_LINES: Final = 40
"""Lines shown of one field. A command is always shown whole: users must see what they allow."""


def run(args: SimpleNamespace) -> int:
    """Ask, show the answer, and return the exit code. Raises what `failures` can report."""
    prompt = read_prompt(args.prompt)
    check_program(args, _named_program(args))
    return run_on(args.backend, partial(_ask, args, prompt, None))


def run_recorded(args: SimpleNamespace) -> int:
    """Ask each prompt in one conversation, and record everything but secrets on a tape.

    Returns the exit code. Raises as `run()` does, and `ConfigurationError` if the tape cannot be written.
    """
    if args.to_script is not None:
        from claude_transport.app.record_as_claude import print_script

        return print_script(args)
    from claude_transport.wrappers.recording import RecordingTransport

    if args.output is None:
        raise UsageError("record needs a place for the tape. Give -o TAPE, or --as-claude TAPE.")
    if args.turn is not None:
        raise ConfigurationError("--turn replaces a turn of a tape: give it with --as-claude TAPE", option="turn")
    if args.prompts.count("-") > 1:
        raise ConfigurationError("stdin can be read only once. Give the prompt `-` once.", option="prompt")
    prompts = [read_prompt(prompt) for prompt in args.prompts or (None,)]
    path = Path(args.output)
    if path.exists() and not args.force:
        raise ConfigurationError(f"{args.output} exists already; --force overwrites it", option="output")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{args.output} cannot be a tape: it is a directory, or its directory does not exist", option="output")
    check_program(args, _named_program(args))
    refuse_foreign(args, args.agent)
    recordings: list[RecordingTransport] = []

    def record(transport: Transport) -> Transport:
        recordings.append(RecordingTransport(transport, path))
        return recordings[0]

    ask = _ask if args.agent == "claude-code" else _ask_other
    try:
        code = run_on(args.backend, partial(ask, args, prompts, record))
    finally:
        failure = next((recording.failure for recording in recordings), None)
        if failure is not None:
            write_remark(f"{PROGRAM}: the tape {printable(args.output)} is not complete: {printable(failure)} [tape.incomplete]")
    return EXIT_FAILED if code == EXIT_OK and failure is not None else code


def read_prompt(given: str | None) -> str:
    """Return the given prompt, or read stdin for `-` and None. Raises `ConfigurationError` if there is no prompt."""
    if given is None and is_terminal(sys.stdin):
        raise ConfigurationError(
            "there is no PROMPT, and stdin is not a pipe. Give one in quotes, or pipe a text into stdin.", option="prompt"
        )
    try:
        # an argument is bytes; the locale (LC_ALL=C) may have decoded them as something else than UTF-8
        from_stdin = given is None or given == "-"
        prompt = _without_line_end(sys.stdin.buffer.read().decode()) if from_stdin else os.fsencode(given or "").decode()
    except UnicodeError as error:
        raise ConfigurationError("the prompt is not UTF-8 text", option="prompt") from error
    except OSError as error:
        raise ConfigurationError(f"stdin cannot be read: {error.strerror or error}", option="prompt") from error
    if not prompt.strip():
        raise ConfigurationError("the prompt is empty. Give one in quotes, or pipe a text into stdin.", option="prompt")
    return prompt


def _without_line_end(text: str) -> str:
    """Return the text without the one line end that `echo` and editors add."""
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


async def _ask(args: SimpleNamespace, prompt: str | list[str], around: Callable[[Transport], Transport] | None) -> int:
    face = _face(args)
    with ExitStack() as stack:
        stack.enter_context(_library_log(face, verbose=args.verbose))
        cli_path = args.cli_path
        if args.offline:
            from claude_transport.testing.fake_claude import FakeClaude
            from claude_transport.testing.scenario import Scenario

            cli_path = str(stack.enter_context(FakeClaude(Scenario.simulated(pace=PACE))).path)
            face.mention(f"{face.look.symbol('dot')} {NOTICE}")
        options = _options(args, cli_path)
        chosen = _choose_path(args, options)
        for warning in chosen.warnings if args.verbose else ():
            face.say(f"{face.look.symbol('dot')} {warning}", style="dim")
        if chosen.agent_resolution is not None:
            announce(chosen.agent_resolution, payer=chosen.payer, say=partial(_announce, face))
        if isinstance(prompt, str) and (chosen.agent != "claude-code" or chosen.cell.kind == "api"):
            answer = _StreamedAnswer(args, prompt, options, face, agent=chosen.agent)
            return await run_interruptibly(answer.show, give_up=answer.give_up)
        if chosen.resolution is not None:
            announce(chosen.resolution, payer=chosen.payer, say=partial(_announce, face))
        on_stderr = partial(face.say, style="dim") if args.verbose else None
        transport: Transport = SubprocessTransport(options, on_stderr=on_stderr)
        if around is not None:
            transport = around(transport)
        return await run_interruptibly(partial(_converse, args, prompt, transport, face), give_up=transport.close)


async def _ask_other(args: SimpleNamespace, prompts: list[str], around: Callable[[Transport], Transport]) -> int:
    """Ask each prompt in one session of another agent than Claude Code."""
    from claude_transport.app.record_other import OtherRecording

    face = _face(args)
    with ExitStack() as stack:
        stack.enter_context(_library_log(face, verbose=args.verbose))
        recording = OtherRecording(args, prompts, face, around=around)
        return await run_interruptibly(recording.show, give_up=recording.give_up)


def _face(args: SimpleNamespace) -> Face:
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    if look.rich and not args.json:
        from claude_transport.app.render_rich import RichFace

        return RichFace(sys.stdout, sys.stderr, look=look, quiet=args.quiet)
    progress = None
    if look.stderr_color and not args.quiet:  # without colours nothing moves either, as with rich
        progress = open_progress("", stream=sys.stderr, look=look, unit="s", scale=1)
    return Face(sys.stdout, sys.stderr, look=look, quiet=args.quiet, progress=progress)


def _options(args: SimpleNamespace, cli_path: str | None) -> ClaudeOptions:
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


def _choose_path(args: SimpleNamespace, options: ClaudeOptions) -> PreflightReport:
    """Return the pre-flight report. `--cli-path` and `--offline` choose Claude and its CLI.

    Raises `ConfigurationError` if `--transport` contradicts that, or if the call cannot work. If there is neither a claude nor a key, the
    error lists every place that was searched.
    """
    find_config_dir(os.environ)  # raises when the home directory is unknown, before anything else is tried
    named = _named_program(args)
    if named and args.transport == "api":
        raise ConfigurationError(f"{named} runs a claude, and --transport api runs none. Give one of them.", option="transport")
    agent: AgentChoice | None = "claude-code" if named else args.agent
    others: dict[str, Any] = other_programs(args)
    report = preflight("cli" if named else args.transport, env=os.environ, options=options, agent=agent, **others)
    if named:
        return report  # the start of the named program reports its own problems
    if report.agent not in (None, "claude-code") and report.code == CLINotFoundError.code:
        raise CLINotFoundError(report.problem, searched=report.searched)
    if report.code == "config.no_auth_path" and report.choice != "api":
        raise CLINotFoundError(report.problem, searched=report.searched, code=report.code)
    return report.raise_for_problem()


def _named_program(args: SimpleNamespace) -> str | None:
    """Return the option that names a claude; None without one."""
    return "--offline" if args.offline else "--cli-path" if args.cli_path is not None else None


def _announce(face: Face, line: str) -> None:
    said = re.sub(r'(agent|transport)="([\w-]+)"', r"--\1 \2", line)
    face.mention(f"{PROGRAM}: {said}")


def _wants_summary(args: SimpleNamespace) -> bool:
    return bool(args.verbose or (is_terminal(sys.stderr) and not args.json and not args.quiet))


async def _converse(args: SimpleNamespace, prompt: str | list[str], transport: Transport, face: Face) -> int:
    reader = AnswerReader()
    asker = PermissionAsker(face, Keyboard(sys.stdin, sys.stderr), on_refusal=reader.silenced.add)
    said = prompt if isinstance(prompt, str) else _each(prompt)
    conversation = query(said, transport=transport, close_timeout=args.close_timeout, can_use_tool=asker.can_use_tool)
    started = time.monotonic()
    face.waiting("starting claude")
    try:
        with anyio.move_on_after(args.timeout):
            await while_ticking(partial(_show_all, conversation, reader, face, raw=args.json), face.on_tick)
    finally:
        await _finish(conversation, face)
    result = reader.result
    answers = [result] if isinstance(prompt, str) else reader.results
    expected = 1 if isinstance(prompt, str) else len(prompt)
    if result is None or len(answers) < expected:  # only after the timeout: otherwise a missing result has raised already
        raise MissingResult(f"no answer in {args.timeout:g} s. {NO_ANSWER}", code="exec.cli.timeout", category="timeout")
    if _wants_summary(args):
        seconds = time.monotonic() - started
        face.say(summarize(result, model=reader.model, seconds=seconds, look=face.look, tokens=reader.tokens), style="dim")
    for answer in answers:  # the first failure says most
        failure = None if answer is None else classify_result(answer)
        if failure is not None:
            raise with_address(failure, os.environ.get("ANTHROPIC_BASE_URL"))
    return EXIT_OK


async def _each(prompts: Sequence[str]) -> AsyncIterator[str]:
    for prompt in prompts:
        yield prompt


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
            face.say(f"{face.look.symbol('bad')} a line without a message was skipped ({message.type})", style="yellow")
        else:
            # messages after a result are held back until the next result, so that the last line is the last result
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


class _StreamedAnswer:
    """One prompt to the Messages API, or to another agent. Options that only a claude can fulfil are refused, not ignored."""

    def __init__(self, args: SimpleNamespace, prompt: str, options: ClaudeOptions, face: Face, *, agent: AgentKind | None) -> None:
        others: dict[str, Any] = {name: options for name, options in other_programs(args).items() if name == agent}
        self._stream = stream(
            prompt,
            transport="api" if agent in (None, "claude-code") else "cli",
            agent=agent,
            timeout=math.inf if args.timeout is None else args.timeout,
            close_timeout=args.close_timeout,
            options=options.replace(cli_path=None),
            on_event=self._note,
            **others,
        )
        self._args = args
        self._face = face
        self._agent = agent
        self._calls: deque[ShownToolCall] = deque()

    async def give_up(self) -> None:
        """End the call at once."""
        await self._stream.aclose()

    async def show(self) -> int:
        """Show the answer while it is written, and return the exit code. Raises what the call raises."""
        self._face.waiting("asking the API" if self._agent in (None, "claude-code") else f"asking {find_agent(self._agent).title}")
        try:
            await while_ticking(self._show_words, self._face.on_tick)
            await self._conclude(self._stream.completion)
        except ClaudeTransportError as error:
            failed = partial_completion(error)
            if self._args.json and failed is not None:
                await self._show_events(failed)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
                with anyio.move_on_after(1):  # a reader that has stopped reading must not keep the program alive
                    await self._face.finish()
        return EXIT_OK

    def _note(self, event: Message) -> None:
        if isinstance(event, AssistantMessage):
            self._calls += (ShownToolCall(tool_use_id=tool.id, name=tool.name, gist=gist_of(tool.input)) for tool in event.tool_uses)

    async def _show_words(self) -> None:
        async for piece in self._stream:
            await self._show_calls()
            if not self._args.json:
                await self._face.show(Words(piece))
        await self._show_calls()

    async def _show_calls(self) -> None:
        while self._calls:
            call = self._calls.popleft()
            if not self._args.json:
                await self._face.show(call)

    async def _conclude(self, completion: Completion) -> None:
        if self._args.json:
            await self._show_events(completion)
            return
        if not completion.text:
            await self._face.show(Remark(text="the answer is empty"))
        for warning in completion.warnings:
            await self._face.show(Remark(text=warning, problem=True))
        result = completion.events[-1] if completion.events else None
        if _wants_summary(self._args) and isinstance(result, ResultMessage):
            await self._face.finish()
            priced = completion.agent == "claude-code"
            line = summarize(result, model=completion.model or "", seconds=completion.duration, look=self._face.look, priced=priced)
            self._face.say(line, style="dim")

    async def _show_events(self, completion: Completion) -> None:
        for message in completion.events:
            await self._face.raw(encode_message(message).rstrip(b"\n"))


class Keyboard:
    """The user at the terminal: stderr shows the question, and a keyboard answers it. Either may be missing.

    If stdin is a pipe (the prompt came through it), the controlling terminal answers.
    """

    def __init__(self, stdin: TextIO, stderr: TextIO) -> None:
        self._stdin, self._stderr = stdin, stderr

    @property
    def is_there(self) -> bool:
        """Whether a question could be answered."""
        return os.name == "posix" and is_terminal(self._stderr) and (is_terminal(self._stdin) or os.path.exists("/dev/tty"))  # noqa: PTH110

    async def ask(self, show_question: Callable[[], object]) -> str:
        """Show the question, and return the line typed after it, or an empty string at the end of input. May be cancelled."""
        import termios

        own = not is_terminal(self._stdin)
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY) if own else self._stdin.fileno()
        try:
            termios.tcflush(descriptor, termios.TCIFLUSH)  # what was typed before the question cannot be an answer to it
            show_question()
            await anyio.wait_readable(descriptor)
            return os.read(descriptor, 4096).decode(errors="replace")  # a terminal hands over whole lines
        except OSError:  # the terminal is gone, or this is a background job, which may not read from it
            return ""
        finally:
            if own:
                os.close(descriptor)


class PermissionAsker:
    """The `can_use_tool` callback of `ask`: asks on the terminal, and denies without one.

    `on_refusal(tool_use_id)` is called after each denial, when its line has been shown.
    """

    def __init__(self, face: Face, keyboard: Keyboard, *, on_refusal: Callable[[str], object]) -> None:
        self._face = face
        self._keyboard = keyboard
        self._on_refusal = on_refusal

    async def can_use_tool(self, tool_name: str, tool_input: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        """Return the user's decision. A `Deny` has the reason for Claude."""
        if context.tool_use_id is not None:
            with anyio.move_on_after(_TOOL_LINE_PATIENCE):
                await self._face.shown(context.tool_use_id).wait()
        async with self._face.lock:
            decision = await self._decide(tool_name, tool_input)
        if isinstance(decision, Deny) and context.tool_use_id is not None:
            self._on_refusal(context.tool_use_id)
        return decision

    async def _decide(self, tool_name: str, tool_input: dict[str, Any]) -> Allow | Deny:
        face = self._face
        bad = face.look.symbol("bad")
        name = one_line(tool_name, width=_MAX_NAME)
        if tool_name == "AskUserQuestion":
            face.say(f"  {bad} Claude wanted to ask a question; `ask` takes one prompt and no answers", style="yellow")
            return Deny("Questions cannot be answered here. Decide by yourself, and say what you assumed.")
        if not self._keyboard.is_there:
            gist = one_line(gist_of(tool_input), width=60)
            face.say(f"  {bad} denied: {name} ({gist}), because there is no terminal to ask on; see --allowed-tools", style="yellow")
            return Deny("Permission denied: the program runs without a terminal, so the user could not be asked.")
        face.say(f"  Claude wants to use {name}:", style="bold")
        for line in _describe(tool_input):
            face.say(f"    {line}")
        answer = await self._keyboard.ask(lambda: face.say("  Allow it? [y/N] ", style="bold", end=""))
        if not answer.endswith("\n"):
            face.say("")  # the input ended, and the question's line did not
        if answer.strip().lower() in {"y", "yes"}:
            return Allow()
        face.say(f"  {bad} denied", style="yellow")
        return Deny("The user does not allow this.")


def _describe(tool_input: dict[str, Any]) -> list[str]:
    """Return the input, field by field, without control characters."""
    lines: list[str] = []
    for name, value in tool_input.items():
        text = visible(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        first, *rest = text.split("\n")
        kept = rest if name == "command" else rest[:_MAX_LINES]
        lines += [f"{one_line(name, width=_MAX_NAME)}: {first}", *(f"  {line}" for line in kept)]
        if len(kept) < len(rest):
            lines.append(f"  … {len(rest) - len(kept)} more lines")
    return lines


@contextmanager
def _library_log(face: Face, *, verbose: bool) -> Iterator[None]:
    """A block in which the library's log becomes lines on stderr: warnings, and with `verbose` also information."""
    logger = logging.getLogger("claude_transport")
    before = (logger.level, logger.propagate)
    handler = _FaceHandler(face, level=logging.INFO if verbose else logging.WARNING)
    if not verbose:  # a user of --allowed-tools knows that these tools are not asked about
        handler.addFilter(lambda record: not record.getMessage().startswith(NOT_ASKED))
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
    """Shows each log record as a line, and the lines of its traceback below it."""

    def __init__(self, face: Face, *, level: int) -> None:
        super().__init__(level)
        self._face = face

    def emit(self, record: logging.LogRecord) -> None:
        first, *more = record.getMessage().split("\n")
        self._face.say(f"{self._face.look.symbol('dot')} {printable(first)}", style="dim")
        for line in more:  # of a traceback
            self._face.say(f"  {printable(line)}", style="dim")
