"""Control frames: the requests each side may make of the other, beside the conversation.

The envelope is the same in both directions. What the CLI asks of its host is typed here; what the host asks of the CLI is built by the
`encode_…` functions, which return whole lines. Ids of the two directions are separate spaces, and a request may have none [18l].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import field

from claude_transport.errors import UsageError
from claude_transport.protocol.blocks import Block
from claude_transport.protocol.envelope import FALLBACK_TAG, HIDDEN, Message, Part, encode_line
from claude_transport.protocol.salvage import salvage

# --- The answer to `initialize`: what this CLI is, who pays, and what it can do.


class CommandInfo(Part, frozen=True, kw_only=True):
    """A slash command."""

    name: str = ""
    description: str = ""
    argument_hint: str = field(name="argumentHint", default="")
    aliases: tuple[str, ...] = ()
    builtin: bool | None = None


class AgentInfo(Part, frozen=True, kw_only=True):
    """A subagent that can be launched."""

    name: str = ""
    description: str = ""
    model: str | None = None


class ModelInfo(Part, rename="camel", frozen=True, kw_only=True):
    """A model that can be chosen: `value` is what `set_model` takes, `resolved_model` what it stands for."""

    value: str = ""
    resolved_model: str | None = None
    display_name: str = ""
    description: str = ""
    supports_effort: bool | None = None
    supported_effort_levels: tuple[str, ...] = ()
    supports_adaptive_thinking: bool | None = None
    supports_auto_mode: bool | None = None
    supports_fast_mode: bool | None = None
    supports_thinking_off: bool | None = None


class AccountInfo(Part, rename="camel", frozen=True, kw_only=True):
    """Who pays, as far as the CLI says it; with no credential at all `token_source` is `none`. [25f]"""

    email: str | None = None
    organization: str | None = None
    subscription_type: str | None = None
    token_source: str | None = None
    api_key_source: str | None = None
    api_provider: str | None = None


class InitializationInfo(Part, frozen=True, kw_only=True):
    """The payload of the answer to `initialize` [02]; `raw` is all of it. Feature-test on `capabilities`, not on the version."""

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    models: tuple[ModelInfo, ...] = ()
    account: AccountInfo = AccountInfo()
    output_style: str = ""
    available_output_styles: tuple[str, ...] = ()
    pid: int | None = None
    claude_code_version: str | None = None
    current_permission_mode: str | None = None
    session_state: str | None = None
    capabilities: tuple[str, ...] = ()
    hook_on_failure_supported: bool | None = None
    hooks_applied: Any = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    plugins_applied: bool | None = None
    managed_settings_applied: bool | None = None
    settings_applied: bool | None = None
    disallowed_tools_applied: bool | None = None
    mcp_servers_applied: bool | None = None
    sdk_mcp_manifests_parked: dict[str, Any] | None = None
    """What became of each `sdk_mcp_server_manifests`: `parked` when it counts; or already_connected, malformed, not_honoured, …"""
    analytics_disabled: bool | None = None
    misfits: tuple[str, ...] = field(name=HIDDEN + "misfits", default=())
    """Wire paths of what did not fit and holds its default instead."""
    raw: dict[str, Any] = field(name=HIDDEN + "raw", default_factory=dict)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> InitializationInfo:
        """The typed view of `ControlResponse.payload`; whatever does not fit is left at its default. Never raises."""
        misfits: list[str] = []
        data = dict(payload)
        info = salvage(cls, data, misfits=misfits)
        if info is None:  # more misfits than can be looked through
            info, misfits = cls(), [name for name in cls.__struct_encode_fields__ if name in data]
        known = {name: getattr(info, name) for name in cls.__struct_fields__ if name not in {"raw", "misfits"}}
        return cls(**known, misfits=tuple(misfits), raw=data)

    def to_dict(self) -> dict[str, Any]:
        """The whole payload."""
        return dict(self.raw) if self.raw else super().to_dict()


# ------------------------------------------------------------------------------------------------------------- permissions


class PermissionRule(Part, rename="camel", frozen=True, kw_only=True):
    """A tool, and optionally which of its uses: `PermissionRule(tool_name="Bash", rule_content="npm test")`."""

    tool_name: str = ""
    rule_content: str | None = None


class PermissionUpdate(Part, frozen=True, kw_only=True):
    """A change of the permission rules, suggested by the CLI or ordered by the host. [04a]

    `type`: addRules, replaceRules, removeRules (with `rules` and `behavior`: allow, deny, ask), setMode (with `mode`),
    addDirectories, removeDirectories (with `directories`). `destination`: userSettings, projectSettings, localSettings, session, cliArg.
    """

    type: str = ""
    rules: tuple[PermissionRule, ...] | None = None
    behavior: str | None = None
    mode: str | None = None
    directories: tuple[str, ...] | None = None
    destination: str | None = None


# -------------------------------------------------------------------------------------------------------- CLI → host bodies


class InboundBody(Part, tag_field="subtype", frozen=True, kw_only=True):
    """Base of what a control request asks for."""

    @property
    def subtype(self) -> str:
        """The wire's `subtype`."""
        return str(self.__struct_config__.tag)


