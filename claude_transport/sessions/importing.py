"""Copy a session from the files of the CLI into a store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import anyio.to_thread

from claude_transport.errors import SessionFilesError
from claude_transport.sessions.places import Directory, find_session
from claude_transport.sessions.reading import lines_of, open_regular, parse, read_sidecar, subagent_files

BATCH_ENTRIES: Final = 500
BATCH_BYTES: Final = 2**20


class _Appends(Protocol):
    """What an import needs of a store."""

    async def append(self, key: Any, entries: Any, /) -> Any: ...


async def import_session_to_store(
    session_id: str,
    store: _Appends,
    *,
    directory: Directory = None,
    include_subagents: bool = True,
    batch_size: int = BATCH_ENTRIES,
) -> None:
    """Copy a session from the files of the CLI into a store, as if it had been mirrored there while it ran.

    The entries go to `store.append()` in batches, in the order of the file. Most have a `uuid`, by which a store can tell that it has one
    already. Lines that are damaged or cut are left out. Files are read in a worker thread.

    Args:
        session_id: its UUID.
        store: where it goes.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.
        include_subagents: also what its subagents said, and what the CLI noted about them (entries of the type `agent_metadata`).
        batch_size: at most so many entries in one call; one MiB of lines ends a batch, too. 0 and less stand for the default.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
        SessionNotFound: there is no such session.
        SessionFilesError: a file cannot be read. What came before it is in the store.
    """
    path = await anyio.to_thread.run_sync(find_session, session_id, directory)
    size = batch_size if batch_size > 0 else BATCH_ENTRIES
    key = {"project_key": path.parent.name, "session_id": session_id}
    await _copy(path, key, store, size)
    folder = path.with_suffix("")
    for transcript in await anyio.to_thread.run_sync(lambda: list(subagent_files(path))) if include_subagents else ():
        subkey = {**key, "subpath": transcript.relative_to(folder).as_posix().removesuffix(".jsonl")}
        await _copy(transcript, subkey, store, size)
        noted = await anyio.to_thread.run_sync(read_sidecar, transcript)
        if noted is not None:
            await store.append(subkey, [{**noted, "type": "agent_metadata"}])


async def _copy(path: Path, key: dict[str, str], store: _Appends, batch_size: int) -> None:
    with closing(await anyio.to_thread.run_sync(EntryBatches, path, batch_size)) as batches:
        while batch := await anyio.to_thread.run_sync(batches.next):
            await store.append(dict(key), batch)


class EntryBatches:
    """The entries of a transcript's file, some at a time: up to its end, or to the position `end`. Close it after use."""

    def __init__(self, path: Path, batch_size: int = BATCH_ENTRIES, *, end: int | None = None) -> None:
        self._path = path
        self._size = batch_size
        try:
            self._file = open_regular(path)
        except SessionFilesError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from error
        self._lines = lines_of(self._file, end=end)

    def next(self) -> list[dict[str, Any]]:
        """Return the next entries; none at the end."""
        batch: list[dict[str, Any]] = []
        held = 0
        try:
            for line in self._lines:
                entry = parse(line.data)
                if isinstance(entry, dict):
                    batch.append(entry)
                    held += len(line.data)
                    if len(batch) >= self._size or held >= BATCH_BYTES:
                        break
        except OSError as error:
            raise _unreadable(self._path, error) from error
        return batch

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _unreadable(path: Path, error: OSError) -> SessionFilesError:
    return SessionFilesError(f"{path} cannot be read: {error.strerror or error}", errno=error.errno)
