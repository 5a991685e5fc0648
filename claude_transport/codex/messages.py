"""The messages of `codex app-server` and `codex exec --json`, typed, and `decode_message()`, which reads a line.

A line of the app server is one of three: a notification (a `method` without an `id`), a request (both), an answer (an `id` without a
`method`). Both sides send requests, and their ids collide, so the `method` decides. The fields of `params` are attributes of the message.
Whatever is unknown is kept: `to_dict()` returns everything that was on the line.

Items of turns are in `codex.items`; what a failure means is in `codex.errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from claude_transport.codex.items import AnyItem, FileUpdate, UnknownItem
from claude_transport.errors import UsageError
from claude_transport.protocol.envelope import (
    HIDDEN,
    Damage,
    DecodeFailure,
    JSONTextError,
    Message,
    OversizedMessage,
    Part,
    UnknownMessage,
    parse_json,
)
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.salvage import salvage

RequestId: TypeAlias = int | str
"""The id of a request. Each side numbers its own requests, so ids of the two sides collide."""


# Parts of messages.


class CodexTurnError(Part, rename="camel", frozen=True, kw_only=True):
    """Why a turn failed. `codex_error_info` is the cause for programs: a text, or an object with one key; `codex.errors` reads it."""

    message: str = ""
    codex_error_info: Any = None
    additional_details: str | None = None
    misalignment: Any = None


class TurnData(Part, rename="camel", frozen=True, kw_only=True):
    """A turn as Codex describes it. `status` is `inProgress`, `completed`, `interrupted` or `failed`.

    `items` is a summary, not the whole turn; `items_view` says which. Times are in seconds since 1970.
    """

    id: str = ""
    status: str = ""
    error: CodexTurnError | None = None
    items: tuple[AnyItem, ...] = ()
    items_view: Any = None
    root_turn_id: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None


class ThreadData(Part, rename="camel", frozen=True, kw_only=True):
    """A thread as Codex describes it. `path` is the file of its history, on the machine of Codex."""

    id: str = ""
    session_id: str = ""
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    path: str | None = None
    cwd: str | None = None
    model: str | None = None
    model_provider: str | None = None
    cli_version: str | None = None
    preview: str = ""
    name: str | None = None
    ephemeral: bool | None = None
    status: Any = None
    turns: tuple[TurnData, ...] = ()


class CodexTokens(Part, rename="camel", frozen=True, kw_only=True):
    """Counts of tokens. `input_tokens` includes the cached ones, `output_tokens` those of reasoning."""

    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class CodexUsage(Part, rename="camel", frozen=True, kw_only=True):
    """The tokens of a thread so far (`total`) and of the last request to the model (`last`)."""

    total: CodexTokens = CodexTokens()
    last: CodexTokens = CodexTokens()
    model_context_window: int | None = None


class ThreadStatus(Part, rename="camel", frozen=True, kw_only=True):
    """The state of a thread: `type` is `idle`, `active`, `systemError` or `notLoaded`.

    `active_flags` holds `waitingOnApproval` while a question for approval waits.
    """

    type: str = ""
    active_flags: tuple[str, ...] = ()


# Notifications.


class CodexNotification(Message, rename="camel", frozen=True, kw_only=True):
    """Base class of all notifications of Codex. `emitted_at_ms` is when Codex wrote it, in milliseconds since 1970.

    `thread_id` and `turn_id` say where it belongs; they are empty where a notification has none.
    """

    method: ClassVar[str] = ""
    """The method on the wire, such as `turn/completed`; every class has its own."""

    thread_id: str = ""
    turn_id: str = ""
    emitted_at_ms: int | None = None

    @property
    def type(self) -> str:
        """The `method` of this message on the wire."""
        return self.method

    def to_dict(self) -> dict[str, Any]:
        """Return the whole message as a new dict in wire spelling; for one that you built, the fields that are set."""
        return _whole(self) or _built(self, ("emittedAtMs",), Message.to_dict(self))


class ThreadStarted(CodexNotification, frozen=True, kw_only=True):
    """A thread was started, resumed or forked."""

    method: ClassVar[str] = "thread/started"
    thread: ThreadData = ThreadData()


class ThreadStatusChanged(CodexNotification, frozen=True, kw_only=True):
    """A thread became active, idle or broken, or waits for an approval."""

    method: ClassVar[str] = "thread/status/changed"
    status: ThreadStatus = ThreadStatus()


class ThreadTokenUsageUpdated(CodexNotification, frozen=True, kw_only=True):
    """The model answered a request, and this is what the thread has used."""

    method: ClassVar[str] = "thread/tokenUsage/updated"
    token_usage: CodexUsage = CodexUsage()


class ThreadClosed(CodexNotification, frozen=True, kw_only=True):
    """A thread was unloaded."""

    method: ClassVar[str] = "thread/closed"


class TurnStarted(CodexNotification, frozen=True, kw_only=True):
    """A turn began."""

    method: ClassVar[str] = "turn/started"
    turn: TurnData = TurnData()


class TurnCompleted(CodexNotification, frozen=True, kw_only=True):
    """A turn ended: the only message that ends one. `turn.status` says how, `turn.error` why it failed."""

    method: ClassVar[str] = "turn/completed"
    turn: TurnData = TurnData()


class TurnDiffUpdated(CodexNotification, frozen=True, kw_only=True):
    """All changes to files that the turn has made so far, as one unified `diff`."""

    method: ClassVar[str] = "turn/diff/updated"
    diff: str = ""


class TurnPlanUpdated(CodexNotification, frozen=True, kw_only=True):
    """The model changed its `plan`, a list of steps."""

    method: ClassVar[str] = "turn/plan/updated"
    explanation: str | None = None
    plan: tuple[Any, ...] = ()


class _ItemNotification(CodexNotification, frozen=True, kw_only=True):
    """Base of the notifications about a part of an item."""

    item_id: str = ""


class ItemStarted(CodexNotification, frozen=True, kw_only=True):
    """An `item` of the turn began. A second one with the same id means that its text is said again from the start."""

    method: ClassVar[str] = "item/started"
    item: AnyItem = field(default_factory=UnknownItem)
    started_at_ms: int | None = None


class ItemCompleted(CodexNotification, frozen=True, kw_only=True):
    """An `item` of the turn is complete. A message that was cut short has none."""

    method: ClassVar[str] = "item/completed"
    item: AnyItem = field(default_factory=UnknownItem)
    completed_at_ms: int | None = None
    content_token_count: int | None = None


class AgentMessageDelta(_ItemNotification, frozen=True, kw_only=True):
    """A piece of the text of the model's message `item_id`."""

    method: ClassVar[str] = "item/agentMessage/delta"
    delta: str = ""