class CanUseTool(InboundBody, tag="can_use_tool", frozen=True, kw_only=True):
    """May this tool run? The CLI waits for ever, and may withdraw the question by a cancel. [04a, 04l, 07g]"""

    tool_name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str | None = None
    display_name: str | None = None
    description: str | None = None
    title: str | None = None
    permission_suggestions: tuple[PermissionUpdate, ...] = ()
    blocked_path: str | None = None
    agent_id: str | None = None
    requires_user_interaction: bool | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    mcp_server: Any = None
    matched_ask_rule: Any = None
    default_to_no: bool | None = None
    suppress_always_allow_rule: bool | None = None
    classifier_approvable: bool | None = None


class HookCallback(InboundBody, tag="hook_callback", frozen=True, kw_only=True):
    """A hook of the host is to run; `input` is the event, with `hook_event_name` inside. [05a]"""

    callback_id: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str | None = None

    @property
    def event(self) -> str:
        """The event's name (`PreToolUse`, …), or an empty string."""
        name = self.input.get("hook_event_name")
        return name if isinstance(name, str) else ""


class McpMessage(InboundBody, tag="mcp_message", frozen=True, kw_only=True):
    """A JSON-RPC `message` for the host's MCP server `server_name`. [06a]

    A reply without `mcp_response`, or with another JSON-RPC id, hangs the tool call for good [06q, 06r].
    """

    server_name: str = ""
    message: dict[str, Any] = field(default_factory=dict)


class Elicitation(InboundBody, tag="elicitation", frozen=True, kw_only=True):
    """An MCP server asks the user something; `mode`: form, url. [06m]"""

    mcp_server_name: str = ""
    message: str = ""
    mode: str | None = None
    requested_schema: dict[str, Any] | None = None
    property_order: tuple[str, ...] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None


class RequestUserDialog(InboundBody, tag="request_user_dialog", frozen=True, kw_only=True):
    """The host is to show a dialog of a kind it said it supports. *Declared.*"""

    dialog_kind: str = ""
    payload: Any = None
    tool_use_id: str | None = None


