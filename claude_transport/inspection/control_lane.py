"""`ControlLane`: the control requests of both sides, each with its answer and how long that took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from claude_transport.inspection.call_book import CallBook
from claude_transport.inspection.event import Level, Section
from claude_transport.inspection.scene import Scene
from claude_transport.inspection.wording import gist, gist_of_input, json_text
from claude_transport.protocol.control import (
    CanUseTool,
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Elicitation,
    HookCallback,
    InboundBody,
    McpMessage,
)

__all__ = ["ControlLane"]

Side = Literal["host", "claude"]

_PERMISSION = "can_use_tool"


class ControlLane:
    """Reads requests, answers and withdrawals; `on_denied` is called with the id of a tool call that the host does not allow."""

    def __init__(self, scene: Scene, *, on_denied: Callable[[str | None], object]) -> None:
        self._scene = scene
        self._on_denied = on_denied
        self.host: CallBook = CallBook("host")
        self.claude: CallBook = CallBook("claude")
        self._asked_for: dict[int, str | None] = {}  # events of permission questions: the tool call

    def _book(self, side: Side) -> CallBook:
        return self.host if side == "host" else self.claude

    def request(self, message: ControlRequest, *, by: Side) -> None:
        """One side asks the other."""
        scene, body = self._scene, message.request
        name = body.subtype or "(no subtype)"
        about, details = _about(body)
        event = scene.add(
            "control",
            "request" if by == "host" else "question",
            f"{name} {about}".strip(),
            gist=details,
            status="open",
            sections=scene.text("request", json_text(body.to_dict())),
        )
        if isinstance(body, CanUseTool):
            self._asked_for[event] = body.tool_use_id
        self._book(by).began(message.request_id, name=name, event=event, t=scene.t)
        if by == "host" and name == "initialize" and body.to_dict().get("jsonSchema") is not None:
            scene.turns.expect_structure()

    def response(self, message: ControlResponse, *, by: Side, kept: tuple[Section, ...] = ()) -> None:
        """The answer of `by`; `kept` in place of one that is not whole on the tape."""
        scene = self._scene
        status = self._status(message, by)
        call = self._book("claude" if by == "host" else "host").ended(message.request_id, t=scene.t, status=status)
        shown = kept or scene.text("response", json_text(message.response.to_dict()))
        if call is None:
            level: Level = "warning" if status == "error" else "minor"
            title = f"Answer of {by} to nothing that is open"
            scene.add("control", "answer", title, gist=message.error or "", level=level, sections=shown)
            return
        scene.shelf.change(call.event, seconds=max(0.0, scene.t - call.t), status=status)
        scene.shelf.extend(call.event, *shown)
        asked_for = self._asked_for.pop(call.event, None)
        if status == "error":
            scene.worsen(call.event, "warning", f"{call.name} failed: {gist(message.error or 'no reason given')}")
        elif status == "denied":
            self._on_denied(asked_for)

    def _status(self, message: ControlResponse, by: Side) -> str:
        if not message.ok:
            return "error"
        behavior = message.payload.get("behavior")
        if by == "host" and isinstance(behavior, str):
            call = self.claude.find(message.request_id)
            if call is not None and call.name == _PERMISSION:
                return {"allow": "allowed", "deny": "denied"}.get(behavior, "ok")
        return "ok"

    def cancel(self, message: ControlCancelRequest, *, by: Side) -> None:
        """`by` does not want an answer any more."""
        scene = self._scene
        call = self._book(by).ended(message.request_id, t=scene.t, status="cancelled")
        if call is None:
            scene.add("control", "cancel", f"{by} withdraws what is not open", level="minor")
            return
        self._asked_for.pop(call.event, None)
        scene.shelf.change(call.event, seconds=max(0.0, scene.t - call.t), status="cancelled")

    def ended(self) -> None:
        """The tape is over: what has no answer, has none."""
        for side in (self.host, self.claude):
            for call in side.still_open():
                self._scene.worsen(call.event, "warning", f"{call.name} has no answer")


def _about(body: InboundBody) -> tuple[str, str]:
    """What stands behind the subtype in the title, and the gist of the rest."""
    match body:
        case CanUseTool():
            return body.tool_name, gist_of_input(body.input)
        case HookCallback():
            return body.event, str(body.input.get("tool_name") or body.callback_id)
        case McpMessage():
            params = body.message.get("params")
            tool = params.get("name") if isinstance(params, dict) else None
            return body.server_name, " ".join(str(word) for word in (body.message.get("method") or "answer", tool) if word)
        case Elicitation():
            return body.mcp_server_name, body.message
        case _:
            fields: dict[str, Any] = {key: value for key, value in body.to_dict().items() if key != "subtype"}
            return "", gist_of_input(fields)
