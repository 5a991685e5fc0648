"""What was said in a stored session: its messages and those of its subagents.

A transcript is a tree: each entry names its parent, and an edited prompt or a parallel tool call makes a branch. `conversation()` finds the
branch that counts. Of a file it needs only the `EntryPlace` of each line, which holds no content: the lines of the page are read again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from claude_transport.errors import SessionFilesError
from claude_transport.protocol.envelope import JSONTextError, parse_json
from claude_transport.sessions.places import AT_ONCE, Directory, candidates, check_id, seek_session

MAX_LINE_BYTES: Final = 64 * 2**20
"""A longer line is passed over. A request to the Messages API, which has all that a message can hold, is at most half as large."""

SPOKEN: Final = frozenset({"user", "assistant"})
LINKED: Final = SPOKEN | {"progress", "system", "attachment"}
"""The types of entries that form the tree."""

_MAX_DEPTH: Final = 16  # directories below `subagents`; the CLI makes two
_PIECE: Final = 2**20


@dataclass
class SessionMessage:
    """A message of a user or of the model, as a transcript holds it."""

    type: Literal["user", "assistant"]
    """Whose message it is."""
    uuid: str
    """Its id within the session."""
    session_id: str
    """The session of which the entry is part."""
    message: Any
    """The message as the Messages API has it: a dict with `role`, `content` and so on."""
    parent_tool_use_id: str | None = None
    """For a subagent: the id of the tool call that started it, where that is known."""
    parent_agent_id: str | None = None
    """For a subagent of a subagent: the id of the subagent that started it."""


class Line(NamedTuple):
    """One line of a file: where it begins, and its bytes without the newline."""

    start: int
    data: bytes


@dataclass(slots=True)
class EntryPlace:
    """The place of an entry in the tree, without its content. `where` leads back to the content."""

    uuid: str
    parent: str | None
    type: str
    visible: bool
    main: bool
    is_sidechain: bool
    agent: Any
    timestamp: str
    response: str | None
    calls: tuple[str, ...]
    answers: tuple[str, ...]
    is_answer: bool
    source: str | None
    where: Any

    @classmethod
    def of(cls, raw: Any, where: Any) -> EntryPlace | None:
        """Make the entry of a line that was parsed. None for lines that are no part of the tree: titles, tags, snapshots, noise."""
        if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or not isinstance(raw.get("uuid"), str):
            return None
        if raw["type"] not in LINKED:
            return None
        message = raw.get("message")
        message = message if isinstance(message, dict) else {}
        content = message.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        parent = _text(raw.get("parentUuid"))
        spoken = raw["type"] in SPOKEN
        apart = bool(raw.get("isSidechain") or raw.get("teamName") or raw.get("isMeta"))
        results = [block for block in blocks if block.get("type") == "tool_result"] if raw["type"] == "user" and parent else []
        return cls(
            uuid=raw["uuid"],
            parent=parent,
            type=raw["type"],
            visible=spoken and not apart,
            main=not apart,
            is_sidechain=bool(raw.get("isSidechain")),
            agent=raw.get("agentId"),
            timestamp=_text(raw.get("timestamp")) or "",
            response=_text(message.get("id")) if raw["type"] == "assistant" else None,
            calls=_ids((block for block in blocks if block.get("type") == "tool_use"), "id"),
            answers=_ids((block for block in blocks if block.get("type") == "tool_result"), "tool_use_id"),
            is_answer=bool(results),
            source=_text(raw.get("sourceToolAssistantUUID")),
            where=where,
        )


def get_session_messages(session_id: str, directory: Directory = None, limit: int | None = None, offset: int = 0) -> list[SessionMessage]:
    """Return the messages of a session, in the order of the conversation; none if there is no such session.

    They are those of the branch that was written last. Of a turn with parallel tool calls, all calls and all results are there. After a
    compaction, the summary stands for what was said before it. Lines that are damaged or cut are passed over.

    Args:
        session_id: its UUID.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.
        limit: at most so many messages; None or 0 for all.
        offset: leave out so many from the beginning.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
    """
    check_id(session_id)
    for path, _ in candidates(f"{session_id}.jsonl", directory):
        with suppress(OSError, SessionFilesError), open_regular(path) as file:
            if os.fstat(file.fileno()).st_size:
                return _page(file, conversation, limit, offset)
    return []


def list_subagents(session_id: str, directory: Directory = None) -> list[str]:
    """Return the ids of the subagents of a session, by the names of their files; none if there is no such session.

    Args:
        session_id: its UUID.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
    """
    path = seek_session(session_id, directory)
    return [agent_id(found) for found in subagent_files(path) if found.name.startswith("agent-")] if path else []


def get_subagent_messages(
    session_id: str, agent_id: str, directory: Directory = None, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """Return the messages of a subagent, in the order of the conversation; none if there is no such session or subagent.

    Args:
        session_id: the UUID of the session that it worked for.
        agent_id: its id, as `list_subagents()` returns it.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.
        limit: at most so many messages; None or 0 for all.
        offset: leave out so many from the beginning.

    Raises:
        SessionArgumentError: the id of the session is no UUID, or `directory` cannot be a path.
    """
    path = seek_session(session_id, directory)
    name = f"agent-{agent_id}.jsonl"
    found = next((file for file in subagent_files(path) if file.name == name), None) if path and agent_id else None
    if found is None:
        return []
    with suppress(OSError, SessionFilesError), open_regular(found) as file:
        return _page(file, lineage, limit, offset, parents_in(read_sidecar(found)))
    return []


# --------------------------------------------------------------------------------------------------------------------- the tree


def conversation(entries: list[EntryPlace]) -> list[EntryPlace]:
    """Return what is shown of a session's transcript, from its beginning: the branch with the latest message and its parallel calls."""
    by_uuid = {entry.uuid: entry for entry in entries}
    position = {entry.uuid: number for number, entry in enumerate(entries)}
    parents = {entry.parent for entry in entries}
    seen: dict[str, EntryPlace | None] = {}
    leaves = [leaf for entry in entries if entry.uuid not in parents and (leaf := _spoken_above(entry, by_uuid, seen))]
    if not leaves:
        return []
    leaf = max([leaf for leaf in leaves if leaf.main] or leaves, key=lambda leaf: position[leaf.uuid])
    chain = list(_ancestry(leaf, by_uuid))[::-1]
    return [entry for entry in _with_parallel_calls(chain, by_uuid) if entry.visible]


