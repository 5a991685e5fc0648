"""Functions on the sessions of a store: the same as on those of a directory, with the store as the first argument."""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import anyio

from claude_transport.errors import SessionArgumentError, SessionNotFound
from claude_transport.launch.session_store import (
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    has_method,
)
from claude_transport.sessions.changing import Fork, ForkSessionResult, checked_tag, checked_title, fork_title, timestamp
from claude_transport.sessions.listing import SDKSessionInfo
from claude_transport.sessions.places import Directory, check_id, project_key_for_directory, real_path
from claude_transport.sessions.reading import EntryPlace, SessionMessage, conversation, cut_to_page, lineage, message_of, parents_in
from claude_transport.sessions.summaries import fold_session_summary, milliseconds_of

_LOADS_AT_ONCE: Final = 16
_AGENT: Final = "agent-"


async def list_sessions_from_store(
    session_store: SessionStore, directory: Directory = None, limit: int | None = None, offset: int = 0
) -> list[SDKSessionInfo]:
    """Return the sessions that a store has of a directory, the latest first.

    A store that keeps summaries is asked twice in all, and a session is loaded only where its summary is missing or too old. From a store
    without summaries, sessions are loaded until the page is full. At most 16 are loaded at once. Sessions of subagents are left out, and
    so are those without a prompt or a title. A session that cannot be loaded is shown with an empty `summary`.

    Args:
        session_store: a store that can list its sessions, or their summaries, or both.
        directory: the sessions of this working directory; without it, of the current one.
        limit: at most so many; None or 0 for all. A session without a summary counts before it is loaded, and a page has one less when that
            session is then left out.
        offset: leave out so many of the latest.

    Raises:
        SessionArgumentError: the store can list neither, or `directory` cannot be a path.
    """
    project = project_key_for_directory(directory)
    summaries = await _summaries(session_store, project)
    listed: list[SessionStoreListEntry] | None = None
    if has_method(session_store, "list_sessions"):
        listed = list(await session_store.list_sessions(project))
    elif summaries is None:
        raise SessionArgumentError(f"{type(session_store).__name__} can list neither its sessions nor summaries", argument="session_store")
    begin = max(offset, 0)
    stop = begin + limit if limit is not None and limit > 0 else None
    if summaries is None:
        return (await _loaded_until_full(session_store, project, listed or [], directory, stop))[begin:]
    page = list(itertools.islice(_shown(_slots(summaries, listed), directory), begin, stop))
    loaded = await _loaded(session_store, project, [slot for slot, info in page if info is None], directory)
    infos = (info or loaded[slot.session_id] for slot, info in page)
    return [info for info in infos if info is not None]


class _Slot(NamedTuple):
    """A place in a list of sessions: of one whose summary is known, or of one that must be loaded."""

    mtime: int
    session_id: str
    summary: SessionSummaryEntry | None = None


async def _summaries(store: SessionStore, project: str) -> list[SessionSummaryEntry] | None:
    """Return what the store has of them; None when it keeps none."""
    if not has_method(store, "list_session_summaries"):
        return None
    try:
        return await store.list_session_summaries(project)
    except NotImplementedError:  # a store around another one that keeps none
        return None


def _slots(summaries: Iterable[SessionSummaryEntry], listed: Sequence[SessionStoreListEntry] | None) -> list[_Slot]:
    """Return the places of all sessions, the latest first.

    A summary counts unless its session was written after it. One without a session is that of a deleted one.
    """
    written = None if listed is None else {each["session_id"]: each["mtime"] for each in listed}
    slots = [
        _Slot(each["mtime"], each["session_id"], each)
        for each in summaries
        if written is None or each["mtime"] >= written.get(each["session_id"], math.inf)
    ]
    known = {slot.session_id for slot in slots}
    slots += [_Slot(each["mtime"], each["session_id"]) for each in listed or () if each["session_id"] not in known]
    return sorted(slots, key=lambda slot: slot.mtime, reverse=True)


def _shown(slots: Iterable[_Slot], directory: Directory) -> Iterator[tuple[_Slot, SDKSessionInfo | None]]:
    """Yield the places that count, each with what the list shows there. None for a session that must be loaded to know it."""
    for slot in slots:
        info = None if slot.summary is None else _info(slot.summary, directory)
        if info is not None or slot.summary is None:
            yield slot, info


async def _loaded_until_full(
    store: SessionStore, project: str, listed: Iterable[SessionStoreListEntry], directory: Directory, stop: int | None
) -> list[SDKSessionInfo]:
    """Load the latest sessions until `stop` of them are shown, or all with None."""
    waiting = _slots((), list(listed))
    found: list[SDKSessionInfo] = []
    while waiting and (stop is None or len(found) < stop):
        count = len(waiting) if stop is None else stop - len(found)
        now, waiting = waiting[:count], waiting[count:]
        loaded = await _loaded(store, project, now, directory)
        found += [info for slot in now if (info := loaded[slot.session_id]) is not None]
    return found


