"""Takes official options apart: what the CLI runs with, what a `Query` is made with, and what a transport is made with.

`options_from` is for moving away from the official SDK, `transport_from` for staying with its client. Callbacks keep their signatures, and
are wrapped.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from claude_transport.client.query import Query, QueryOptions
from claude_transport.client.questions import Allow, CallbackContext, CanUseToolCallback, Deny, HookCallable, HookMatcher
from claude_transport.errors import ConfigurationError
from claude_transport.exchange.failures import tell_watchers
from claude_transport.interop.agent_sdk.adapting import AdaptedTransport, adapt
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import initialize_fields
from claude_transport.launch.rules import check_rules, check_skills, skill_rules
from claude_transport.loggers import logger_for
from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.hooks import HookOutput, encode_hook_output
from claude_transport.transport import Client, SessionTerms
from claude_transport.transports.subprocess import SubprocessTransport

if TYPE_CHECKING:
    import claude_agent_sdk


# Callbacks written for the official SDK, as a `Query` calls them.


logger: logging.Logger = logger_for(__name__)


def permission_callback_from(callback: claude_agent_sdk.CanUseTool) -> CanUseToolCallback:
    """Wrap an official `can_use_tool` for `Query`. A callback that raises, or returns something else, denies, as in the official SDK."""
    import claude_agent_sdk as sdk

    async def ask(tool_name: str, tool_input: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        suggestions = [sdk.PermissionUpdate.from_dict(update.to_dict()) for update in context.suggestions]
        theirs = sdk.ToolPermissionContext(
            suggestions=suggestions,
            tool_use_id=context.tool_use_id,
            agent_id=context.agent_id,
            blocked_path=context.blocked_path,
            title=context.title,
            display_name=context.display_name,
            description=context.description,
            decision_reason=context.decision_reason,
        )
        answer: object = await callback(tool_name, tool_input, theirs)
        if isinstance(answer, sdk.PermissionResultAllow):
            return Allow(updated_input=answer.updated_input, updated_permissions=_updates(answer.updated_permissions))
        if isinstance(answer, sdk.PermissionResultDeny):
            return Deny(message=answer.message, interrupt=answer.interrupt)
        raise TypeError(f"can_use_tool returned {type(answer).__name__}, not PermissionResultAllow or PermissionResultDeny")

    return ask


def _updates(updates: Sequence[claude_agent_sdk.PermissionUpdate] | None) -> tuple[PermissionUpdate, ...]:
    """Translate the changes of rules. Returns none at all when one cannot be sent, as the official SDK does."""
    try:
        return tuple(msgspec.convert(update.to_dict(), PermissionUpdate) for update in updates or ())
    except ValueError:  # also raised by msgspec, for what is not an update
        logger.warning("permission updates are left out: one of them lacks a field", exc_info=True)
        return ()


def hooks_from(hooks: Mapping[Any, Sequence[claude_agent_sdk.HookMatcher]]) -> dict[str, list[HookMatcher]]:
    """Wrap official hooks for `Query`. With `on_failure="block"` a hook that raises blocks; otherwise its failure is logged and ignored."""
    return {str(event): [_matcher(event, matcher) for matcher in matchers] for event, matchers in hooks.items() if matchers}


def _matcher(event: str, matcher: claude_agent_sdk.HookMatcher) -> HookMatcher:
    if matcher.on_failure not in (None, "continue", "block"):
        raise ConfigurationError(f'on_failure is "continue" or "block", not {matcher.on_failure!r}', option="hooks")
    blocks = matcher.on_failure == "block"
    callbacks = [_hook(event, callback, blocks=blocks) for callback in matcher.hooks]
    return HookMatcher(matcher.matcher, callbacks, timeout=matcher.timeout)


def _hook(event: str, callback: claude_agent_sdk.HookCallback, *, blocks: bool) -> HookCallable:
    async def run(given: Any, tool_use_id: str | None, _context: CallbackContext) -> HookOutput:
        try:
            # all that can fail belongs here, also the check of the answer: a failed hook without `block` must have no effect
            return _answer(event, await callback(given.to_dict(), tool_use_id, {"signal": None}))
        except Exception as exc:
            if blocks:
                raise
            tell_watchers(f"the {event} hook", exc)
            logger.warning("a %s hook failed, and is ignored", event, exc_info=True)
            return HookOutput()

    return run


def _answer(event: str, answer: object) -> HookOutput:
    """Check the known fields of a hook's answer. Unknown fields are passed on, as the official SDK does."""
    if not isinstance(answer, Mapping):
        raise TypeError(f"the {event} hook returned {type(answer).__name__}, not a dict")
    return HookOutput(extra=encode_hook_output(event, answer, strict=False))