def lineage(entries: list[EntryPlace]) -> list[EntryPlace]:
    """Return what is shown of a subagent's transcript, from its beginning: the last message and what led to it."""
    by_uuid = {entry.uuid: entry for entry in entries}
    leaf = next((entry for entry in reversed(entries) if entry.type in SPOKEN), None)
    return [entry for entry in list(_ancestry(leaf, by_uuid))[::-1] if entry.type in SPOKEN] if leaf else []


def parent_of(entry: EntryPlace, by_uuid: dict[str, EntryPlace]) -> EntryPlace | None:
    """Return the parent of an entry, if it has one that is there."""
    return by_uuid.get(entry.parent) if entry.parent else None


def _ancestry(entry: EntryPlace | None, by_uuid: dict[str, EntryPlace]) -> Iterator[EntryPlace]:
    """Yield an entry, its parent, and so on. A circle ends where it closes."""
    seen: set[str] = set()
    while entry is not None and entry.uuid not in seen:
        seen.add(entry.uuid)
        yield entry
        entry = parent_of(entry, by_uuid)


def _spoken_above(entry: EntryPlace, by_uuid: dict[str, EntryPlace], seen: dict[str, EntryPlace | None]) -> EntryPlace | None:
    """Return the nearest message at or above an entry. `seen` has the answers of entries that were passed: many leaves share a chain."""
    passed: list[str] = []
    found: EntryPlace | None = None
    for above in _ancestry(entry, by_uuid):
        is_known = by_uuid[above.uuid] is above  # of two entries with one uuid, the later one is the parent of others
        if above.type in SPOKEN or (is_known and above.uuid in seen):
            found = above if above.type in SPOKEN else seen[above.uuid]
            break
        if is_known:
            passed.append(above.uuid)
    seen.update(dict.fromkeys(passed, found))
    return found


