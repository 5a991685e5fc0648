"""The requests a host can make of a running CLI, beside the conversation: one typed method for each, by noun.

Only those are here that CLI 2.1.329 was seen to answer; `request()` asks anything else. Names of methods are those of the field, not of
the wire; the page `docs/reference/control-requests.md` has both.
"""

from __future__ import annotations

from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, MODEL_TIMEOUT, Asking
from claude_transport.query.controls.files import FileControls
from claude_transport.query.controls.mcp import McpControls
from claude_transport.query.controls.models import ModelControls
from claude_transport.query.controls.permissions import PermissionControls
from claude_transport.query.controls.session import SessionControls
from claude_transport.query.controls.settings import SettingsControls
from claude_transport.query.controls.tasks import TaskControls

__all__ = [
    "DEFAULT_CONTROL_TIMEOUT",
    "MODEL_TIMEOUT",
    "Asking",
    "Controls",
    "FileControls",
    "McpControls",
    "ModelControls",
    "PermissionControls",
    "SessionControls",
    "SettingsControls",
    "TaskControls",
]


class Controls(
    TaskControls,
    ModelControls,
    PermissionControls,
    McpControls,
    FileControls,
    SettingsControls,
    SessionControls,
):
    """All typed requests, each made of one `request()`."""
