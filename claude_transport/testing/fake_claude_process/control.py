"""Answers to the control requests of the host, as recorded in 08a."""

from __future__ import annotations

from . import payloads
from .mcp import connect_servers
from .play import play
from .registered import Misshapen, read_hooks
from .stage import TurnAborted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .stage import Stage

MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
BYPASS_FLAGS = ("--dangerously-skip-permissions", "--allow-dangerously-skip-permissions")


class ControlRefused(Exception):
    """Answer the request with an error."""

    def __init__(self, error: str, code: str | None = None) -> None:
        super().__init__(error)
        self.code = code


def answer_request(stage: Stage, frame: dict[str, Any]) -> None:
    """Answer one request as the scenario says, or else as the CLI would."""
    request = frame.get("request")
    if not isinstance(request, dict):
        stage.fail("Error: Missing request on control_request")  # recording 18m
    subtype = request.get("subtype", "undefined")
    plan = stage.scenario["answers"].get(subtype)
    if plan is None:
        _answer(stage, frame, request, subtype, {})
        return
    play(stage, plan["before"])
    stage.wait(plan["delay"])
    if plan["never"]:
        return
    if plan["error"] is not None:
        _respond(stage, frame, error=plan["error"], **({"error_code": plan["error_code"]} if plan["error_code"] else {}))
    else:
        _answer(stage, frame, request, subtype, stage.fill(plan["response"]))
    play(stage, plan["after"])


def _answer(stage: Stage, frame: dict[str, Any], request: dict[str, Any], subtype: str, extra: dict[str, Any]) -> None:
    # an answer in the scenario makes its subtype known
    answerer = ANSWERERS.get(subtype, _nothing if extra else _unsupported)
    try:
        response = answerer(stage, request)
    except ControlRefused as refused:
        _respond(stage, frame, error=str(refused), **({"error_code": refused.code} if refused.code else {}))
        return
    if extra:
        response = {**(response or {}), **extra}
    # many successes have no `response` key at all, docs/reference/protocol.md#envelopes
    _respond(stage, frame, **({} if response is None else {"response": response}))
    after = AFTERWARDS.get(subtype)
    if after is not None:
        after(stage, request)


def _respond(stage: Stage, frame: dict[str, Any], **fields: Any) -> None:
    # a request without an id is answered without one (recording 18l)
    identity = {"request_id": frame["request_id"]} if "request_id" in frame else {}
    subtype = "error" if "error" in fields else "success"
    stage.emit({"type": "control_response", "response": {"subtype": subtype, **identity, **fields}})


_CONFIRMATIONS = {
    "managedSettings": "managed_settings_applied",
    "mcpServers": "mcp_servers_applied",
    "plugins": "plugins_applied",
    "settings": "settings_applied",
}


