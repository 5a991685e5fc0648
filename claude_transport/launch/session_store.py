"""`SessionStore`: what an object must do to keep the transcripts of sessions. Only types and small questions about them are here.

The stores are in `sessions`. `transports/mirroring.py` fills a store while a session runs. Any object with `append` and `load` is a store:
it need not be derived from `SessionStore`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, Protocol, Required, TypedDict

OptionalMethod = Literal["list_sessions", "list_session_summaries", "delete", "list_subkeys", "claim", "release", "find_project"]
"""The methods that a store may leave out."""


class SessionKey(TypedDict):
    """Names a transcript in a store. `subpath` is that of a subagent (`subagents/agent-<id>`), and is left out for the main transcript."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


class SessionListSubkeysKey(TypedDict):
    """Names a session whose subkeys are listed."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict, total=False):
    """One line of a transcript, as a JSON object. Stores keep all its fields; only these three have a meaning for them."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionStoreListEntry(TypedDict):
    """A session of a project, and when the store last wrote its main transcript, in milliseconds since 1970."""

    session_id: str
    mtime: int


class SessionSummaryEntry(TypedDict):
    """What a store keeps of a session for lists: `fold_session_summary` makes it. `mtime` is the store's, as in the list of sessions."""

    session_id: str
    mtime: int
    data: dict[str, Any]


class SessionStore(Protocol):
    """Keeps transcripts outside the machine that runs the CLI. `append` and `load` are required; the rest may be left out.

    Derive from it or not: a method that is missing, or inherited from here, counts as left out. Every method may raise any `Exception`.
    """

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript, in this order. An entry whose `uuid` the transcript has already is left out."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project, in any order."""
        raise NotImplementedError

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project, in any order."""
        raise NotImplementedError

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript. Deleting a main transcript also deletes its subkeys and its summary."""
        raise NotImplementedError

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session, without its main transcript."""
        raise NotImplementedError


class SharedSessionStore(SessionStore, Protocol):
    """A store that also knows which host runs a session, and finds a session without its project. Each of these may be left out, too."""

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds` from now. Return the owner that has it: `owner`, or another one."""
        raise NotImplementedError

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        raise NotImplementedError

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        raise NotImplementedError


REQUIRED_METHODS: Final = ("append", "load")
"""The methods that an object must have to be a store."""


def has_method(store: object, method: OptionalMethod) -> bool:
    """Return whether a store has this method of its own. One that it inherits from a protocol, of any package, counts as left out."""
    for base in type(store).__mro__:
        if method in vars(base):
            return not vars(base).get("_is_protocol", False)
    return callable(getattr(store, method, None))


def is_store(value: object) -> bool:
    """Return whether `value` can be used as a store: it has the two required methods."""
    return not isinstance(value, type) and all(callable(getattr(value, method, None)) for method in REQUIRED_METHODS)