class UnknownControl(InboundBody, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """A request this version has no class for, in either direction: its subtype, and all its other fields."""

    wire_subtype: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def subtype(self) -> str:
        """The wire's `subtype`, or an empty string."""
        return self.wire_subtype

    def to_dict(self) -> dict[str, Any]:
        """The body as it came."""
        return {"subtype": self.wire_subtype, **self.fields} if self.wire_subtype else dict(self.fields)

    @classmethod
    def from_wire(cls, data: Any) -> UnknownControl | None:
        """The body around any object."""
        if not isinstance(data, dict):
            return None
        subtype = data.get("subtype")
        if not isinstance(subtype, str):
            return cls(fields=data)
        return cls(wire_subtype=subtype, fields={key: value for key, value in data.items() if key != "subtype"})


ControlBody: TypeAlias = CanUseTool | HookCallback | McpMessage | Elicitation | RequestUserDialog | UnknownControl


# ---------------------------------------------------------------------------------------------------------------- envelopes


class ControlRequest(Message, tag_field="type", tag="control_request", frozen=True, kw_only=True):
    """The other side wants something and waits for a `ControlResponse` with the same id."""

    request_id: str | None = None
    request: ControlBody = UnknownControl()

    @property
    def subtype(self) -> str:
        """What is asked for."""
        return self.request.subtype


class ControlReply(Part, frozen=True, kw_only=True):
    """What stands in `ControlResponse.response`. Only a repeated `initialize` or an error carries pending requests. [02b]"""

    subtype: str = ""
    request_id: str | None = None
    response: dict[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None
    pending_permission_requests: tuple[dict[str, Any], ...] | None = None
    pending_user_dialog_requests: tuple[dict[str, Any], ...] | None = None
    pending_elicitation_requests: tuple[dict[str, Any], ...] | None = None


class ControlResponse(Message, tag_field="type", tag="control_response", frozen=True, kw_only=True):
    """The answer to a request. Many successes carry no payload at all."""

    response: ControlReply = ControlReply()

    @property
    def request_id(self) -> str | None:
        """The id of the request that is answered; None when that request had none. [18l]"""
        return self.response.request_id

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.response.subtype == "success"

    @property
    def error(self) -> str | None:
        """What went wrong, for people; None on success."""
        return self.response.error

    @property
    def error_code(self) -> str | None:
        """What went wrong, for programs, when the CLI says it: unsupported_request, invalid_mode, bypass_not_launched."""
        return self.response.error_code

    @property
    def payload(self) -> dict[str, Any]:
        """The answer itself; empty when there is none."""
        return self.response.response or {}


class ControlCancelRequest(Message, tag_field="type", tag="control_cancel_request", frozen=True, kw_only=True):
    """The request `request_id` needs no answer any more; one that still comes is ignored. [07g]"""

    request_id: str | None = None


# ----------------------------------------------------------------------------------------------------------------- builders


def encode_control_request(request_id: str | None, subtype: str, /, **fields: Any) -> bytes:
    """The line that asks for `subtype`; fields are in wire spelling, and None is sent as null (`set_model` needs that)."""
    return encode_line(_with_id({"type": "control_request"}, request_id) | {"request": {"subtype": subtype, **fields}})


def encode_control_success(request_id: str | None, response: Mapping[str, Any] | Part | None = None) -> bytes:
    """The line that answers `request_id` with success; without `response` the key is left out, as the CLI does."""
    reply = _with_id({"subtype": "success"}, request_id)
    if response is not None:
        reply["response"] = response
    return encode_line({"type": "control_response", "response": reply})


def encode_control_error(request_id: str | None, error: str, error_code: str | None = None) -> bytes:
    """The line that answers `request_id` with an error text and, for programs, a code."""
    reply = _with_id({"subtype": "error"}, request_id) | {"error": error}
    if error_code is not None:
        reply["error_code"] = error_code
    return encode_line({"type": "control_response", "response": reply})


def encode_cancel(request_id: str) -> bytes:
    """The line that says an answer to `request_id` is not needed any more."""
    return encode_line({"type": "control_cancel_request", "request_id": request_id})


def encode_user_message(
    content: str | Sequence[Block | Mapping[str, Any]],
    *,
    uuid: str | None,
    priority: Literal["now", "next", "later"] | None = None,
    session_id: str | None = None,
    parent_tool_use_id: str | None = None,
    should_query: bool | None = None,
    client_composed: bool | None = None,
) -> bytes:
    """The line that says `content` (text or blocks) to the model.

    A `uuid` makes the CLI report what becomes of the message; a repeated one is dropped (docs/reference/protocol.md#repeated-uuids).
    `should_query=False` adds it to the conversation without asking the model [10d]. Raises `UsageError` for bad content or priority.
    """
    if priority not in (None, "now", "next", "later"):
        raise UsageError(f"priority is 'now', 'next' or 'later', not {priority!r}")
    optional = {
        "parent_tool_use_id": parent_tool_use_id,
        "session_id": session_id,
        "uuid": uuid,
        "priority": priority,
        "shouldQuery": should_query,
        "client_composed": client_composed,
    }
    message = {"role": "user", "content": _checked(content)}
    return encode_line({"type": "user", "message": message} | {name: value for name, value in optional.items() if value is not None})


def _with_id(envelope: dict[str, Any], request_id: str | None) -> dict[str, Any]:
    return envelope if request_id is None else envelope | {"request_id": request_id}


def _checked(content: object) -> str | list[Block | Mapping[str, Any]]:
    """Text, or blocks: what else there is would end the CLI (a message it does not understand is fatal [18h])."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise UsageError(f"content is text or a list of blocks, not {type(content).__name__}")
    for block in content:
        if not isinstance(block, (Block, Mapping)):
            raise UsageError(f"a content block is a Block or a dict, not {type(block).__name__}")
    return list(content)
