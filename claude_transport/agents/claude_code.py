"""`ClaudeCode`: Claude Code as an `Agent`. What its options become is in `launch`; `session_terms` is what they ask of a `Query`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from claude_transport.agents.agent import Agent, AskedCall, Attempt, CallPlan, HeldOptions, StartContext
from claude_transport.agents.claude_fields import ClaudeFields, thinking_ceiling
from claude_transport.errors import ConfigurationError
from claude_transport.launch.discovery import CLI, PATH_VARIABLE, find_cli, is_cli_known, pin_cli
from claude_transport.launch.environ import build_environment, environment_now
from claude_transport.launch.features import check_range, require
from claude_transport.launch.launch import PlannedLaunch, check_once, find_transcript, needs_of, options_to_continue, plan_launch
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import AgentOptions, ClaudeOptions
from claude_transport.launch.payloads import Delivery, build_payloads, initialize_fields
from claude_transport.launch.session_store import SessionStore
from claude_transport.launch.settings import ReadSettings, naming_own_servers, permission_settings, settings_texts, with_settings_read
from claude_transport.launch.validation import UUID
from claude_transport.protocol.line_shape import LineShape, shape_of
from claude_transport.protocol.turn_tracker import TurnTracker
from claude_transport.transport import PermissionSetting, SessionTerms


class ClaudeCode(Agent):
    """Claude Code."""

    name: ClassVar[str] = "claude-code"
    title: ClassVar[str] = "Claude Code"
    program: ClassVar[str] = "claude"
    provider: ClassVar[str] = "anthropic"
    options_type: ClassVar[type[AgentOptions]] = ClaudeOptions

    def speaks(self, line: bytes) -> bool:
        """Return True for a message with a `type` of Claude."""
        return shape_of(line) is LineShape.TYPED

    def follow_turns(self) -> TurnTracker:
        """Follow prompts, results and `idle`."""
        from claude_transport.protocol.claude_turns import ClaudeTurns  # a gateway and a fleet follow turns, a Query does not

        return ClaudeTurns()

    def check(self, options: ClaudeOptions, *, command: Sequence[Any] | None, launcher: Launcher | None) -> None:
        """Check the options alone, and that a session store can work."""
        if command is None:
            check_once(options)
        if options.session_store is not None:
            _check_mirrored(command=command, launcher=launcher)

    def read(self, options: ClaudeOptions, *, delivery: Delivery) -> ClaudeOptions:
        """Read the settings file, once, when it is on this machine."""
        return with_settings_read(options) if delivery == "files" else options

    def plan(self, options: ClaudeOptions, context: StartContext) -> PlannedLaunch:
        """Plan the command line, the environment and the private files."""
        return plan_launch(
            options if context.launcher is not None else naming_own_servers(options, context.own_servers),
            inherited=context.inherited,
            command=context.command,
            launcher=context.launcher,
            permission_prompt=context.permission_prompt,
            trace=context.trace,
        )

    def plans_quickly(self, options: ClaudeOptions, *, command: Sequence[str] | None, launcher: Launcher | None) -> bool:
        """Return True when no file is read, and the binary was found before."""
        if launcher is not None or isinstance(options.mcp_servers, (str, os.PathLike)) or isinstance(options.system_prompt, Mapping):
            return False
        if isinstance(options.settings, (str, os.PathLike)) and not isinstance(options.settings, ReadSettings):
            return False
        return command is not None or is_cli_known(options.cli_path or os.environ.get(PATH_VARIABLE))

    def accept(self, options: ClaudeOptions, planned: PlannedLaunch, *, version: str | None) -> None:
        """Check that the CLI knows what the launch needs of it, and keep it from being replaced, if the options say so."""
        if planned.cli is not None:
            check_range(version)
            require(*needs_of(planned.launch), version=version)
            if options.pin_cli and planned.remote is None:
                pin_cli(planned.cli, asked=options.cli_path)

    def terms(self, options: ClaudeOptions, *, delivery: Delivery, is_command: bool) -> SessionTerms:
        """Return `session_terms`. A command gets none of the flags, so the terms say nothing of them."""
        terms = session_terms(options, delivery=delivery)
        return SessionTerms(initialize=terms.initialize, verbatim_prompts=terms.verbatim_prompts) if is_command else terms

    def permission_prompt(self, options: ClaudeOptions) -> str | None:
        """Return `permission_prompt_tool_name`."""
        return options.permission_prompt_tool_name

    def session_store(self, options: ClaudeOptions) -> SessionStore | None:
        """Return the option of that name."""
        return options.session_store

    def confidential(self, options: ClaudeOptions) -> Sequence[str]:
        """Return the texts of the settings files."""
        return settings_texts(options)

    def hold(self, options: ClaudeOptions, terms: SessionTerms) -> HeldOptions:
        """Set the fields of `initialize`, and keep the tokens for thinking within their limit."""
        return ClaudeFields(terms.initialize, max_thinking_tokens=thinking_ceiling(options))

    def find(self, options: ClaudeOptions, env: Mapping[str, str]) -> CLI:
        """Look for `claude` as `find_cli` does."""
        return find_cli(options.cli_path, env=env)

    def attempt(self, call: AskedCall, plan: CallPlan) -> Attempt:
        """Refuse: `complete()` has two paths of its own for Claude."""
        raise NotImplementedError("complete() chooses between the CLI and the Messages API for Claude")


def _check_mirrored(*, command: object, launcher: Launcher | None) -> None:
    if command is not None:
        raise ConfigurationError("session_store needs the CLI, and command runs another program", option="session_store")
    if launcher is not None and launcher.delivery != "files":
        raise ConfigurationError(
            f"session_store: the files of a session are not seen behind {launcher.name}; run a gateway there, and give it the store",
            option="session_store",
        )


def session_terms(options: ClaudeOptions, *, delivery: Delivery = "files") -> SessionTerms:
    """Return what `options` ask of a `Query`, as `SessionTerms`: return them from the `attach()` of a transport of your own.

    `build_launch` says what to run, and these terms say what to send, so give both the same `delivery`: `"files"` puts large options into
    files on this machine, `"initialize"` sends them in the `initialize` request. With the terms, a `Query` sends the fields of `initialize`
    that the options need, refuses settings that would prevent `can_use_tool` from being called, and checks `billing`. Wrong options are not
    refused here, but by `build_launch`.
    """
    return SessionTerms(
        initialize=_initialize(options, delivery),
        verbatim_prompts=options.verbatim_prompts,
        permissions=_permissions(options),
        session_id=_named_session(options),
        forks_session=options.fork_session and options.session_id is None,
        structured_output=options.output_format is not None,
        billing=options.billing,
    )


def options_to_resume(options: ClaudeOptions, *, is_saved: bool | None = None) -> ClaudeOptions:
    """Return options that resume the session that `options.session_id` names, if the CLI has saved it; otherwise `options`.

    The CLI saves a session with its first prompt, and refuses to begin a second one under the same id (2.1.329, real). So make a second
    transport for the same session with these options. A fork is not forked again.

    Args:
        is_saved: whether the session has been saved. By default this machine's disk is searched, which is quick unless the disk is slow.
            For a CLI on another machine, pass whether a prompt was sent.
    """
    if options.session_id is not None and is_saved is None:
        env = build_environment(options, environment_now())
        is_saved = find_transcript(options.session_id, env=env, cwd=options.cwd) is not None
    return options_to_continue(options) if is_saved else options


def _permissions(options: ClaudeOptions) -> tuple[PermissionSetting, ...]:
    """Return what the options say about permissions; nothing when the options are not valid."""
    try:
        return tuple(PermissionSetting(*row) for row in permission_settings(options))
    except (ConfigurationError, AttributeError, TypeError):
        return ()


def _initialize(options: ClaudeOptions, delivery: Delivery) -> dict[str, Any]:
    """Return the fields of `initialize`. Without files, they include everything that a file would hold."""
    try:
        if delivery == "files":
            return initialize_fields(options)
        return build_payloads(options, delivery=delivery, permissions={}).initialize
    except (ConfigurationError, AttributeError, TypeError):
        return {}


def _named_session(options: ClaudeOptions) -> str | None:
    """Return the id of the session that the options name; None when they name none, or name it by its title."""
    if options.session_id is not None:
        return options.session_id
    return options.resume if options.resume is not None and UUID.fullmatch(options.resume) else None