class PlanDelta(_ItemNotification, frozen=True, kw_only=True):
    """A piece of the text of the plan `item_id`."""

    method: ClassVar[str] = "item/plan/delta"
    delta: str = ""


class ReasoningTextDelta(_ItemNotification, frozen=True, kw_only=True):
    """A piece of what the model thinks, in part `content_index` of the item."""

    method: ClassVar[str] = "item/reasoning/textDelta"
    delta: str = ""
    content_index: int | None = None


class ReasoningSummaryDelta(_ItemNotification, frozen=True, kw_only=True):
    """A piece of the summary of what the model thinks, in paragraph `summary_index`."""

    method: ClassVar[str] = "item/reasoning/summaryTextDelta"
    delta: str = ""
    summary_index: int | None = None


class CommandOutputDelta(_ItemNotification, frozen=True, kw_only=True):
    """A piece of the output of the command `item_id`."""

    method: ClassVar[str] = "item/commandExecution/outputDelta"
    delta: str = ""


class FileChangeOutputDelta(_ItemNotification, frozen=True, kw_only=True):
    """A piece of the output of the file change `item_id`."""

    method: ClassVar[str] = "item/fileChange/outputDelta"
    delta: str = ""


class ErrorNotification(CodexNotification, frozen=True, kw_only=True):
    """A request to the model failed. With `will_retry` Codex asks again, and nothing has failed yet; `turn/completed` has the outcome."""

    method: ClassVar[str] = "error"
    error: CodexTurnError = CodexTurnError()
    will_retry: bool = False


class RequestResolved(CodexNotification, frozen=True, kw_only=True):
    """A request of Codex needs no answer any more: it was answered, or an interrupt has made it moot."""

    method: ClassVar[str] = "serverRequest/resolved"
    request_id: RequestId = 0


class RateLimitsUpdated(CodexNotification, frozen=True, kw_only=True):
    """What the account may still use, as Codex was told it."""

    method: ClassVar[str] = "account/rateLimits/updated"
    rate_limits: Any = None


class WarningNotification(CodexNotification, frozen=True, kw_only=True):
    """A warning for the user, as `message`."""

    method: ClassVar[str] = "warning"
    message: str = ""