async def _loaded(store: SessionStore, project: str, slots: Iterable[_Slot], directory: Directory) -> dict[str, SDKSessionInfo | None]:
    """Load sessions, and return what a list shows of each. None for one that a list leaves out."""
    found: dict[str, SDKSessionInfo | None] = {}
    waiting = iter(slots)

    async def load() -> None:
        for slot in waiting:
            key: SessionKey = {"project_key": project, "session_id": slot.session_id}
            try:
                entries = await store.load(key)
            except Exception:  # noqa: BLE001 - one session that cannot be loaded must not hide the others
                found[slot.session_id] = SDKSessionInfo(slot.session_id, summary="", last_modified=slot.mtime)
            else:
                found[slot.session_id] = _info({**fold_session_summary(None, key, entries or []), "mtime": slot.mtime}, directory)

    async with anyio.create_task_group() as tasks:
        for _ in range(_LOADS_AT_ONCE):
            tasks.start_soon(load)
    return found


def _info(summary: SessionSummaryEntry, directory: Directory) -> SDKSessionInfo | None:
    data = summary["data"]
    prompt = (data.get("first_prompt") if data.get("first_prompt_locked") else data.get("command_fallback")) or None
    title = data.get("custom_title") or data.get("ai_title") or None
    shown = title or data.get("last_prompt") or data.get("summary_hint") or prompt
    if data.get("is_sidechain") or not shown:
        return None
    return SDKSessionInfo(
        session_id=summary["session_id"],
        summary=shown,
        last_modified=summary["mtime"],
        custom_title=title,
        first_prompt=prompt,
        git_branch=data.get("git_branch") or None,
        cwd=data.get("cwd") or real_path(directory or "."),
        tag=data.get("tag") or None,
        created_at=data.get("created_at"),
    )


async def get_session_info_from_store(session_store: SessionStore, session_id: str, directory: Directory = None) -> SDKSessionInfo | None:
    """Return what a list shows of one session. None if the store does not have it, or if a list leaves it out.

    `last_modified` is the time of its last entry.

    Args:
        session_store: the store.
        session_id: its UUID.
        directory: the working directory of the session; without it, the current one.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
    """
    key = _key(session_id, directory)
    entries = await session_store.load(key)
    if not entries:
        return None
    times = [time for entry in entries if isinstance(entry, dict) and (time := milliseconds_of(entry.get("timestamp"))) is not None]
    return _info({**fold_session_summary(None, key, entries), "mtime": times[-1] if times else 0}, directory)