def _with_parallel_calls(chain: list[EntryPlace], by_uuid: dict[str, EntryPlace]) -> list[EntryPlace]:
    """Put back what a parallel turn left beside the chain.

    The CLI writes one entry for each block of a response, and each tool result has its own call as its parent. The chain goes through one
    of them. The others belong behind the last entry of their response on the chain.
    """
    last_of = {entry.response: entry for entry in chain if entry.response}
    if not last_of:
        return chain
    turns = _Turns(by_uuid)
    on_chain = {entry.uuid for entry in chain}
    answered = {call for entry in chain for call in entry.answers}
    beside = {anchor.uuid: turns.beside(anchor, on_chain, answered) for anchor in last_of.values()}
    return [one for entry in chain for one in (entry, *beside.get(entry.uuid, ()))]


class _Turns:
    """The responses of a transcript, with the entries of each, and the tool results that may belong to each entry."""

    def __init__(self, by_uuid: dict[str, EntryPlace]) -> None:
        self._order = {uuid: number for number, uuid in enumerate(by_uuid)}
        self._members: dict[str, list[EntryPlace]] = {}
        self._caller: dict[str, EntryPlace | None] = {}  # None: two responses claim this call
        self._results: dict[str, list[EntryPlace]] = {}
        for entry in by_uuid.values():
            if entry.response:
                self._members.setdefault(entry.response, []).append(entry)
                for call in entry.calls:
                    other = self._caller.get(call, entry)
                    self._caller[call] = entry if other and other.response == entry.response else None
        for entry in by_uuid.values():
            if entry.is_answer:
                self._file(entry, by_uuid)

    def _file(self, result: EntryPlace, by_uuid: dict[str, EntryPlace]) -> None:
        """Note to which entries a result may belong: to its parent, its source, and the callers whose calls it answers."""
        source = by_uuid.get(result.source) if result.source else None
        owners = [source, *(self._caller.get(call) for call in result.answers)]
        places = [result.parent or "", *(owner.uuid for owner in owners if owner and _same_writer(owner, result))]
        for place in places:
            self._results.setdefault(place, []).append(result)

    def beside(self, anchor: EntryPlace, taken: set[str], answered: set[str]) -> list[EntryPlace]:
        """Return the entries of the response of `anchor` and its results that are not `taken`, and take them."""
        members = self._members.get(anchor.response or "", [anchor])
        uuids = {member.uuid for member in members}
        calls = [member for member in members if member.uuid not in taken]
        filed = {result.uuid: result for member in members for result in self._results.get(member.uuid, ()) if result.uuid not in taken}
        results = [result for result in filed.values() if result.parent in uuids]
        strays = [result for result in filed.values() if result.parent not in uuids]
        settled = answered.union(*(result.answers for result in results))
        for stray in sorted(strays, key=lambda entry: self._order[entry.uuid]):
            if any(call not in settled and (caller := self._caller.get(call)) and caller.uuid in uuids for call in stray.answers):
                settled.update(stray.answers)
                results.append(stray)
        found = sorted(calls, key=lambda entry: entry.timestamp) + sorted(results, key=lambda entry: entry.timestamp)
        taken.update(entry.uuid for entry in found)
        return found


def _same_writer(one: EntryPlace, other: EntryPlace) -> bool:
    return (one.is_sidechain, one.agent) == (other.is_sidechain, other.agent)