class ConfigWarning(CodexNotification, frozen=True, kw_only=True):
    """Something in the configuration does not work as written."""

    method: ClassVar[str] = "configWarning"
    summary: str = ""
    details: str | None = None
    path: str | None = None


class DeprecationNotice(CodexNotification, frozen=True, kw_only=True):
    """A request that was made is going to disappear."""

    method: ClassVar[str] = "deprecationNotice"
    summary: str = ""
    details: str | None = None


class ModelRerouted(CodexNotification, frozen=True, kw_only=True):
    """Another model than the one that was asked for answers."""

    method: ClassVar[str] = "model/rerouted"
    from_model: str = ""
    to_model: str = ""
    reason: Any = None


class ThreadNameUpdated(CodexNotification, frozen=True, kw_only=True):
    """A thread has another name; None when it has none."""

    method: ClassVar[str] = "thread/name/updated"
    thread_name: str | None = None


class ThreadGoalCleared(CodexNotification, frozen=True, kw_only=True):
    """A thread has no goal any more."""

    method: ClassVar[str] = "thread/goal/cleared"


class ThreadReadStateChanged(CodexNotification, frozen=True, kw_only=True):
    """The unread part of a thread changed; `read_state` describes it."""

    method: ClassVar[str] = "thread/readState/changed"
    read_state: Any = None


class RemoteControlStatusChanged(CodexNotification, frozen=True, kw_only=True):
    """Whether Codex can be controlled from elsewhere. Sent at every start, unasked."""

    method: ClassVar[str] = "remoteControl/status/changed"
    status: str = ""
    server_name: str | None = None
    installation_id: str | None = None
    environment_id: str | None = None


class UnknownNotification(CodexNotification, frozen=True, kw_only=True):
    """A notification of a method that has no class here. `params` is what it carries; `to_dict()` is the whole message."""

    wire_method: str = ""
    params: Any = None

    @property
    def type(self) -> str:
        """The `method` of this message on the wire."""
        return self.wire_method

    def to_dict(self) -> dict[str, Any]:
        """Return the whole message as a new dict in wire spelling."""
        return _whole(self) or {"method": self.wire_method, "params": self.params}


# Requests, and answers.


class CodexRequest(Message, rename="camel", frozen=True, kw_only=True):
    """Base class of all requests, of Codex and of the host. `id` is that of the request; the answer repeats it."""

    method: ClassVar[str] = ""
    """The method on the wire, such as `item/tool/call`; every class has its own."""

    id: RequestId = 0
    thread_id: str = ""
    turn_id: str = ""

    @property
    def type(self) -> str:
        """The `method` of this message on the wire."""
        return self.method

    def to_dict(self) -> dict[str, Any]:
        """Return the whole message as a new dict in wire spelling; for one that you built, the fields that are set."""
        return _whole(self) or _built(self, ("id",), Message.to_dict(self))


class ApprovalRequest(CodexRequest, frozen=True, kw_only=True):
    """Base class of the questions for approval. `item_id` is the item that waits; `reason` says why Codex asks, where it says so."""

    item_id: str = ""
    reason: str | None = None
    started_at_ms: int | None = None


class CommandApproval(ApprovalRequest, frozen=True, kw_only=True):
    """Codex asks whether it may run `command` in the directory `cwd`.

    `available_decisions` is a suggestion: all four decisions are accepted, listed or not.
    """

    method: ClassVar[str] = "item/commandExecution/requestApproval"
    command: str | None = None
    cwd: str | None = None
    command_actions: tuple[Any, ...] | None = None
    available_decisions: tuple[Any, ...] | None = None
    proposed_execpolicy_amendment: Any = None
    kind: str | None = None
    environment_id: str | None = None


class FileChangeApproval(ApprovalRequest, frozen=True, kw_only=True):
    """Codex asks whether it may change files. The `FileChangeItem` with the id `item_id`, which came before, has them."""

    method: ClassVar[str] = "item/fileChange/requestApproval"
    grant_root: str | None = None
    changes: tuple[FileUpdate, ...] = field(name=HIDDEN + "changes", default=())
    """The changes of that item. `CodexSession` fills it in for `on_approval`; it is not part of the message."""


class ToolCallRequest(CodexRequest, frozen=True, kw_only=True):
    """Codex asks this program to run its tool `tool` with `arguments`."""

    method: ClassVar[str] = "item/tool/call"
    call_id: str = ""
    tool: str = ""
    namespace: str | None = None
    arguments: Any = None


