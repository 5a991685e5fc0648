"""Control frames: the requests that host and CLI send each other beside the conversation, and their answers.

Requests of the CLI are typed classes here. Lines of the host are built by the `encode_…` functions. Both directions use the same envelope,
but their ids are separate, and a request may have no id [18l]. Typed answers of the CLI are in `answers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

from msgspec import field

from claude_transport.errors import UsageError
from claude_transport.protocol.blocks import Block
from claude_transport.protocol.envelope import FALLBACK_TAG, Message, Part, encode_line
from claude_transport.protocol.salvage import Salvaged


class Answer(Salvaged, frozen=True, kw_only=True):
    """Base of the typed answers to control requests; `raw` is the whole payload, including keys without a field here."""

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Read `ControlResponse.payload`. A value that does not fit leaves its field at the default. Never raises.

        When too many values do not fit (see `salvage`), all fields hold their default and `misfits` names all keys.
        """
        unread = [name for name in cls.__struct_encode_fields__ if name in payload]
        return cls._salvage(payload) or cls(misfits=tuple(unread), raw=dict(payload))


class CommandInfo(Part, frozen=True, kw_only=True):
    """A slash command."""

    name: str = ""
    description: str = ""
    argument_hint: str = field(name="argumentHint", default="")
    aliases: tuple[str, ...] = ()
    builtin: bool | None = None


class AgentInfo(Part, frozen=True, kw_only=True):
    """A subagent that can be started."""

    name: str = ""
    description: str = ""
    model: str | None = None


class ModelInfo(Part, rename="camel", frozen=True, kw_only=True):
    """A model that can be selected. Pass `value` to `set_model`; `resolved_model` is the full name that it stands for."""

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
    """The account that pays, as far as the CLI reports it. Without any credential, `token_source` is `none`. [25f]"""

    email: str | None = None
    organization: str | None = None
    subscription_type: str | None = None
    token_source: str | None = None
    api_key_source: str | None = None
    api_provider: str | None = None


class InitializationInfo(Answer, frozen=True, kw_only=True):
    """The answer to `initialize`: what this CLI is and can do [02]. Test for a feature with `capabilities`, not with the version."""

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
    """The state of each of the `sdk_mcp_server_manifests`: `parked` when it was accepted; else already_connected, malformed,
    not_honoured, …
    """
    analytics_disabled: bool | None = None


class PermissionRule(Part, rename="camel", frozen=True, kw_only=True):
    """A tool, and optionally which uses of it: `PermissionRule(tool_name="Bash", rule_content="npm test")`."""

    tool_name: str = ""
    rule_content: str | None = None


class PermissionUpdate(Part, frozen=True, kw_only=True):
    """A change of the permission rules, suggested by the CLI or sent by the host. [04a]

    `type`: addRules, replaceRules, removeRules (with `rules` and `behavior`: allow, deny, ask), setMode (with `mode`), addDirectories,
    removeDirectories (with `directories`). `destination`: userSettings, projectSettings, localSettings, session, cliArg.
    """

    type: str = ""
    rules: tuple[PermissionRule, ...] | None = None
    behavior: str | None = None
    mode: str | None = None
    directories: tuple[str, ...] | None = None
    destination: str | None = None


class InboundBody(Part, tag_field="subtype", frozen=True, kw_only=True):
    """Base of the bodies of control requests."""

    @property
    def subtype(self) -> str:
        """The `subtype` on the wire."""
        return str(self.__struct_config__.tag)


class CanUseTool(InboundBody, tag="can_use_tool", frozen=True, kw_only=True):
    """Asks whether a tool may run. The CLI waits without a time limit, and may withdraw the question with a cancel request. [04a, 04l,
    07g]
    """

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
    """Asks the host to run one of its hooks. `input` is the event, with its `hook_event_name`. [05a]"""

    callback_id: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str | None = None

    @property
    def event(self) -> str:
        """The name of the event (`PreToolUse`, …), or an empty string."""
        name = self.input.get("hook_event_name")
        return name if isinstance(name, str) else ""


class McpMessage(InboundBody, tag="mcp_message", frozen=True, kw_only=True):
    """Carries a JSON-RPC `message` for the host's MCP server `server_name`. [06a]

    Answer with `mcp_response` and the same JSON-RPC id. Otherwise the tool call never ends [06q, 06r].
    """

    server_name: str = ""
    message: dict[str, Any] = field(default_factory=dict)


class Elicitation(InboundBody, tag="elicitation", frozen=True, kw_only=True):
    """Asks the user a question of an MCP server. `mode`: form, url. [06m]"""

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
    """Asks the host to show a dialog of a kind that it declared to support. *Declared.*"""

    dialog_kind: str = ""
    payload: Any = None
    tool_use_id: str | None = None


