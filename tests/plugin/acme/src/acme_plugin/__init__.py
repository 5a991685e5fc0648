"""A distribution that adds an agent, a URL scheme and a session store, and some plug-ins that cannot be used."""

from __future__ import annotations

NOTHING = 7


def make_nothing(_where: str, **_options: object) -> object:
    return NOTHING


def fail(_where: str, **_options: object) -> object:
    raise LookupError(f"there is no such place as {_where}")
