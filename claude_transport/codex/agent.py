"""`Codex`: Codex as an `Agent`. `CodexFields`: its options hold for the clients of a server. What its turns are is in `turns`.

`plan_codex()` makes one value of everything that would be run for its options, from `argv` and `environ`. Starts nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from claude_transport.agents.agent import Agent, AskedCall, Attempt, CallPlan, Heard, HeldOptions, StartContext
from claude_transport.codex.argv import build_codex_argv
from claude_transport.codex.configuration import configuration_texts, find_codex_home
from claude_transport.codex.credentials import check_codex_payer, describe_codex_credentials
from claude_transport.codex.discovery import find_codex
from claude_transport.codex.environ import CODEX_RULES, build_codex_environment
from claude_transport.codex.features import CODEX_RANGE
from claude_transport.codex.options import PLAIN_CODEX, CodexOptions, check_options
from claude_transport.codex.turns import CodexTurns
from claude_transport.errors import AuthFailed, BillingFailed, ConnectTimeout
from claude_transport.launch.credentials import CredentialReport
from claude_transport.launch.discovery import CLI, read_cli_version
from claude_transport.launch.features import SupportedRange
from claude_transport.launch.launch import INHERIT, Launch, PlannedLaunch, check_launcher
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import AgentOptions
from claude_transport.launch.payloads import Delivery
from claude_transport.launch.supervisor import RemoteEnvironment
from claude_transport.protocol.envelope import JSONTextError, encode_line, parse_json
from claude_transport.protocol.line_shape import LineShape, shape_of
from claude_transport.protocol.turn_tracker import TurnTracker
from claude_transport.transport import SessionTerms, TransportLike

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from claude_transport.agents.readers import SpanTexts
    from claude_transport.agents.scene import Scene
    from claude_transport.codex.lanes import CodexLanes
    from claude_transport.codex.metrics import CodexReader
    from claude_transport.codex.spans import CodexSpans
    from claude_transport.codex.tape_lines import CodexLines

_THREADS: Final = frozenset({"thread/start", "thread/resume", "thread/fork"})
_MODELS: Final = re.compile(r"(?:openai/)?(?:gpt-|chatgpt-|codex-|o[134](?:-|$))", re.IGNORECASE)
_CANDIDATE: Final = re.compile(rb'"(?:thread/(?:start|resume|fork)|turn/start)"|\\u00|\\/')


class Codex(Agent):
    """Codex, through `codex app-server`."""

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex"
    program: ClassVar[str] = "codex"
    provider: ClassVar[str] = "openai"
    options_type: ClassVar[type[AgentOptions]] = CodexOptions
    path_option: ClassVar[str] = "codex_path"
    supported: ClassVar[SupportedRange | None] = CODEX_RANGE
    chooses_in: ClassVar[str] = ": choose in thread/start"
    remedies: ClassVar[Mapping[type[BaseException], str]] = {
        AuthFailed: "Log in (`codex login`), or set the key that the configuration of Codex names.",
        BillingFailed: "Check the account's credit; `codex login status` says which account is used.",
        ConnectTimeout: "`codex app-server` did not answer; run `codex` once by hand to see what it says.",
    }

    def speaks(self, line: bytes) -> bool:
        """Return True for a line of JSON-RPC, and for an event of `codex exec --json`."""
        return shape_of(line) in (LineShape.RPC, LineShape.EVENT)

    def follow_turns(self) -> TurnTracker:
        """Follow the turns of all threads."""
        return CodexTurns()

    def metrics_reader(self) -> CodexReader:
        """Read turns, tokens and results."""
        from claude_transport.codex.metrics import CodexReader  # only what counts needs it

        return CodexReader()

    def spans(self, tracer: Tracer, *, content: SpanTexts | None) -> CodexSpans:
        """Make the spans of turns and tool calls."""
        from claude_transport.codex.spans import CodexSpans  # it needs OpenTelemetry

        return CodexSpans(tracer, content=content)

    def tape_lines(self) -> CodexLines:
        """Match requests by their methods, and answers by their questions."""
        from claude_transport.codex.tape_lines import CodexLines  # a replay is rare

        return CodexLines()

    def tape_reader(self, scene: Scene) -> CodexLanes:
        """Read the lanes of a tape."""
        from claude_transport.codex.lanes import CodexLanes  # an inspector is rare

        return CodexLanes(scene)

    def plain_options(self) -> CodexOptions:
        """Return options with which commands can only read, and nothing is asked."""
        return PLAIN_CODEX

    def check(self, options: CodexOptions, *, command: Sequence[Any] | None, launcher: Launcher | None) -> None:
        """Check the options alone, and that the settings can be written."""
        check_options(options, check_files=False)
        if command is None:
            build_codex_argv(options, self.program)

    def plan(self, options: CodexOptions, context: StartContext) -> PlannedLaunch:
        """Plan `codex app-server`."""
        return plan_codex(options, inherited=context.inherited, command=context.command, launcher=context.launcher, trace=context.trace)

    def accept(self, options: CodexOptions, planned: PlannedLaunch, *, version: str | None) -> None:
        """Check that the version is in the supported range."""
        if planned.cli is not None:
            CODEX_RANGE.check(version)

    def terms(self, options: CodexOptions, *, delivery: Delivery, is_command: bool) -> SessionTerms:
        """Return who may pay, and what the requests that open a thread have to say."""
        return SessionTerms(billing=options.billing, agent=self.name, session_class="CodexSession", thread=options.thread_fields)

    def confidential(self, options: CodexOptions) -> Sequence[str]:
        """Return the texts of the configuration."""
        return configuration_texts(options)

    def hold(self, options: CodexOptions, terms: SessionTerms) -> HeldOptions:
        """Set the sandbox and the approvals in every request that opens a thread."""
        limits = {"sandbox": options.sandbox, "approvalPolicy": options.approval_policy}
        return CodexFields({**terms.thread, **{name: value for name, value in limits.items() if isinstance(value, str)}})

    def find(self, options: CodexOptions, env: Mapping[str, str]) -> CLI:
        """Look for `codex` as `find_codex` does."""
        return find_codex(options.codex_path, env=env)

    def credential(self, options: CodexOptions, env: Mapping[str, str]) -> CredentialReport:
        """Find what `app-server` would use."""
        return describe_codex_credentials(options, env)

    def home(self, env: Mapping[str, str]) -> str | None:
        """Return `CODEX_HOME`, or the usual place."""
        found = find_codex_home(env)
        return None if found is None else str(found)

    async def converse(
        self, transport: TransportLike, prompts: Sequence[str], hear: Callable[[Heard], Awaitable[object]], *, close_timeout: float | None
    ) -> None:
        """Ask each prompt in one thread."""
        from claude_transport.codex.prompting import ask_each  # most programs make one call, or have a session of their own

        await ask_each(transport, prompts, hear, close_timeout=close_timeout)

    def names_model(self, model: str) -> bool:
        """Return True for the models of OpenAI."""
        return _MODELS.match(model) is not None

    def plan_call(self, call: AskedCall, env: Mapping[str, str]) -> CallPlan:
        """Refuse what Codex cannot do, and find who would pay."""
        from claude_transport.codex.calling import plan_codex_call  # one call is loaded only where it is made

        return plan_codex_call(call, env)

    def attempt(self, call: AskedCall, plan: CallPlan) -> Attempt:
        """Send the prompt in a thread of its own."""
        from claude_transport.codex.calling import CodexPath

        return CodexPath(call, plan.credential)


def plan_codex(
    options: CodexOptions,
    *,
    inherited: Mapping[str, str],
    command: Sequence[str] | None = None,
    launcher: Launcher | None = None,
    trace: Mapping[str, str] | None = None,
) -> PlannedLaunch:
    """Make the launch of `codex app-server` for `options`. Looks for programs on this machine, and starts nothing.

    Args:
        options: the options of Codex.
        inherited: the environment to inherit from, usually `os.environ`.
        command: a program and its arguments, to run in place of `codex app-server`.
        launcher: where or behind which program to run it.
        trace: variables of a trace, below those of the options, for another machine.

    Raises:
        ConfigurationError: Codex would refuse, ignore or misread an option, or this machine lacks the program of the launcher.
        CLINotFoundError, NotExecutableError: there is no `codex` on this machine.
    """
    launcher = INHERIT if launcher is None else launcher
    check_launcher(launcher, inherited)
    check_options(options, check_files=not launcher.supervised)
    cwd = None if options.cwd is None else os.fspath(options.cwd)
    if launcher.supervised:
        program = "codex" if options.codex_path is None else os.fspath(options.codex_path)
        argv = build_codex_argv(options, program) if command is None else command
        beyond = {name: value for name, value in (trace or {}).items() if name not in options.env}
        remote = RemoteEnvironment.of(options, trace=beyond, rules=CODEX_RULES)
        return PlannedLaunch(launch=Launch(argv=tuple(argv), env={}, cwd=cwd), launcher=launcher, remote=remote)
    env = build_codex_environment(options, inherited)
    if command is not None:
        return PlannedLaunch(launch=Launch(argv=tuple(command), env=env, cwd=cwd), launcher=launcher)
    cli = find_codex(options.codex_path, env=inherited)
    read_cli_version(cli)  # read from the disk, later from memory
    payer = check_codex_payer(options, inherited)
    launch = Launch(argv=tuple(build_codex_argv(options, cli.path)), env=env, cwd=cwd, notes=() if payer is None else payer.notes)
    return PlannedLaunch(launch=launch, launcher=launcher, cli=cli)


class CodexFields(HeldOptions):
    """Changes requests of the client so that the options of a gateway in front of Codex hold for its threads and turns.

    It keeps a client from choosing more by mistake. It is no wall: `command/exec` and other requests of Codex obey no option.

    Args:
        fields: set in every request that opens a thread: `approvalPolicy` and `sandbox`, as far as the gateway has them. A prompt gets the
            same `approvalPolicy`, and no sandbox of its own.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return `lines`, with changes in the requests that the gateway's options concern."""
        if not self._fields:
            return lines
        return [self._merged(line) if _CANDIDATE.search(line) else line for line in lines]

    def _merged(self, line: bytes) -> bytes:
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return line  # Codex answers nothing to it
        method = message.get("method") if isinstance(message, dict) else None
        if not isinstance(method, str) or (method not in _THREADS and method != "turn/start"):
            return line
        given = message.get("params")
        params: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        if method == "turn/start":
            if "sandbox" in self._fields:
                params.pop("sandboxPolicy", None)
            changes = {name: value for name, value in self._fields.items() if name in params}
        else:
            changes = self._fields
        return encode_line({**message, "params": {**params, **changes}})[:-1]