# -------------------------------------------------------------------------------------------------------------------- the files


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read its bytes. What is no file is refused: a pipe would never end.

    Raises:
        SessionFilesError: it is a directory, a pipe or a device.
        OSError: the file is not there, or may not be read.
    """
    descriptor = os.open(path, os.O_RDONLY | AT_ONCE)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise SessionFilesError(f"{path} is not a file; remove it")


def lines_of(file: BufferedReader, *, end: int | None = None) -> Iterator[Line]:
    """Yield the lines of a file that are not blank, up to the position `end` or to its end. Those over `MAX_LINE_BYTES` are passed over."""
    position = file.tell()
    while (end is None or position < end) and (data := file.readline(MAX_LINE_BYTES)):
        start, position = position, position + len(data)
        if not data.endswith(b"\n") and len(data) == MAX_LINE_BYTES:
            while (rest := file.readline(_PIECE)) and not rest.endswith(b"\n"):
                position += len(rest)
            position += len(rest)
        elif stripped := data.strip():
            yield Line(start, stripped)


def read_again(file: BufferedReader, entry: EntryPlace) -> dict[str, Any] | None:
    """Read an entry with its content, from the position `where`. None if the file was written anew, and something else is there now."""
    file.seek(entry.where)
    raw = parse(file.readline(MAX_LINE_BYTES).strip())
    return raw if isinstance(raw, dict) and raw.get("uuid") == entry.uuid else None


def parse(data: bytes) -> Any:
    """Read one line. None for what is no JSON: a line that a running CLI has half written, or garbage."""
    try:
        return parse_json(data)[0]
    except JSONTextError:
        return None


def subagent_files(path: Path) -> Iterator[Path]:
    """Yield the transcripts of a session's subagents, in the order of their names. A linked directory is not entered."""
    yield from _transcripts_below(path.with_suffix("") / "subagents", _MAX_DEPTH)


def agent_id(path: Path) -> str:
    """Return the id of the subagent whose transcript this is."""
    return path.name.removeprefix("agent-").removesuffix(".jsonl")


def read_sidecar(path: Path) -> dict[str, Any] | None:
    """Return what the CLI noted about a subagent next to its transcript, in `agent-<id>.meta.json`. None if that cannot be read."""
    with suppress(OSError, SessionFilesError), open_regular(path.with_name(f"{path.name.removesuffix('.jsonl')}.meta.json")) as file:
        noted = parse(file.read(_PIECE))
        return noted if isinstance(noted, dict) else None
    return None


def parents_in(sidecar: dict[str, Any] | None) -> tuple[str | None, str | None]:
    """Return the tool call that started a subagent, and the subagent that made the call, from what the CLI noted."""
    noted = sidecar or {}
    call, agent = noted.get("toolUseId"), noted.get("parentAgentId")
    return (call if isinstance(call, str) else None, agent if isinstance(agent, str) else None)


def cut_to_page(entries: list[EntryPlace], limit: int | None, offset: int) -> list[EntryPlace]:
    """Return the part of a list that `limit` and `offset` name."""
    begin = max(offset, 0)
    return entries[begin : begin + limit] if limit is not None and limit > 0 else entries[begin:]


def message_of(raw: dict[str, Any], parents: tuple[str | None, str | None] = (None, None)) -> SessionMessage:
    """Make the message of an entry with its content."""
    kind: Literal["user", "assistant"] = "user" if raw.get("type") == "user" else "assistant"
    return SessionMessage(kind, raw.get("uuid", ""), raw.get("sessionId", ""), raw.get("message"), *parents)


def _page(
    file: BufferedReader,
    choose: Callable[[list[EntryPlace]], list[EntryPlace]],
    limit: int | None,
    offset: int,
    parents: tuple[str | None, str | None] = (None, None),
) -> list[SessionMessage]:
    """Read a transcript, choose among its entries, and read those of the page again with their content."""
    entries = [entry for line in lines_of(file) if (entry := EntryPlace.of(parse(line.data), line.start))]
    page = (read_again(file, entry) for entry in cut_to_page(choose(entries), limit, offset))
    return [message_of(raw, parents) for raw in page if raw is not None]


def _transcripts_below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _transcripts_below(Path(entry.path), depth - 1)
        elif entry.name.endswith(".jsonl") and entry.is_file():
            yield Path(entry.path)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _ids(blocks: Iterable[dict[str, Any]], field: str) -> tuple[str, ...]:
    return tuple(block[field] for block in blocks if isinstance(block.get(field), str))