async def get_session_messages_from_store(
    session_store: SessionStore, session_id: str, directory: Directory = None, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """Return the messages of a session, in the order of the conversation; none if the store does not have it.

    Args:
        session_store: the store.
        session_id: its UUID.
        directory: the working directory of the session; without it, the current one.
        limit: at most so many messages; None or 0 for all.
        offset: leave out so many from the beginning.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
    """
    key = _key(session_id, directory)
    entries = await session_store.load(key)
    return [message_of(entry.where) for entry in cut_to_page(conversation(_tree(entries or [])), limit, offset)]


async def list_subagents_from_store(session_store: SessionStore, session_id: str, directory: Directory = None) -> list[str]:
    """Return the ids of the subagents of a session; none if the store does not have it.

    Args:
        session_store: a store that can list subkeys.
        session_id: the UUID of the session.
        directory: the working directory of the session; without it, the current one.

    Raises:
        SessionArgumentError: the id is no UUID, `directory` cannot be a path, or the store cannot list subkeys.
    """
    key = _key(session_id, directory)
    if not has_method(session_store, "list_subkeys"):
        raise SessionArgumentError(f"{type(session_store).__name__} cannot list the subkeys of a session", argument="session_store")
    names = [_agent_in(subpath) for subpath in await session_store.list_subkeys(_place(key))]
    return list(dict.fromkeys(name for name in names if name))


async def get_subagent_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: Directory = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a subagent, in the order of the conversation; none if the store does not have them.

    Args:
        session_store: the store.
        session_id: the UUID of the session that it worked for.
        agent_id: its id, as `list_subagents_from_store()` returns it.
        directory: the working directory of the session; without it, the current one.
        limit: at most so many messages; None or 0 for all.
        offset: leave out so many from the beginning.

    Raises:
        SessionArgumentError: the id of the session is no UUID, or `directory` cannot be a path.
    """
    key = _key(session_id, directory)
    if not agent_id:
        return []
    subpath: str | None = f"subagents/{_AGENT}{agent_id}"
    if has_method(session_store, "list_subkeys"):  # it may be one of a workflow, a level further down
        subpath = next((each for each in await session_store.list_subkeys(_place(key)) if _agent_in(each) == agent_id), None)
    if subpath is None:
        return []
    entries = await session_store.load({**key, "subpath": subpath}) or []
    noted = [entry for entry in entries if isinstance(entry, dict) and entry.get("type") == "agent_metadata"]
    parents = parents_in(cast("dict[str, Any]", noted[-1]) if noted else None)
    return [message_of(entry.where, parents) for entry in cut_to_page(lineage(_tree(entries)), limit, offset)]


async def rename_session_via_store(session_store: SessionStore, session_id: str, title: str, directory: Directory = None) -> None:
    """Give a session of a store a title. The last title counts.

    Args:
        session_store: the store.
        session_id: its UUID.
        title: the title, of which spaces at both ends are removed.
        directory: the working directory of the session; without it, the current one.

    Raises:
        SessionArgumentError: the id is no UUID, the title is empty, or `directory` cannot be a path.
    """
    key = _key(session_id, directory)
    await session_store.append(key, [_noted(session_id, {"type": "custom-title", "customTitle": checked_title(title)})])


async def tag_session_via_store(session_store: SessionStore, session_id: str, tag: str | None, directory: Directory = None) -> None:
    """Give a session of a store a tag, or take it away with None. The last tag counts.

    Args:
        session_store: the store.
        session_id: its UUID.
        tag: the tag. Invisible characters and spaces at both ends are removed, and compatible forms of characters are made one (NFKC).
        directory: the working directory of the session; without it, the current one.

    Raises:
        SessionArgumentError: the id is no UUID, nothing is left of the tag, or `directory` cannot be a path.
    """
    key = _key(session_id, directory)
    await session_store.append(key, [_noted(session_id, {"type": "tag", "tag": checked_tag(tag)})])


async def delete_session_via_store(session_store: SessionStore, session_id: str, directory: Directory = None) -> None:
    """Delete a session of a store, with what its subagents said. Does nothing for a store that cannot delete.

    Args:
        session_store: the store.
        session_id: its UUID.
        directory: the working directory of the session; without it, the current one.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
    """
    key = _key(session_id, directory)
    if has_method(session_store, "delete"):
        await session_store.delete(key)


async def fork_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: Directory = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a session of a store into a new one of the same store. What subagents said is not copied.

    Args:
        session_store: the store.
        session_id: its UUID.
        directory: the working directory of the session; without it, the current one.
        up_to_message_id: leave out what comes after this message.
        title: the title of the copy; without it, that of the original and " (fork)".

    Raises:
        SessionArgumentError: an id is no UUID, the session has no such message or none at all, or `directory` cannot be a path.
        SessionNotFound: the store does not have the session.
    """
    key = _key(session_id, directory)
    if up_to_message_id:
        check_id(up_to_message_id, argument="up_to_message_id")
    entries = await session_store.load(key)
    if not entries:
        raise SessionNotFound(f"the store has no session {session_id} of {real_path(directory or '.')}", session_id=session_id)
    fork = Fork(session_id, up_to_message_id)
    for entry in entries:
        fork.add(entry, entry)
    data = fold_session_summary(None, key, entries)["data"]
    original = data.get("custom_title") or data.get("ai_title") or data.get("first_prompt") or data.get("command_fallback")
    copied = list(fork.entries(lambda entry: cast("dict[str, Any]", entry.where), (title or "").strip() or fork_title(original)))
    await session_store.append({**key, "session_id": fork.new_id}, cast("list[SessionStoreEntry]", copied))
    return ForkSessionResult(fork.new_id)


def _key(session_id: str, directory: Directory) -> SessionKey:
    check_id(session_id)
    return {"project_key": project_key_for_directory(directory), "session_id": session_id}


def _place(key: SessionKey) -> Any:
    return {"project_key": key["project_key"], "session_id": key["session_id"]}


def _noted(session_id: str, entry: dict[str, Any]) -> SessionStoreEntry:
    return cast("SessionStoreEntry", {**entry, "sessionId": session_id, "uuid": str(uuid.uuid4()), "timestamp": timestamp()})


def _tree(entries: Iterable[SessionStoreEntry]) -> list[EntryPlace]:
    return [found for entry in entries if (found := EntryPlace.of(entry, entry))]


def _agent_in(subpath: str) -> str | None:
    """Return the id of the subagent that a subpath names, if it names one."""
    name = subpath.rpartition("/")[2]
    return name.removeprefix(_AGENT) or None if subpath.startswith("subagents/") and name.startswith(_AGENT) else None
