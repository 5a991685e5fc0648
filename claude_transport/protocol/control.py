"""Control frames: the requests that host and CLI send each other beside the conversation, and their answers.

Requests of the CLI are typed classes here. Lines of the host are built by the `encode_…` functions. Both directions use the same envelope,
but their ids are separate, and a request may have no id. Typed answers of the CLI are in `answers`.
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
    """Base class of the typed answers of the CLI to control requests, such as `ContextUsage`. `raw` is the whole payload, including keys
    without a field here. `misfits` names the values that did not fit their field, which then holds its default.
    """

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Make an answer of this class from the payload of a successful response (`ControlResponse.payload`). A value that does not fit
        leaves its field at the default and is named in `misfits`. Never raises.

        When so many values do not fit that a repair would take too long, all fields hold their default and `misfits` names all keys.
        """
        unread = [name for name in cls.__struct_encode_fields__ if name in payload]
        return cls._salvage(payload) or cls(misfits=tuple(unread), raw=dict(payload))


class CommandInfo(Part, frozen=True, kw_only=True):
    """A slash command of the session, or a skill. `name` is without the slash; `argument_hint` shows what to write after it; `aliases` are
    its other names; `builtin` is True for a command of the CLI itself.
    """

    name: str = ""
    description: str = ""
    argument_hint: str = field(name="argumentHint", default="")
    aliases: tuple[str, ...] = ()
    builtin: bool | None = None


class AgentInfo(Part, frozen=True, kw_only=True):
    """A kind of subagent that the session can start: its name, what it is for, and its model, if the CLI names one."""

    name: str = ""
    description: str = ""
    model: str | None = None


class ModelInfo(Part, rename="camel", frozen=True, kw_only=True):
    """A model that the session can use. Pass `value` to `Query.set_model`; `resolved_model` is the full name that it stands for. The
    `supports_…` fields are None when the CLI does not say.
    """

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
    """The account that pays for the session, and where the CLI has its credential from. A field is None when the CLI does not report it.
    Without any credential, `token_source` is `none`.
    """

    email: str | None = None
    organization: str | None = None
    subscription_type: str | None = None
    token_source: str | None = None
    api_key_source: str | None = None
    api_provider: str | None = None


class InitializationInfo(Answer, frozen=True, kw_only=True):
    """The answer to the control request `initialize`: the commands, subagents, models and account of the session, and what this CLI can do.
    To test whether it has a feature, look in `capabilities`, not at the version.
    """

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
    sandbox_enabled: bool | None = None
    user_output_styles_dir: str | None = None
    feedback_mode: dict[str, Any] | None = None
    hooks_when_unanswered_kept: int | None = None
    other_hook_ask_outranks_host: bool | None = None
    remote_control_available: bool | None = None
    remote_control_auto_enable: bool | None = None
    remote_control_auto_on_by_default: bool | None = None
    remote_control_auto_connect_default: bool | None = None
    ide_rc_auto_enable_gate: bool | None = None


class PermissionRule(Part, rename="camel", frozen=True, kw_only=True):
    """A tool, and optionally which uses of it: `PermissionRule(tool_name="Bash", rule_content="npm test")`. Without `rule_content` the rule
    is for all uses of the tool. A part of `PermissionUpdate`.
    """

    tool_name: str = ""
    rule_content: str | None = None


class PermissionUpdate(Part, frozen=True, kw_only=True):
    """A change of the permission rules. The CLI suggests some in `CanUseTool`; the host can send them with its answer.

    `type`: addRules, replaceRules, removeRules (with `rules` and `behavior`: allow, deny, ask), setMode (with `mode`), addDirectories,
    removeDirectories (with `directories`). `destination` is where it is stored: userSettings, projectSettings, localSettings, session,
    cliArg.
    """

    type: str = ""
    rules: tuple[PermissionRule, ...] | None = None
    behavior: str | None = None
    mode: str | None = None
    directories: tuple[str, ...] | None = None
    destination: str | None = None


class InboundBody(Part, tag_field="subtype", frozen=True, kw_only=True):
    """Base class of what a control request asks: the classes of `ControlRequest.request`, such as `CanUseTool` and `HookCallback`."""

    @property
    def subtype(self) -> str:
        """The kind of the request, as `subtype` on the wire: `can_use_tool`, `hook_callback`, …; every class has its own."""
        return str(self.__struct_config__.tag)


