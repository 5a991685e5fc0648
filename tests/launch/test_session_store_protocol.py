"""What a session store inherits from `SessionStore` counts as left out, and says so when it is called."""

from __future__ import annotations

from typing import Any

import pytest

from claude_transport.launch.session_store import SharedSessionStore

LEFT_OUT: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "list_sessions": (("project",), {}),
    "list_session_summaries": (("project",), {}),
    "delete": (({},), {}),
    "list_subkeys": (({},), {}),
    "claim": (({},), {"owner": "host", "seconds": 1.0}),
    "release": (({},), {"owner": "host"}),
    "find_project": (("session",), {}),
}


class Smallest(SharedSessionStore):
    """A store with the required methods alone."""

    async def append(self, key: Any, entries: list[Any]) -> None: ...

    async def load(self, key: Any) -> list[Any] | None: ...


@pytest.mark.parametrize("method", LEFT_OUT)
async def test_what_a_store_leaves_out_is_not_implemented(method: str) -> None:
    make: Any = Smallest  # type checkers miss the methods that are left out
    arguments, named = LEFT_OUT[method]
    with pytest.raises(NotImplementedError):
        await getattr(make(), method)(*arguments, **named)
