"""Placeholders `{{name}}` in a scenario's values, filled in when a step is played."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OPEN, CLOSE = "{{", "}}"
UNKNOWN = object()  # what a lookup returns for a name it does not know


def fill(value: Any, lookup: Callable[[str], Any]) -> Any:
    """`value` with every placeholder in every string replaced; a string that is one placeholder takes its value's type."""
    if isinstance(value, str):
        return _fill_text(value, lookup) if OPEN in value else value
    if isinstance(value, dict):
        return {key: fill(item, lookup) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, lookup) for item in value]
    return value


def _fill_text(text: str, lookup: Callable[[str], Any]) -> Any:
    head, *rest = text.split(OPEN)
    parts = [head]
    for piece in rest:
        name, closed, tail = piece.partition(CLOSE)
        found = lookup(name) if closed else UNKNOWN
        if found is UNKNOWN:
            parts.append(OPEN + piece)
            continue
        if text == f"{OPEN}{name}{CLOSE}":
            return found
        parts.append(found if isinstance(found, str) else json.dumps(found))
        parts.append(tail)
    return "".join(parts)


def look_into(value: Any, path: list[str]) -> Any:
    """What lies at `path` inside nested objects; the empty string where there is nothing."""
    for key in path:
        value = value.get(key, "") if isinstance(value, dict) else ""
    return value
