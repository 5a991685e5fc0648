"""`Agent`: what this library has to know of an agent, to run it, to follow it, and to ask it one question.

The built-in agents implement it, and so do plug-ins. Each part is loaded only when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.credentials import CredentialReport, Payer
from claude_transport.launch.discovery import CLI
from claude_transport.launch.features import SupportedRange
from claude_transport.launch.launch import PlannedLaunch
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import AgentOptions, ClaudeOptions, fields_of, is_given
from claude_transport.launch.payloads import Delivery
from claude_transport.launch.session_store import SessionStore
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.tape_lines import ClaudeLines, TapeLines
from claude_transport.protocol.turn_tracker import TurnTracker
from claude_transport.transport import SessionTerms, TransportLike, info_of

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from claude_transport.agents.readers import MetricsReader, SpanMaker, SpanTexts, TapeReader
    from claude_transport.agents.scene import Scene


class StartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where and for whom a process of an agent is started: what a launch needs beside the options.

    * `inherited`: the environment to inherit from. `trace`: variables of a trace, below those of the options.
    * `command`: a program and its arguments, to run in place of the agent's own.
    * `launcher`: where or behind which program to run it; None starts it here.
    * `permission_prompt`: how the CLI asks for permissions, and `own_servers` the MCP servers of the program that asks. For Claude.
    """

    inherited: Mapping[str, str]
    trace: Mapping[str, str] = {}
    command: Sequence[str] | None = None
    launcher: Launcher | None = None
    permission_prompt: str | None = None
    own_servers: Sequence[str] = ()


