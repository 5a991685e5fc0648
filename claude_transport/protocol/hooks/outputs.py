"""What a hook may say back. Each class encodes to the wire's form by `encode_hook_output`, which also refuses one at the wrong event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import msgspec

from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.hooks.events import HookEvent

__all__ = [
    "AdditionalContext",
    "AsyncHookOutput",
    "ElicitationReply",
    "HookOutput",
    "MessageDisplayOutput",
    "PermissionDeniedOutput",
    "PermissionRequestDecision",
    "PostToolUseOutput",
    "PreModelSwitchDecision",
    "PreToolUseDecision",
    "SessionStartOutput",
    "SpecificOutput",
    "UserPromptExpansionOutput",
    "UserPromptSubmitOutput",
    "WatchPaths",
    "WorktreeCreateOutput",
]


class SpecificOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of what only some events understand: `hookSpecificOutput` on the wire. None is never sent."""

    events: ClassVar[frozenset[HookEvent]] = frozenset()
    """Where it may be said."""


class PreToolUseDecision(SpecificOutput, frozen=True, kw_only=True):
    """Whether a tool may run: allow, deny, ask, defer; with `updated_input` in place of the model's. [05c]

    A `deny` ends that call only; the model is told the reason. `allow` passes the permission rules by.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PreToolUse})

    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: Mapping[str, Any] | None = None
    additional_context: str | None = None

    @classmethod
    def allow(cls, reason: str | None = None, *, updated_input: Mapping[str, Any] | None = None) -> Self:
        """Let it run."""
        return cls(permission_decision="allow", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Do not let it run; `reason` is told to the model."""
        return cls(permission_decision="deny", permission_decision_reason=reason)

    @classmethod
    def ask(cls, reason: str | None = None, *, updated_input: Mapping[str, Any] | None = None) -> Self:
        """Ask `can_use_tool`, whatever the permission rules say."""
        return cls(permission_decision="ask", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def defer(cls) -> Self:
        """Put the decision off: the turn ends well, with `terminal_reason` `tool_deferred` and the call in `deferred_tool_use`.

        A process that resumes the session asks its own PreToolUse hook about that call before it takes a prompt, and goes on by itself:
        the result of that is nobody's (`prompt_uuids` is empty). In the same process the next prompt goes on without the tool.
        """
        return cls(permission_decision="defer")


class PreModelSwitchDecision(SpecificOutput, frozen=True, kw_only=True):
    """Whether another model may be used; `ask` is a refusal where nobody can be asked."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PreModelSwitch})

    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str | None = None

    @classmethod
    def allow(cls) -> Self:
        """Switch."""
        return cls(permission_decision="allow")

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Keep the model: `set_model` fails."""
        return cls(permission_decision="deny", permission_decision_reason=reason)


class _RequestDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    behavior: Literal["allow", "deny"]
    updated_input: Mapping[str, Any] | None = None
    updated_permissions: Sequence[Any] | None = None
    message: str | None = None
    interrupt: bool | None = None


class PermissionRequestDecision(SpecificOutput, frozen=True, kw_only=True):
    """An answer in the place of `can_use_tool`, which is then withdrawn. [05o]"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PermissionRequest})

    decision: _RequestDecision

    @classmethod
    def allow(
        cls,
        *,
        updated_input: Mapping[str, Any] | None = None,
        updated_permissions: Sequence[PermissionUpdate | Mapping[str, Any]] | None = None,
    ) -> Self:
        """Let the tool run."""
        return cls(decision=_RequestDecision(behavior="allow", updated_input=updated_input, updated_permissions=updated_permissions))

    @classmethod
    def deny(cls, message: str | None = None, *, interrupt: bool = False) -> Self:
        """Do not let it run; `interrupt` ends the turn as well."""
        return cls(decision=_RequestDecision(behavior="deny", message=message, interrupt=interrupt or None))


class AdditionalContext(SpecificOutput, frozen=True):
    """`AdditionalContext("…")`: something more for the model to know."""

    events: ClassVar[frozenset[HookEvent]] = frozenset(
        {
            HookEvent.Notification,
            HookEvent.PostModelSwitch,
            HookEvent.PostToolBatch,
            HookEvent.PostToolUse,
            HookEvent.PostToolUseFailure,
            HookEvent.PreToolUse,
            HookEvent.SessionStart,
            HookEvent.Setup,
            HookEvent.Stop,
            HookEvent.SubagentStart,
            HookEvent.SubagentStop,
            HookEvent.UserPromptExpansion,
            HookEvent.UserPromptSubmit,
        }
    )

    additional_context: str | None = None


class PostToolUseOutput(SpecificOutput, frozen=True, kw_only=True):
    """A word on what a tool returned, or something else in its place (`updated_tool_output`).

    `classifier_context` (*declared*) is believed by the auto mode's permission classifier: never put a tool's own output there.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PostToolUse})

    additional_context: str | None = None
    classifier_context: str | None = None
    updated_tool_output: Any = None
    updated_mcp_tool_output: Any = msgspec.field(name="updatedMCPToolOutput", default=None)


