"""Messages with one strange value, as a newer, broken or malicious CLI might write them."""

from __future__ import annotations

import random
from typing import Any

STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0.5, 1e308, 10**30, 10**400, int("9" * 4300), "", "x" * 300, "\ud800", "toolu_1"),
    *([], {}, [None], [[]], {"a": 1}, ["x", {"type": "text"}], {"type": "tool_use"}),
)


def made_strange(value: Any, chance: random.Random) -> Any:
    """Return `value` with one part of it removed or replaced."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        if chance.random() < 0.1:
            return {name: kept for name, kept in value.items() if name != key}
        if chance.random() < 0.1:
            return {**value, chance.choice(["type", "subtype", "id", "content", "input"]): chance.choice(STRANGE)}
        return {**value, key: made_strange(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], made_strange(value[place], chance), *value[place + 1 :]]
    return chance.choice(STRANGE)