class CanUseTool(InboundBody, tag="can_use_tool", frozen=True, kw_only=True):
    """The CLI asks the host whether the tool `tool_name` may run with `input`. It waits for the answer without a time limit, and may
    withdraw the question with a `ControlCancelRequest`. `permission_suggestions` are changes that the host may send with an allowing
    answer, so that the CLI asks less often.
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
    server_policy_ask_only: bool | None = None


class HookCallback(InboundBody, tag="hook_callback", frozen=True, kw_only=True):
    """The CLI asks the host to run the hook that it registered as `callback_id`. `input` describes the event, which is named in
    `hook_event_name`; `tool_use_id` is the tool call that it is about, if any.
    """

    callback_id: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str | None = None

    @property
    def event(self) -> str:
        """The name of the event for which the hook runs (`PreToolUse`, …), from `input`; an empty string when it is missing."""
        name = self.input.get("hook_event_name")
        return name if isinstance(name, str) else ""


class McpMessage(InboundBody, tag="mcp_message", frozen=True, kw_only=True):
    """The CLI sends the JSON-RPC `message` to an MCP server that runs in the host, named `server_name`.

    Answer with `mcp_response` and the same JSON-RPC id. Otherwise the tool call never ends.
    """

    server_name: str = ""
    message: dict[str, Any] = field(default_factory=dict)


class Elicitation(InboundBody, tag="elicitation", frozen=True, kw_only=True):
    """An MCP server asks the user a question, and the CLI passes it to the host. `mode`: form (the answer fits `requested_schema`), url
    (the user answers at `url`). Answer with an `action`: accept (with `content`), decline, cancel.
    """

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
    """The CLI asks the host to show the user a dialog; `payload` is its content. `dialog_kind` is one of the kinds that the host listed in
    the option `supported_dialog_kinds`. Published in the CLI's type declarations; never seen in a recording.
    """

    dialog_kind: str = ""
    payload: Any = None
    tool_use_id: str | None = None


class UnknownControl(InboundBody, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """A control request without a class of its own here, from the CLI or from the host. `wire_subtype` is its subtype, `fields` has all its
    other fields in wire spelling.
    """

    wire_subtype: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def subtype(self) -> str:
        """The kind of the request, as `subtype` on the wire; an empty string when it has none."""
        return self.wire_subtype

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the request as it came, as a new dict: the `subtype` and all other fields."""
        return {"subtype": self.wire_subtype, **self.fields} if self.wire_subtype else dict(self.fields)

    @classmethod
    def from_wire(cls, data: Any) -> UnknownControl | None:
        """Make a request of a JSON value that fits no other class; the decoder calls it. Returns None when `data` is not an object."""
        if not isinstance(data, dict):
            return None
        subtype = data.get("subtype")
        if not isinstance(subtype, str):
            return cls(fields=data)
        return cls(wire_subtype=subtype, fields={key: value for key, value in data.items() if key != "subtype"})


ControlBody: TypeAlias = CanUseTool | HookCallback | McpMessage | Elicitation | RequestUserDialog | UnknownControl


class ControlRequest(Message, tag_field="type", tag="control_request", frozen=True, kw_only=True):
    """A control request: the CLI asks the host something, or the host asks the CLI. `request` says what. The answer is a `ControlResponse`
    with the same `request_id`.
    """

    request_id: str | None = None
    request: ControlBody = UnknownControl()

    @property
    def subtype(self) -> str:
        """The kind of the request: `can_use_tool`, `initialize`, …; an empty string when it has none."""
        return self.request.subtype


class ControlReply(Part, frozen=True, kw_only=True):
    """The content of `ControlResponse.response`. `subtype`: success (the payload, if any, is in `response`), error (see `error` and
    `error_code`). The `pending_…` fields are questions of the CLI without an answer yet; they come only with a repeated `initialize` or
    with an error.
    """

    subtype: str = ""
    request_id: str | None = None
    response: dict[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None
    pending_permission_requests: tuple[dict[str, Any], ...] | None = None
    pending_user_dialog_requests: tuple[dict[str, Any], ...] | None = None
    pending_elicitation_requests: tuple[dict[str, Any], ...] | None = None


class ControlResponse(Message, tag_field="type", tag="control_response", frozen=True, kw_only=True):
    """The answer to a control request, from the CLI or from the host. `ok` says whether the request succeeded, `error` why it did not;
    `payload` is the content of the answer. Many successful answers have no payload.
    """

    response: ControlReply = ControlReply()

    @property
    def request_id(self) -> str | None:
        """The id of the request that this answers; None when the request had no id."""
        return self.response.request_id

    @property
    def ok(self) -> bool:
        """True when the request succeeded; False when it failed or was refused, see `error`."""
        return self.response.subtype == "success"

    @property
    def error(self) -> str | None:
        """Why the request failed, as text for people; None on success."""
        return self.response.error

    @property
    def error_code(self) -> str | None:
        """Why the request failed, as a code for programs: unsupported_request, invalid_mode, bypass_not_launched. None when the CLI sent
        none.
        """
        return self.response.error_code

    @property
    def payload(self) -> dict[str, Any]:
        """The content of the answer as a dict in wire spelling; an empty dict when the answer has none."""
        return self.response.response or {}


class ControlCancelRequest(Message, tag_field="type", tag="control_cancel_request", frozen=True, kw_only=True):
    """The sender withdraws its control request `request_id`, so it needs no answer now. An answer that still comes is ignored."""

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
    """Encode a user message (a prompt) as one line for the CLI. Returns the bytes with a newline.

    Args:
        content: text, or a list of blocks.
        uuid: makes the CLI report the state of the message; a repeated uuid is dropped (docs/reference/protocol.md#repeated-uuids). With
            None, the message has no uuid.
        priority: the place in the CLI's queue. `now` aborts the running turn, `later` waits for its end.
        session_id: may be left out; the CLI accepts any and does not use it.
        parent_tool_use_id: the id of a tool call that the message belongs to; may be left out.
        should_query: False adds the message to the conversation without asking the model.
        client_composed: True makes a text that begins with `/` a prompt, not a slash command (published, never seen in a recording).

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
    """Return text or a list of blocks; the CLI exits on anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise UsageError(f"content must be text or a list of blocks, not a {type(content).__name__}")
    for block in content:
        if not isinstance(block, (Block, Mapping)):
            raise UsageError(f"a content block must be a Block or a dict, not a {type(block).__name__}")
    return list(content)
