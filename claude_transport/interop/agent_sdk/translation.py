"""Official options taken apart: what the CLI is run with, what a `Query` is made with, and what a transport is made with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.interop.agent_sdk.adapting import AdaptedTransport, adapt
from claude_transport.interop.agent_sdk.callbacks import hooks_from, permission_callback_from
from claude_transport.interop.agent_sdk.option_table import OPTION_ROWS
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import initialize_fields
from claude_transport.launch.rules import check_rules, check_skills, skill_rules
from claude_transport.query.query import Query
from claude_transport.query.query_options import QueryOptions
from claude_transport.transports.subprocess import SubprocessTransport

if TYPE_CHECKING:
    import claude_agent_sdk

__all__ = ["MovedOptions", "TransportOptions", "options_from", "transport_from"]

_SAME = tuple(row.option for row in OPTION_ROWS if row.is_same)
_KNOWN = frozenset(row.option for row in OPTION_ROWS)

_EMPTY_MEANS_NONE = frozenset(
    {"cwd", "fallback_model", "max_turns", "model", "permission_mode", "permission_prompt_tool_name", "resume", "resume_session_at"}
    | {"session_id", "settings"}
)
"""Options that the official SDK tests for truth before it passes them on."""


class TransportOptions(TypedDict, total=False):
    """What `options_from` found for `SubprocessTransport`, beside the options of the CLI."""

    max_line_bytes: int
    on_stderr: Callable[[str], object]


class MovedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an official `ClaudeAgentOptions` comes to: `options` run the CLI, the rest are keyword arguments.

    `Query(SubprocessTransport(moved.options, **moved.transport_options), **moved.query_options)` is what `open_query()` makes.
    """

    options: ClaudeOptions
    transport_options: TransportOptions
    query_options: QueryOptions

    def open_query(self, *, launcher: Launcher | None = None) -> Query:
        """A `Query` over a `SubprocessTransport`, not started yet: `async with options_from(theirs).open_query() as query`."""
        return Query(SubprocessTransport(self.options, launcher=launcher, **self.transport_options), **self.query_options)


def options_from(options: claude_agent_sdk.ClaudeAgentOptions) -> MovedOptions:
    """Official options as this library has them, with the same meaning; callbacks keep their signatures, and are wrapped.

    The how-to "Move from the official SDK" has a row for each option.

    Raises:
        ConfigurationError: an option that has no counterpart here (`session_store`), or that a newer SDK has and this table does not.
        ImportError: `claude_agent_sdk` is not installed.
    """
    _check(options)
    if options.session_store is not None:
        raise ConfigurationError("session_store has no counterpart here: mirror the transcripts yourself", option="session_store")
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
    """The transport that the official client would have made for itself from `options`, but one of this library; hand it both.

    `ClaudeSDKClient(options, transport=transport_from(options))`: the client sends what travels by `initialize` (hooks, agents, the
    filter of skills) and answers callbacks and in-process MCP servers; all else is the command line, which is written here.

    Raises:
        ConfigurationError: an option cannot be run, or is not known here.
        ImportError: `claude_agent_sdk` is not installed.
    """
    _check(options)
    servers, own = _servers(options)
    if isinstance(servers, Mapping):
        # this client does not name its servers in `initialize`, where a Query does: the CLI has to know them from its configuration
        servers = {**servers, **{name: {"type": "sdk", "name": name} for name in own}}
    ours = _claude_options(options)
    check_rules("allowed_tools", ours.allowed_tools)
    ours = ours.replace(
        mcp_servers=servers,
        allowed_tools=[*ours.allowed_tools, *(rule for rule in skill_rules(ours.skills) if rule not in ours.allowed_tools)],
        agents=None,
        skills=None,
        verbatim_prompts=False,
        session_mirror=options.session_store is not None,
    )
    if unsent := initialize_fields(ours):
        raise ConfigurationError(f"the official client does not send {', '.join(unsent)} of `initialize`", option="output_format")
    return adapt(SubprocessTransport(ours, launcher=launcher, **_transport_options(options)), options=options)


def _check(options: object) -> None:
    import claude_agent_sdk

    if not isinstance(options, claude_agent_sdk.ClaudeAgentOptions):
        raise ConfigurationError(f"options is a ClaudeAgentOptions, not {type(options).__name__}", option="options")
    for field in dataclasses.fields(options):
        if field.name not in _KNOWN and getattr(options, field.name) != _default_of(field):
            raise ConfigurationError(f"{field.name} is newer than this version of claude_transport, and would be lost", option=field.name)


def _default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _claude_options(options: claude_agent_sdk.ClaudeAgentOptions) -> ClaudeOptions:
    """What runs the CLI, but for `mcp_servers`."""
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
    """The servers that the CLI runs or reaches itself, and those of this process, by name."""
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