class UserPromptExpansionOutput(SpecificOutput, frozen=True, kw_only=True):
    """More for the model to know, or with `decision="block"` whether the prompt is repeated in the message."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.UserPromptExpansion})

    additional_context: str | None = None
    suppress_original_prompt: bool | None = None


class UserPromptSubmitOutput(SpecificOutput, frozen=True, kw_only=True):
    """More for the model to know, and a title for the session."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.UserPromptSubmit})

    additional_context: str | None = None
    session_title: str | None = None
    suppress_original_prompt: bool | None = None


class SessionStartOutput(SpecificOutput, frozen=True, kw_only=True):
    """What a session begins with; `watch_paths` are files whose changes fire FileChanged."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.SessionStart})

    additional_context: str | None = None
    initial_user_message: str | None = None
    session_title: str | None = None
    watch_paths: Sequence[str] | None = None
    reload_skills: bool | None = None


class PermissionDeniedOutput(SpecificOutput, frozen=True, kw_only=True):
    """Whether the model may try once more. *Declared.*"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PermissionDenied})

    retry: bool | None = None


class ElicitationReply(SpecificOutput, frozen=True, kw_only=True):
    """An answer to an MCP server in the user's place (Elicitation), or instead of the user's (ElicitationResult).

    CLI 2.1.329 heeds it from command hooks of settings files only, and drops that of a host's hook without a word. What a host's hook
    can say is `HookOutput.block`, which declines; to accept, answer the request `elicitation` by the `on_request` of Query.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.Elicitation, HookEvent.ElicitationResult})

    action: Literal["accept", "decline", "cancel"] | None = None
    content: Mapping[str, Any] | None = None


class WatchPaths(SpecificOutput, frozen=True):
    """`WatchPaths(["…"])`: the files whose changes fire FileChanged. *Declared.*"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.CwdChanged, HookEvent.FileChanged})

    watch_paths: Sequence[str] | None = None


class WorktreeCreateOutput(SpecificOutput, frozen=True):
    """`WorktreeCreateOutput("/…")`: where the hook has made the worktree."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.WorktreeCreate})

    worktree_path: str


class MessageDisplayOutput(SpecificOutput, frozen=True):
    """`MessageDisplayOutput("…")`: what is shown in the place of the piece. *Declared.*"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.MessageDisplay})

    display_content: str | None = None


class HookOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What any event understands, and in `specific` what only some do. None is never sent.

    `decision="block"` with a `reason` refuses a prompt (UserPromptSubmit [05e]), keeps the turn going (Stop [05j]), or declines what an MCP
    server asks the user (Elicitation, ElicitationResult).
    `continue_=False` ends the turn after the tool that is being asked about; it does *not* stop that tool [05f].
    `system_message` is shown to the user. `extra` is sent as it is: for what a newer CLI understands; nothing in it is checked.
    """

    continue_: bool | None = msgspec.field(name="continue", default=None)
    stop_reason: str | None = None
    suppress_output: bool | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    system_message: str | None = None
    terminal_sequence: str | None = None
    specific: SpecificOutput | None = msgspec.field(name="hookSpecificOutput", default=None)
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def block(cls, reason: str) -> Self:
        """Refuse the prompt, keep the turn going, or decline for the user."""
        return cls(decision="block", reason=reason)

    @classmethod
    def stop(cls, reason: str) -> Self:
        """End the turn; the result then has `terminal_reason` `hook_stopped` and is no error. [05f]"""
        return cls(continue_=False, stop_reason=reason)


class AsyncHookOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The hook works on and the CLI need not wait: nothing it says later can stop anything. `timeout` in seconds. *Declared.*"""

    timeout: float | None = None