class UnknownControl(InboundBody, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """A request without a class of its own, in either direction: its subtype and all its other fields."""

    wire_subtype: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def subtype(self) -> str:
        """The `subtype` on the wire, or an empty string."""
        return self.wire_subtype

    def to_dict(self) -> dict[str, Any]:
        """Return the body as it came."""
        return {"subtype": self.wire_subtype, **self.fields} if self.wire_subtype else dict(self.fields)

    @classmethod
    def from_wire(cls, data: Any) -> UnknownControl | None:
        """Wrap any JSON object; None for other values."""
        if not isinstance(data, dict):
            return None
        subtype = data.get("subtype")
        if not isinstance(subtype, str):
            return cls(fields=data)
        return cls(wire_subtype=subtype, fields={key: value for key, value in data.items() if key != "subtype"})


ControlBody: TypeAlias = CanUseTool | HookCallback | McpMessage | Elicitation | RequestUserDialog | UnknownControl


class ControlRequest(Message, tag_field="type", tag="control_request", frozen=True, kw_only=True):
    """A request from the other side, which waits for a `ControlResponse` with the same id."""

    request_id: str | None = None
    request: ControlBody = UnknownControl()

    @property
    def subtype(self) -> str:
        """The kind of the request."""
        return self.request.subtype


class ControlReply(Part, frozen=True, kw_only=True):
    """The content of `ControlResponse.response`. Pending requests come only with a repeated `initialize` or with an error. [02b]"""

    subtype: str = ""
    request_id: str | None = None
    response: dict[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None
    pending_permission_requests: tuple[dict[str, Any], ...] | None = None
    pending_user_dialog_requests: tuple[dict[str, Any], ...] | None = None
    pending_elicitation_requests: tuple[dict[str, Any], ...] | None = None


class ControlResponse(Message, tag_field="type", tag="control_response", frozen=True, kw_only=True):
    """The answer to a control request. Many successful answers have no payload."""

    response: ControlReply = ControlReply()

    @property
    def request_id(self) -> str | None:
        """The id of the request that this answers; None when the request had no id. [18l]"""
        return self.response.request_id

    @property
    def ok(self) -> bool:
        """True when the request succeeded."""
        return self.response.subtype == "success"

    @property
    def error(self) -> str | None:
        """The error text for people; None on success."""
        return self.response.error

    @property
    def error_code(self) -> str | None:
        """The error code for programs, if the CLI sent one: unsupported_request, invalid_mode, bypass_not_launched."""
        return self.response.error_code

    @property
    def payload(self) -> dict[str, Any]:
        """The content of the answer; empty when it has none."""
        return self.response.response or {}


class ControlCancelRequest(Message, tag_field="type", tag="control_cancel_request", frozen=True, kw_only=True):
    """Withdraws the request `request_id`. An answer that still comes is ignored. [07g]"""

    request_id: str | None = None


def encode_control_request(request_id: str | None, subtype: str, /, **fields: Any) -> bytes:
    """Encode the line of a control request. `fields` are in wire spelling; None is sent as null, which `set_model` needs."""
    return encode_line(_with_id({"type": "control_request"}, request_id) | {"request": {"subtype": subtype, **fields}})


def encode_control_success(request_id: str | None, response: Mapping[str, Any] | Part | None = None) -> bytes:
    """Encode the line that answers `request_id` with success. Without `response` the key is left out, as the CLI does."""
    reply = _with_id({"subtype": "success"}, request_id)
    if response is not None:
        reply["response"] = response
    return encode_line({"type": "control_response", "response": reply})


def encode_control_error(request_id: str | None, error: str, error_code: str | None = None) -> bytes:
    """Encode the line that answers `request_id` with an error text for people and an optional code for programs."""
    reply = _with_id({"subtype": "error"}, request_id) | {"error": error}
    if error_code is not None:
        reply["error_code"] = error_code
    return encode_line({"type": "control_response", "response": reply})


def encode_cancel(request_id: str) -> bytes:
    """Encode the line that withdraws the request `request_id`."""
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
    """Encode the line that sends a user message to the model.

    Args:
        content: text, or a list of blocks.
        uuid: makes the CLI report the state of the message; a repeated uuid is dropped (docs/reference/protocol.md#repeated-uuids).
        priority: the place in the CLI's queue.
        should_query: False adds the message to the conversation without asking the model [10d].

    Raises:
        UsageError: `content` or `priority` is not valid.
    """
    if priority not in (None, "now", "next", "later"):
        raise UsageError(f"priority must be 'now', 'next' or 'later', not {priority!r}")
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
    """Return text or a list of blocks; the CLI exits on anything else [18h]."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise UsageError(f"content must be text or a list of blocks, not a {type(content).__name__}")
    for block in content:
        if not isinstance(block, (Block, Mapping)):
            raise UsageError(f"a content block must be a Block or a dict, not a {type(block).__name__}")
    return list(content)