class UnknownRequest(CodexRequest, frozen=True, kw_only=True):
    """A request of a method that has no class here. `params` is what it carries; `to_dict()` is the whole message."""

    wire_method: str = ""
    params: Any = None

    @property
    def type(self) -> str:
        """The `method` of this message on the wire."""
        return self.wire_method

    def to_dict(self) -> dict[str, Any]:
        """Return the whole message as a new dict in wire spelling."""
        return _whole(self) or {"method": self.wire_method, "id": self.id, "params": self.params}


class AnswerError(Part, frozen=True, kw_only=True):
    """The error of an answer: a number, a text, and data where the other side gave some."""

    code: int = 0
    message: str = ""
    data: Any = None


class CodexAnswer(Message, frozen=True, kw_only=True):
    """The answer to the request `id` of the other side: a `result`, or an `error`."""

    id: RequestId | None = None
    result: Any = None
    error: AnswerError | None = None

    @property
    def type(self) -> str:
        """Always the text `answer`. On the wire, an answer has no type."""
        return "answer"


# Lines of `codex exec --json`.


class ExecItem(Part, frozen=True, kw_only=True):
    """An item in a line of `codex exec`. `type` is `agent_message`, `reasoning`, `command_execution`, `file_change`, `error`, or new."""

    id: str = ""
    type: str = ""
    text: str | None = None
    message: str | None = None
    command: str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    changes: tuple[Any, ...] | None = None


class ExecUsage(Part, frozen=True, kw_only=True):
    """Counts of tokens in a line of `codex exec`. They are those of the whole thread, also after a resume."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class ExecEvent(Message, frozen=True, kw_only=True):
    """A line of `codex exec --json`. `event` is its `type`; the other fields are set where that event has them.

    `thread.started` has the `thread_id`, `item.started`, `item.updated` and `item.completed` an `item`, `turn.completed` the `usage`, and
    `turn.failed` the `error`. An `error` line has a `message`; it is no failure of the turn, Codex may be trying again.
    """

    event: str = field(name="type", default="")
    thread_id: str | None = None
    item: ExecItem | None = None
    usage: ExecUsage | None = None
    error: CodexTurnError | None = None
    message: str | None = None

    @property
    def type(self) -> str:
        """The `type` of this line on the wire, such as `turn.completed`."""
        return self.event


CodexMessage: TypeAlias = CodexNotification | CodexRequest | CodexAnswer | ExecEvent | UnknownMessage | DecodeFailure | OversizedMessage
"""Any value that `decode_message()` returns."""


NOTIFICATIONS: Final[dict[str, type[CodexNotification]]] = {}
REQUESTS: Final[dict[str, type[CodexRequest]]] = {}


def _register(base: Any, table: dict[str, Any]) -> None:
    for cls in base.__subclasses__():
        if cls.method:
            table[cls.method] = cls
        _register(cls, table)


_register(CodexNotification, NOTIFICATIONS)
_register(CodexRequest, REQUESTS)
_EXEC_PREFIXES: Final = ("thread.", "turn.", "item.")
_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_BOM: Final = b"\xef\xbb\xbf"


class _CodexFrame(msgspec.Struct):
    """The members around `params`, which are decoded first."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    emitted_at_ms: int | None = field(name="emittedAtMs", default=None)


_decode_frame: Final = msgspec.json.Decoder(_CodexFrame).decode
_decoders: Final[dict[type[Message], Callable[[bytes | msgspec.Raw], Any]]] = {}


def decode_message(line: bytes) -> CodexMessage:
    """Decode one line of Codex, or one that is for Codex, to a typed message. Never raises for any bytes; `raw` is the line.

    Returns:
        A typed message; an `UnknownNotification` or `UnknownRequest` for an unknown method; an `UnknownMessage` for another object; a
        `DecodeFailure` or `OversizedMessage` for a line without an object.

    Raises:
        UsageError: `line` is not bytes.
    """
    if isinstance(line, OversizedLine):
        return OversizedMessage(size=line.size, limit=line.limit, raw=bytes(line))
    if not isinstance(line, (bytes, bytearray, memoryview)):
        raise UsageError(f"a line must be bytes, not {type(line).__name__}")
    line = bytes(line)
    try:
        message = _fast(line)
    except _REFUSED:
        message = _slow(line)
    force_setattr(message, "raw", line)
    return message


