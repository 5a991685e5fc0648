"""The hooks that a host has registered in `initialize`, and which of them a tool or an agent concerns."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_SECONDS = 600.0
NAMES_ONLY = re.compile(r"[A-Za-z0-9_\-|, ]*")
BAD_SHAPE = "initialize: hooks must map hook events to arrays of matchers carrying hookCallbackIds arrays and string matchers"


class Misshapen(Exception):
    """The hooks of an `initialize` have another shape."""


class Hook:
    """One callback of the host."""

    def __init__(self, callback_id: str, entry: dict[str, Any]) -> None:
        self.callback_id = callback_id
        self.matcher: str | None = entry.get("matcher")
        timeout = entry.get("timeout")
        self.timeout: float = float(timeout) if isinstance(timeout, (int, float)) else DEFAULT_SECONDS
        self.blocks: bool = entry.get("onFailure") == "block"


def read_hooks(config: Any) -> dict[str, list[Hook]]:
    """Return the hooks by their event, in the order of `initialize`. Raises `Misshapen` for another shape."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise Misshapen(BAD_SHAPE)
    found: dict[str, list[Hook]] = {}
    for event, entries in config.items():
        if not isinstance(entries, list):
            raise Misshapen(BAD_SHAPE)
        for entry in entries:
            ids = entry.get("hookCallbackIds") if isinstance(entry, dict) else None
            if not isinstance(ids, list) or not isinstance(entry.get("matcher"), (str, type(None))):
                raise Misshapen(BAD_SHAPE)
            found.setdefault(event, []).extend(Hook(str(callback_id), entry) for callback_id in ids)
    return found


def matches(matcher: str | None, subject: str) -> bool:
    """Tell whether a matcher is for `subject`, as CLI 2.1.331 does.

    Nothing and `*` match everything. A text of letters, digits, `_` and `-` is a name, or several, divided by `|` or `,`; each must be the
    whole name. `Task` is also the tool `Agent`. Any other text is a regular expression that is searched; an invalid one matches nothing.
    """
    if matcher in (None, "", "*"):
        return True
    if NAMES_ONLY.fullmatch(str(matcher)):
        names = {name.strip() for name in str(matcher).replace(",", "|").split("|")}
        return subject in names or (subject == "Agent" and "Task" in names)
    try:
        return re.search(str(matcher), subject) is not None
    except re.error:
        return False