# What becomes of each option of the official `ClaudeAgentOptions`: one row for each, which the code, the how-to and a test read.


class OptionRow(msgspec.Struct, frozen=True):
    """One row: the official name, the name here, and the difference.

    `is_same` means that the value is passed on under the same name. Empty values are left out where the official SDK leaves them out.
    """

    option: str
    here: str
    note: str = ""
    is_same: bool = False


def _same(option: str, note: str = "") -> OptionRow:
    return OptionRow(option, f"`ClaudeOptions.{option}`", note, is_same=True)


_STORE = "Stores of both packages work here and there. `transport_from` leaves it to the official client."

OPTION_ROWS: Final[tuple[OptionRow, ...]] = (
    _same("tools"),
    _same("allowed_tools"),
    OptionRow(
        "system_prompt",
        "`ClaudeOptions.system_prompt`",
        'None becomes `""`. There None means no system prompt; here it means the CLI\'s own.',
    ),
    OptionRow(
        "mcp_servers",
        "`ClaudeOptions.mcp_servers`; `Query(mcp_servers=…)` for those of this process",
        "The server object in an entry of type `sdk` is passed on under the same name.",
    ),
    _same("strict_mcp_config", "False stays False. The default here is None: strict when servers are configured."),
    _same("permission_mode"),
    _same("continue_conversation", "Refused beside `resume`. There the CLI silently takes the latest session."),
    _same("resume"),
    _same("session_id", "What is no UUID, or is given beside `resume` without `fork_session`, is refused here. There the CLI refuses it."),
    _same("max_turns", "0 becomes None: no limit."),
    _same("max_budget_usd"),
    _same("disallowed_tools"),
    _same("model"),
    _same("fallback_model"),
    _same("betas"),
    _same("permission_prompt_tool_name"),
    _same("cwd"),
    _same("cli_path", "With None, `find_cli` looks for it, also inside the official SDK."),
    _same("settings", "A file that is missing or holds no JSON object is refused here. There the CLI refuses it, or ignores it silently."),
    _same("add_dirs"),
    _same(
        "env",
        "Wins over inherited variables, as there. `CLAUDE_CODE_ENTRYPOINT` is not set to `sdk-py`. `transport_from` sets "
        "`CLAUDE_AGENT_SDK_VERSION`, as there; `options_from` does not, because another client speaks.",
    ),
    _same("extra_args", "Flags that the library writes itself are refused."),
    OptionRow(
        "max_buffer_size", "`SubprocessTransport(max_line_bytes=…)`", "A longer line loses that one message, and does not end the session."
    ),
    OptionRow("debug_stderr", "nothing", "The official SDK no longer reads it."),
    OptionRow("stderr", "`SubprocessTransport(on_stderr=…)`", "Standard error is always read: its end is in `transport.info`."),
    OptionRow(
        "can_use_tool",
        "`Query(can_use_tool=…)`",
        "`PermissionResultAllow`, `PermissionResultDeny` are `Allow`, `Deny`. Options that would prevent every call of it are refused.",
    ),
    OptionRow(
        "hooks",
        "`Query(hooks=…)`",
        "A hook that raises is ignored, unless its matcher has `on_failure='block'`. A hook written for this library blocks then. "
        "A hook that overruns its `timeout` always blocks here. Unknown fields of an answer are passed on, as there.",
    ),
    _same("user"),
    _same("include_partial_messages"),
    _same("include_hook_events"),
    _same("forward_subagent_text"),
    _same("verbatim_prompts"),
    _same("fork_session"),
    _same("resume_session_at"),
    _same("resume_drops_turn"),
    _same("agents", "`AgentDefinition` objects or mappings."),
    OptionRow("setting_sources", "`ClaudeOptions.setting_sources`", "None becomes user and project when `skills` is given, as there."),
    _same("skills"),
    _same("sandbox"),
    _same("plugins"),
    OptionRow("max_thinking_tokens", "`ClaudeOptions.max_thinking_tokens`", "Left out when `thinking` is given, which wins, as there."),
    _same("thinking"),
    _same("effort"),
    OptionRow("output_format", "`ClaudeOptions.output_format`", "Anything but a JSON schema is left out, as there."),
    _same("enable_file_checkpointing"),
    _same("session_store", _STORE),
    OptionRow(
        "session_store_flush", "nothing", "What comes while the store is busy is stored together, without a wait for the end of a turn."
    ),
    OptionRow("load_timeout_ms", "nothing", "A store gets 60 seconds for each answer, which is the default there."),
    _same("task_budget"),
    _same("client_app", "None sends no name; it is not derived from the running program."),
)