def _fast(line: bytes) -> CodexMessage:
    """Decode a line with a method whose fields all fit. Raises for every other line."""
    frame = _decode_frame(line)
    if frame.id is msgspec.UNSET:
        known = NOTIFICATIONS.get(frame.method)
        if known is None:
            raise ValueError(frame.method)
        notification: CodexNotification = _decoder_of(known)(frame.params)
        force_setattr(notification, "emitted_at_ms", frame.emitted_at_ms)
        return notification
    asked = REQUESTS.get(frame.method)
    if asked is None:
        raise ValueError(frame.method)
    request: CodexRequest = _decoder_of(asked)(frame.params)
    force_setattr(request, "id", frame.id)
    return request


def _decoder_of(cls: type[Message]) -> Callable[[bytes | msgspec.Raw], Any]:
    found = _decoders.get(cls)
    if found is None:
        found = _decoders[cls] = msgspec.json.Decoder(cls).decode
    return found


def _slow(line: bytes) -> CodexMessage:
    """Decode any line, more leniently: values that do not fit cost only their field."""
    body = line.strip().removeprefix(_BOM).lstrip()
    if not body:
        return DecodeFailure(kind="blank", error="a blank line")
    try:
        value, lossy = parse_json(body)
    except JSONTextError as error:
        kind = error.kind if body.startswith(b"{") else "noise"
        return DecodeFailure(kind=kind, error=str(error))
    if not isinstance(value, dict):
        return DecodeFailure(kind="not_object", error="JSON, but not an object")
    misfits: list[str] = []
    message = _from_object(value, misfits)
    if misfits or lossy:
        force_setattr(message, "damage", Damage(tuple(misfits), lossy=lossy))
    return message


def _from_object(value: dict[str, Any], misfits: list[str]) -> CodexMessage:
    method, kind = value.get("method"), value.get("type")
    if isinstance(method, str):
        return _request(method, value, misfits) if "id" in value else _notification(method, value, misfits)
    if "id" in value and ("result" in value or "error" in value):
        return salvage(CodexAnswer, value, misfits=misfits) or UnknownMessage()
    if isinstance(kind, str) and (kind.startswith(_EXEC_PREFIXES) or kind == "error"):
        return salvage(ExecEvent, value, misfits=misfits) or UnknownMessage(wire_type=kind)
    return UnknownMessage(wire_type=kind if isinstance(kind, str) else "")


def _notification(method: str, value: dict[str, Any], misfits: list[str]) -> CodexNotification:
    params = value.get("params")
    known = NOTIFICATIONS.get(method)
    found = _salvaged(known, params, misfits) if known is not None else None
    if found is None:
        found = UnknownNotification(wire_method=method, params=params, thread_id=_text(params, "threadId"), turn_id=_text(params, "turnId"))
    emitted = value.get("emittedAtMs")
    force_setattr(found, "emitted_at_ms", emitted if isinstance(emitted, int) else None)
    return found


def _request(method: str, value: dict[str, Any], misfits: list[str]) -> CodexRequest:
    params, request_id = value.get("params"), value["id"]
    known = REQUESTS.get(method)
    found = _salvaged(known, params, misfits) if known is not None else None
    if found is None:
        found = UnknownRequest(wire_method=method, params=params, thread_id=_text(params, "threadId"), turn_id=_text(params, "turnId"))
    if isinstance(request_id, (int, str)) and not isinstance(request_id, bool):
        force_setattr(found, "id", request_id)
    else:
        misfits.append("id")
    return found


def _salvaged(cls: type[Any], params: Any, misfits: list[str]) -> Any:
    """Make a `cls` of `params`, with the paths of the values that do not fit; None when it cannot be made."""
    odd: list[str] = []
    if params is not None and not isinstance(params, dict):
        return None
    found = salvage(cls, params or {}, misfits=odd)
    misfits += [f"params.{path}" for path in odd]
    return found


def _text(params: Any, name: str) -> str:
    value = params.get(name) if isinstance(params, dict) else None
    return value if isinstance(value, str) else ""


def _whole(message: Message) -> dict[str, Any] | None:
    """Return the object of a received line; None for a message that was built."""
    if not message.raw:
        return None
    try:
        value, _ = parse_json(message.raw.strip().removeprefix(_BOM))
    except JSONTextError:
        return None  # `raw` was set by hand to something that is not JSON
    return value if isinstance(value, dict) else None


def _built(message: CodexNotification | CodexRequest, outside: tuple[str, ...], params: dict[str, Any]) -> dict[str, Any]:
    """Put the fields of a message that was built into `params`, except those that stand outside."""
    frame = {name: params.pop(name) for name in outside if name in params}
    return {"method": message.method, **frame, "params": {name: value for name, value in params.items() if value != ""}}