def _initialize(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    servers = request.get("sdkMcpServers") or []
    if not isinstance(servers, list):
        raise ControlRefused("initialize: sdkMcpServers and webSearchIsolationExemptMcpServers must be arrays of strings")  # recording 02j
    try:
        stage.hooks = read_hooks(request.get("hooks")) or stage.hooks
    except Misshapen as error:
        raise ControlRefused(str(error)) from None
    stage.forwards_subagents = bool(request.get("forwardSubagentText"))
    connect_servers(stage, [str(name) for name in servers], request.get("sdkMcpServerManifests"))
    applied = {confirmation: True for field, confirmation in _CONFIRMATIONS.items() if request.get(field)}
    return payloads.initialization(stage.model, stage.scenario["version"], stage.mode, stage.session_state) | applied


def _interrupt(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    for request_id, body in list(stage.pending.items()):
        if body.get("subtype") == "can_use_tool":
            stage.emit({"type": "control_cancel_request", "request_id": request_id})  # recording 07g
    waiting = [message.get("uuid") for message in stage.queue if isinstance(message.get("uuid"), str)]
    if not request.get("cancel_queued"):
        return {"still_queued": waiting}
    stage.queue.clear()
    for uuid in waiting:
        stage.lifecycle(uuid, "cancelled")  # recording 07f
    return {"still_queued": [], "cancelled": waiting}


def _abort(stage: Stage, _request: dict[str, Any]) -> None:
    if stage.turn is not None and not stage.turn.finished:
        raise TurnAborted("interrupt")


def _set_model(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    wanted = request.get("model")
    model = stage.scenario["model"] if wanted in (None, "default") else str(wanted)
    if model != stage.model:
        stage.model = model
        text = f"<local-command-stdout>Set model to `{model}`</local-command-stdout>"
        frame = {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
        stage.emit({**frame, "timestamp": stage.timestamp(), "isReplay": True})
    return {"model": model}


def _set_permission_mode(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    mode = request.get("mode")
    if mode not in MODES:
        raise ControlRefused(f"Cannot set permission mode: must be one of {', '.join(MODES)}", "invalid_mode")
    if mode == "bypassPermissions" and not any(flag in stage.argv for flag in BYPASS_FLAGS):
        text = "Cannot set permission mode to bypassPermissions because the session was not launched with --dangerously-skip-permissions"
        raise ControlRefused(text, "bypass_not_launched")
    stage.mode = str(mode)
    return {"mode": mode}


def _say_mode(stage: Stage, _request: dict[str, Any]) -> None:
    stage.emit({"type": "system", "subtype": "status", "status": None, "permissionMode": stage.mode})


def _mcp_status(stage: Stage, _request: dict[str, Any]) -> dict[str, Any]:
    return {
        "mcpServers": [
            {"name": name, "status": server.status, "transport": "sdk", "scope": "dynamic", "source": "sdk"}
            for name, server in stage.servers.items()
        ]
    }


def _cancel_message(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    uuid = request.get("message_uuid")
    for message in stage.queue:
        if message.get("uuid") == uuid:
            stage.queue.remove(message)
            stage.lifecycle(uuid, "cancelled")
            return {"cancelled": True, "message_uuid": uuid}
    return {"cancelled": False}


def _end_session(stage: Stage, _request: dict[str, Any]) -> None:
    stage.queue.clear()
    stage.ending = True
    if stage.turn is not None and not stage.turn.finished:
        raise TurnAborted("end")


def _unknown_server(_stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    raise ControlRefused(f"Server not found: {request.get('serverName')}")


def _rename(stage: Stage, request: dict[str, Any]) -> None:
    stage.emit({"type": "system", "subtype": "session_title_changed", "title": request.get("title")})


def _cost(stage: Stage) -> dict[str, Any]:
    usage = payloads.model_usage(stage.model, *stage.totals) if stage.results else {}
    session: dict[str, Any] = {
        "total_cost_usd": stage.totals[2],
        "total_api_duration_ms": 0,
        "total_duration_ms": 0,
        "total_lines_added": 0,
    }
    session |= {"total_lines_removed": 0, "model_usage": usage}
    return {"session": session, "subscription_type": None, "rate_limits_available": False, "rate_limits": None, "behaviors": None}


def _set_servers(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    servers = request.get("servers")
    stage.dynamic = set(servers) if isinstance(servers, dict) else set()
    return {"added": [], "removed": [], "errors": {}}


def _unsupported(stage: Stage, request: dict[str, Any]) -> dict[str, Any]:
    subtype = request.get("subtype", "undefined")
    stage.require(f"no control request {subtype!r}: Scenario(answers=…) has no answer for it", "one, which the CLI would refuse")
    raise ControlRefused(f"Unsupported control request subtype: {request.get('subtype', 'undefined')}", "unsupported_request")


def _nothing(_stage: Stage, _request: dict[str, Any]) -> None:
    return None


# an answerer that returns None makes a success without the key `response`
ANSWERERS: dict[str, Callable[[Stage, dict[str, Any]], dict[str, Any] | None]] = {
    "initialize": _initialize,
    "interrupt": _interrupt,
    "set_model": _set_model,
    "set_permission_mode": _set_permission_mode,
    "set_max_thinking_tokens": _nothing,
    "mcp_status": _mcp_status,
    "mcp_reconnect": _unknown_server,
    "mcp_toggle": _unknown_server,
    "mcp_set_servers": _set_servers,
    "mcp_message": _nothing,
    "get_context_usage": lambda stage, request: payloads.context_usage(stage.model),
    "get_settings": lambda stage, request: payloads.settings(stage.model),
    "get_session_cost": lambda stage, request: {"text": f"Estimated cost:        ${stage.totals[2]:.4f}"},
    "get_usage": lambda stage, request: _cost(stage),
    "get_binary_version": lambda stage, request: {"version": stage.scenario["version"], "buildTime": "2026-11-19T16:23:05Z"},
    "list_models": lambda stage, request: {"models": payloads.models(stage.scenario["model"])},
    "apply_flag_settings": _nothing,
    "rename_session": _rename,
    "set_has_subscribers": _nothing,
    "stop_task": lambda stage, request: {},  # an unknown task succeeds too
    "background_tasks": lambda stage, request: {},
    "cancel_async_message": _cancel_message,
    "end_session": _nothing,
}
# called after the answer was sent
AFTERWARDS: dict[str, Callable[[Stage, dict[str, Any]], None]] = {
    "interrupt": _abort,
    "set_permission_mode": _say_mode,
    "end_session": _end_session,
}