_SAME = tuple(row.option for row in OPTION_ROWS if row.is_same)
_KNOWN = frozenset(row.option for row in OPTION_ROWS)

_EMPTY_MEANS_NONE = frozenset(
    {"cwd", "fallback_model", "max_turns", "model", "permission_mode", "permission_prompt_tool_name", "resume", "resume_session_at"}
    | {"session_id", "settings"}
)
"""Options for which the official SDK does not pass on an empty value."""


class SpanTransport(SubprocessTransport):
    """Hands the OpenTelemetry span that is current at `connect()` on to the CLI, as the official client does. Made for its options."""

    _told = Client()

    async def connect(self) -> None:
        """Connect, after another look for the current span: the layer above may have attached long before."""
        self.attach(self._told)
        await super().connect()

    def attach(self, client: Client) -> SessionTerms:
        """Do what `SubprocessTransport.attach` does. The trace of the current span, if there is one, replaces that of `client`."""
        self._told = client
        return super().attach(msgspec.structs.replace(client, trace=current_trace() or client.trace))


def current_trace() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the current span by the program's own propagator; {} without one, or if that fails."""
    carrier: dict[str, str] = {}
    try:
        from opentelemetry import propagate

        propagate.inject(carrier)
    except ImportError:
        return {}
    except Exception:
        logger.warning("the current span is not handed on: its propagator failed", exc_info=True)
        return {}
    return {name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier} if "traceparent" in carrier else {}


class TransportOptions(TypedDict, total=False):
    """Arguments for `SubprocessTransport` that `options_from` found, beside the options of the CLI."""

    max_line_bytes: int
    on_stderr: Callable[[str], object]


class MovedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an official `ClaudeAgentOptions` becomes: `options` for the CLI, and keyword arguments for the transport and the `Query`.

    `open_query()` makes `Query(SubprocessTransport(moved.options, **moved.transport_options), **moved.query_options)`. It also hands the
    OpenTelemetry span that is current at the start on to the CLI, as the official client does; a transport of your own does so in a
    `TracingTransport`.
    """

    options: ClaudeOptions
    transport_options: TransportOptions
    query_options: QueryOptions

    def open_query(self, *, launcher: Launcher | None = None) -> Query:
        """Make a `Query` over a `SubprocessTransport`, not started yet: `async with options_from(theirs).open_query() as query`."""
        return Query(SpanTransport(self.options, launcher=launcher, **self.transport_options), **self.query_options)


def options_from(options: claude_agent_sdk.ClaudeAgentOptions) -> MovedOptions:
    """Translate official options into those of this library, with the same meaning. Callbacks keep their signatures, and are wrapped.

    The how-to "Move from the official SDK" has a row for each option.

    Raises:
        ConfigurationError: an option is newer than this table.
        ImportError: `claude_agent_sdk` is not installed.
    """
    _check(options)
    servers, own = _servers(options)
    query_options: QueryOptions = {}
    if options.can_use_tool is not None:
        query_options["can_use_tool"] = permission_callback_from(options.can_use_tool)
    if options.hooks:
        query_options["hooks"] = hooks_from(options.hooks)
    if own:
        query_options["mcp_servers"] = own
    return MovedOptions(
        options=_claude_options(options).replace(mcp_servers=servers),
        transport_options=_transport_options(options),
        query_options=query_options,
    )


def transport_from(options: claude_agent_sdk.ClaudeAgentOptions, *, launcher: Launcher | None = None) -> AdaptedTransport:
    """Make the transport that the official client would make from `options`. Give both to it.

    Use `ClaudeSDKClient(options, transport=transport_from(options))`. The client sends what travels by `initialize` (hooks, agents, the
    filter of skills), and answers callbacks and in-process MCP servers. The transport writes the command line. It hands the OpenTelemetry
    span that is current at `connect()` on to the CLI, as the official one does.

    Raises:
        ConfigurationError: an option cannot be run, or is not known here.
        ImportError: `claude_agent_sdk` is not installed.
    """
    import claude_agent_sdk

    _check(options)
    servers, own = _servers(options)
    if isinstance(servers, Mapping):
        # this client does not name its servers in `initialize`, as a Query does: the CLI must know them from its configuration
        servers = {**servers, **{name: {"type": "sdk", "name": name} for name in own}}
    ours = _claude_options(options)
    check_rules("allowed_tools", ours.allowed_tools)
    ours = ours.replace(
        mcp_servers=servers,
        env={**ours.env, "CLAUDE_AGENT_SDK_VERSION": claude_agent_sdk.__version__},
        allowed_tools=[*ours.allowed_tools, *(rule for rule in skill_rules(ours.skills) if rule not in ours.allowed_tools)],
        agents=None,
        skills=None,
        verbatim_prompts=False,
        session_mirror=options.session_store is not None,
        session_store=None,
    )
    if unsent := initialize_fields(ours):
        raise ConfigurationError(f"the official client does not send {', '.join(unsent)} of `initialize`", option="output_format")
    return adapt(SpanTransport(ours, launcher=launcher, **_transport_options(options)), options=options)


def _check(options: object) -> None:
    import claude_agent_sdk

    if not isinstance(options, claude_agent_sdk.ClaudeAgentOptions):
        raise ConfigurationError(f"options must be ClaudeAgentOptions, not {type(options).__name__}", option="options")
    for field in dataclasses.fields(options):
        if field.name not in _KNOWN and getattr(options, field.name) != _default_of(field):
            raise ConfigurationError(f"{field.name} is newer than this version of claude_transport, and would be lost", option=field.name)


def _default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _claude_options(options: claude_agent_sdk.ClaudeAgentOptions) -> ClaudeOptions:
    """Return what runs the CLI, without `mcp_servers`."""
    check_skills(options.skills)
    values: dict[str, Any] = {name: getattr(options, name) for name in _SAME}
    for name in _EMPTY_MEANS_NONE:
        values[name] = values[name] or None
    given = options.output_format
    return ClaudeOptions(
        **values,
        system_prompt="" if options.system_prompt is None else options.system_prompt,
        setting_sources=["user", "project"] if options.skills is not None and options.setting_sources is None else options.setting_sources,
        max_thinking_tokens=None if options.thinking is not None else options.max_thinking_tokens,
        output_format=given if isinstance(given, Mapping) and given.get("type") == "json_schema" and "schema" in given else None,
    )


def _servers(options: claude_agent_sdk.ClaudeAgentOptions) -> tuple[Mapping[str, Mapping[str, Any]] | str, dict[str, Any]]:
    """Return the servers that the CLI runs or reaches itself, and those of this process, by name."""
    given: Any = options.mcp_servers
    if not isinstance(given, Mapping):
        return str(given), {}
    own = {name: server["instance"] for name, server in given.items() if isinstance(server, Mapping) and server.get("type") == "sdk"}
    return {name: server for name, server in given.items() if name not in own}, own


def _transport_options(options: claude_agent_sdk.ClaudeAgentOptions) -> TransportOptions:
    chosen: TransportOptions = {}
    if options.max_buffer_size is not None:
        chosen["max_line_bytes"] = options.max_buffer_size
    if options.stderr is not None:
        chosen["on_stderr"] = options.stderr
    return chosen