class AgentReason(Protocol):
    """Why an agent answers a call: `choice` was found in `layer`, and `reason` says so in a sentence."""

    @property
    def kind(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def choice(self) -> str: ...
    @property
    def reason(self) -> str: ...


class AskedCall(Protocol):
    """One call of `complete()` or `stream()`, as an agent gets it."""

    @property
    def prompt(self) -> str | Sequence[Mapping[str, Any]]:
        """Text, or content blocks as the Messages API has them."""
        ...

    @property
    def options(self) -> ClaudeOptions:
        """What the call asks for, in the words of Claude: the arguments `model`, `system`, …, and the `options` of the caller, if any."""
        ...

    @property
    def arguments(self) -> Mapping[str, str]:
        """The options that came from an argument of the call, with the name of the argument: `{"system_prompt": "system"}`."""
        ...

    @property
    def plain(self) -> bool:
        """True when the caller gave no `ClaudeOptions`. All else in `options` is then a default, but for the names in `arguments`."""
        ...

    @property
    def agent_options(self) -> Any:
        """The options of the agent, or None when the caller gave none."""
        ...

    @property
    def chosen(self) -> AgentReason:
        """Why this agent answers."""
        ...

    @property
    def makes_transport(self) -> bool:
        """True when the caller makes the transport, which may lead to another machine."""
        ...

    @property
    def close_timeout(self) -> float | None:
        """Seconds for closing; None for those of the agent."""
        ...

    def transport_with(self, options: Any) -> TransportLike:
        """Return a new transport for one attempt. The agent connects and closes it."""
        ...


NO_EXIT_CODE: Final = -1
"""Exit code of a run that has none: the program was not started, or a signal or the timeout ended it."""


class Attempt(ABC):
    """One attempt at a call. `run()` is called once, and ends the process in every case."""

    kind: Literal["cli", "api"] = "cli"
    """The path: a program on some machine, or the Messages API."""
    dispatched: bool = False
    """Whether the prompt may have reached the agent. Then a retry could do something twice."""
    may_have_acted: bool = False
    """Whether the model may have called a tool."""
    payer: Payer = "unknown"
    api_key_source: str | None = None
    exit_code: int | None = NO_EXIT_CODE
    """Exit code of the process; -1 for one that has none, and None where there is no process."""
    stderr_tail: str = ""
    words: Sequence[tuple[str, str]] | None = None
    """How the fixed sentences about `claude`, which take the place of the messages of errors, become those of this agent: of each pair, the
    second replaces the first, in this order. None keeps the messages of the errors that `run()` raises."""

    @abstractmethod
    async def run(self, hear: Callable[[Message], object]) -> None:
        """Send the prompt, and pass to `hear` the messages that `claude` would send for the same: `AssistantMessage`, …, `ResultMessage`.

        Raises `ClaudeTransportError`, also for a run that failed.
        """

    def note_end(self, transport: TransportLike | None) -> None:
        """Note the exit code and the end of the standard error of the process behind `transport`, when `run()` is over."""
        info = None if transport is None else info_of(transport)
        if info is not None:
            self.exit_code = NO_EXIT_CODE if info.exit_code is None else info.exit_code
            self.stderr_tail = info.stderr_tail


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call before it is made: the options that the agent would run with, the model, and the credential, if it can be
    told. A model of another agent is refused.
    """

    options: Any
    credential: CredentialReport | None = None
    model: str | None = None


class HeldOptions:
    """Changes the lines of clients so that the options of the server hold. This base class changes nothing."""

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return `lines`, each a whole line without its newline, with changes where the options of the server concern them."""
        return lines


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation as a person follows it: its line, the new text in it, and the tool call that begins with it.

    `tool` is the name of the tool, or empty; `tool_id` and `tool_input` belong to it.
    """

    line: bytes
    text: str = ""
    tool: str = ""
    tool_id: str = ""
    tool_input: Mapping[str, Any] = {}
    ends_turn: bool = False


class Agent(ABC):
    """An agent: a program that runs turns, and speaks JSON lines.

    Make a subclass and name it as an entry point in the group `claude_transport.agents`; the name of the entry point is `name`. The options
    of an agent are a class of their own, a subclass of `AgentOptions`.
    """

    name: ClassVar[str]
    """The name that callers write, such as `claude-code`."""
    title: ClassVar[str]
    """The name in messages for people, such as `Claude Code`."""
    program: ClassVar[str]
    """The name of its executable, for messages."""
    provider: ClassVar[str] = ""
    """Who runs its models, as OpenTelemetry's conventions for generative AI name it, such as `anthropic`; empty if that is not known."""
    options_type: ClassVar[type[AgentOptions]]
    path_option: ClassVar[str] = "cli_path"
    """The name of the option with the path of its executable."""
    supported: ClassVar[SupportedRange | None] = None
    """The versions that can be talked to; None when any may work."""
    remedies: ClassVar[Mapping[type[BaseException], str]] = {}
    """What a user should do about an error of a call to this agent: a sentence for each class of errors."""
    chooses_in: ClassVar[str] = ""
    """The end of the sentence that refuses the choices of a gateway's client. It says where the client may choose instead."""

    # Its lines

    @abstractmethod
    def speaks(self, line: bytes) -> bool:
        """Return True for a line that only this agent or its host would write. It is asked for the first lines of a session."""

    @abstractmethod
    def follow_turns(self) -> TurnTracker:
        """Return what follows the turns of one session: when a turn runs, and what has to be said before its input may end."""

    def metrics_reader(self) -> MetricsReader | None:
        """Return what reads the lines of one connection for `MetricsTransport`; None for an agent that speaks as Claude does."""
        return None

    def spans(self, tracer: Tracer, *, content: SpanTexts | None) -> SpanMaker | None:
        """Return what makes the OpenTelemetry spans of a session; None for an agent that speaks as Claude does.

        `content` is None when spans may hold no texts.
        """
        return None

    def tape_lines(self) -> TapeLines:
        """Return what matches the lines of a live host with those of a tape, in a replay."""
        return ClaudeLines()

    def tape_reader(self, scene: Scene) -> TapeReader | None:
        """Return what reads a tape for the inspector, into its `scene`; None for an agent that speaks as Claude does."""
        return None

    # Running it

    def plain_options(self) -> Any:
        """Return the options for a caller who gives none."""
        return self.options_type()

    def check(self, options: Any, *, command: Sequence[Any] | None, launcher: Launcher | None) -> None:  # noqa: B027 - may be left out
        """Raise `ConfigurationError` for options that the agent would refuse on any machine. Called when a transport is made."""

    def read(self, options: Any, *, delivery: Delivery) -> Any:
        """Return options with the files read that are to be read once, on this machine. Called in a thread, before `plan()`."""
        return options

    @abstractmethod
    def plan(self, options: Any, context: StartContext) -> PlannedLaunch:
        """Return what would be run. Looks for programs on this machine, and starts nothing. Called in a thread.

        An agent that can be started behind `context.launcher` puts it into the plan; else a transport with a launcher is refused.

        Raises:
            ConfigurationError: the agent would refuse, ignore or misread an option.
            CLINotFoundError, NotExecutableError: its program is not on this machine.
        """

    def plans_quickly(self, options: Any, *, command: Sequence[str] | None, launcher: Launcher | None) -> bool:
        """Return True when `plan()` looks at nothing on the disk but at the program. Then it may be called in the event loop."""
        return False

    def accept(self, options: Any, planned: PlannedLaunch, *, version: str | None) -> None:  # noqa: B027 - may be left out
        """Check the program that `plan()` has found, whose version is known or None. Raises `CLIVersionMismatch`."""

    def terms(self, options: Any, *, delivery: Delivery, is_command: bool) -> SessionTerms:
        """Return what the options ask of the layer above the transport. `is_command` says that another program runs in its place."""
        return SessionTerms(agent=self.name)

    def permission_prompt(self, options: Any) -> str | None:
        """Return how the options want to be asked for permissions, where the agent can be told."""
        return None

    def session_store(self, options: Any) -> SessionStore | None:
        """Return the session store of the options, where the agent can have one."""
        return None

    def confidential(self, options: Any) -> Sequence[str]:
        """Return the texts of files on this machine that the session reads, in which redactors look for secrets."""
        return ()

    def hold(self, options: Any, terms: SessionTerms) -> HeldOptions:
        """Return what keeps the clients of a server within these options. `terms` are those of the session's transport."""
        return HeldOptions()

    def find(self, options: Any, env: Mapping[str, str]) -> CLI:
        """Find the program on this machine.

        Raises:
            CLINotFoundError, NotExecutableError: it is not here.
        """
        planned = self.plan(options, StartContext(inherited=env))
        return planned.cli or CLI(planned.launch.argv[0], "options")

    def credential(self, options: Any, env: Mapping[str, str]) -> CredentialReport | None:
        """Find the credential that the agent would use, and who would pay. The report holds no secret; None when it cannot be told."""
        return None

    def home(self, env: Mapping[str, str]) -> str | None:
        """Return the directory with the configuration and the login of the user, where the agent has one."""
        return None

    # Its sessions

    async def converse(
        self, transport: TransportLike, prompts: Sequence[str], hear: Callable[[Heard], Awaitable[object]], *, close_timeout: float | None
    ) -> None:
        """Send the prompts one after the other in one session over `transport`, and pass each message to `hear`. Close the transport.

        Raises `ClaudeTransportError`, also for a turn that failed: after the last turn, that of the first.
        """
        raise ConfigurationError(f"{self.title} cannot be talked to by this program", option="agent")

    # One call

    def names_model(self, model: str) -> bool:
        """Return True for the name of a model that no agent but this one has. A call to another agent may not ask for it."""
        return False

    honours: ClassVar[frozenset[str]] = frozenset()
    """Names of `ClaudeOptions` that the agent takes in a call, such as `model` and `system_prompt`."""

    def plan_call(self, call: AskedCall, env: Mapping[str, str]) -> CallPlan:
        """Check that the agent can answer this call, before anything is started.

        Raises:
            ConfigurationError: it cannot do what the call asks for; `option` names it.
        """
        refuse_more(call, self.honours, title=self.title)
        return CallPlan(options=self.plain_options() if call.agent_options is None else call.agent_options)

    @abstractmethod
    def attempt(self, call: AskedCall, plan: CallPlan) -> Attempt:
        """Return one attempt at the call. Its `payer` and `api_key_source` are those of `plan.credential`."""


RUN_ONLY: Final = (
    *("cli_path", "config_dir", "isolated_config", "pin_cli", "client_app", "entrypoint", "workload", "user", "name", "title"),
    *("verbatim_prompts", "include_partial_messages", "include_hook_events", "forward_subagent_text", "replay_user_messages"),
    *("session_state_events", "auth_status_events", "debug", "debug_file", "debug_to_stderr", "strict_mcp_config"),
    *("mcp_servers_delivery", "plugin_delivery", "mcp_timeout", "mcp_tool_timeout", "mcp_tool_idle_timeout", "setting_sources"),
    *("exclude_dynamic_system_prompt_sections", "disable_slash_commands", "await_initialize"),
)
"""Names of `ClaudeOptions` that only say how `claude` is run. For another agent they mean nothing."""


def refuse_more(call: AskedCall, honours: Container[str], *, title: str) -> None:
    """Raise `ConfigurationError` for an option of Claude that is given and that this agent does not honour: it would change the answer."""
    for field in fields_of(ClaudeOptions):
        name = call.arguments.get(field.name, field.name)
        is_ours = call.plain and field.name not in call.arguments
        known = field.name in honours or field.name in RUN_ONLY
        if not is_ours and not known and is_given(field, getattr(call.options, field.name)):
            raise ConfigurationError(f'{name}: {title} cannot do this. Remove it, or use agent="claude-code"', option=name)
