"""`Mirror`: copies the transcript of a running session into a `SessionStore`, beside the conversation and never in its way.

The CLI sends each entry of a transcript as a `transcript_mirror` frame. The frames are taken out of the lines as they come, which costs one
comparison per line. One task decodes them and gives them to the store. What cannot be stored becomes a `mirror_error` message among the
lines. The session itself goes on in any case.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import os
import secrets
import socket
import uuid as uuids
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import msgspec

from claude_transport.backoff import Backoff, RetryPolicy
from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConfigurationError, OutcomeUncertain, SessionInUse
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.session_store import SessionKey, SessionStore, SessionStoreEntry, SharedSessionStore, has_method
from claude_transport.launch.settings import load_settings, to_json
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop, Wakeup
from claude_transport.protocol.framing import OversizedLine
from claude_transport.sessions.importing import EntryBatches
from claude_transport.sessions.materialising import (
    FoundSession,
    asked,
    find_session,
    load_session,
    locate_session,
    said_by,
    settings_without_place,
)
from claude_transport.sessions.reading import Line, lines_of, open_regular, parse
from claude_transport.sessions.store_entries import decode_entries, not_stored, uuid_of
from claude_transport.sessions.store_keys import key_of_transcript

logger: logging.Logger = logger_for(__name__)

_FRAME: Final = b'{"type":"transcript_mirror"'
"""How the CLI begins a frame."""

MOST_WAITING_BYTES: Final = 64 * 2**20
"""Bytes of frames that wait for a store that is slow or away. What comes beyond them is lost, and reported."""

_BATCH_BYTES: Final = 2**20
"""Bytes of frames that go to the store together."""

_APPEND_TIMEOUT: Final = 60.0
"""Seconds for one call of `append`."""

_LAST_CALLS: Final = 10.0
"""Seconds that the store gets after the last frame. Closing a session waits for no longer."""

_LAST_WORDS: Final = 0.3
"""Share of these seconds that the end of the reading waits for reports. A `Query` that closes reads for 5 seconds at most."""

_GIVE_BACK: Final = 1.0
"""Seconds for giving the sessions back. A claim that is not given back ends by itself."""

_TOO_LATE: Final = "the session was closed before the store had taken everything"

_SHOWN: Final = 100
"""Characters of a file's name in a report."""

CLAIM_SECONDS: Final = 30.0
"""Seconds after which another host may take a session whose host was killed."""

_RETRY: Final = RetryPolicy(connection=15, backoff=Backoff(first=0.2, maximum=5.0))
"""About a minute, in which a server can start again, or another one can take its place."""

_LAST_RETRY: Final = RetryPolicy(connection=1, backoff=Backoff(first=0.2))
"""Once no more frames come, closing waits for the store."""


class Mirror:
    """Takes the frames of one CLI process for `store`.

    Args:
        store: where the entries go.
        hands_on: leave the frames among the lines, for a program that asked for them.
        projects: session ids, and the project that the store has each of them under, where that is not the project of the directory.
        retry: when a failed call is made again; `connection` counts.
        append_timeout: seconds for one call of the store.
        last_calls: seconds that the store gets after the last frame.
        most_waiting_bytes: bytes of frames that may wait. What comes beyond them is lost, and reported.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        hands_on: bool = False,
        projects: Mapping[str, str] | None = None,
        retry: RetryPolicy = _RETRY,
        append_timeout: float = _APPEND_TIMEOUT,
        last_calls: float = _LAST_CALLS,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        self._store = store
        self._hands_on = hands_on
        self._projects = dict(projects or {})
        self._retry = retry
        self._append_timeout = append_timeout
        self._most_waiting_bytes = most_waiting_bytes
        self._last_calls = last_calls
        self.lost: int = 0
        """How many entries, or frames with several of them, were not stored."""
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._reports: list[bytes] = []
        self._news = Wakeup()
        self._caught_up = Wakeup()
        self._storing = 0  # entries that the store is being given
        self._end_by: float | None = None  # once no more frames come
        self._task: LoopTask | None = None
        self._home: tuple[HostLoop, contextvars.Context] | None = None  # where that task runs
        self._claims: dict[tuple[str, str], float | None] = {}  # by project and session: until when it is ours; None for never
        self._seen: set[str] = set(self._projects)  # sessions and files of which the store has the beginning

    # Where lines are read: nothing here waits.

    def take(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Take the frames out of `lines`, and return the rest, with the reports of what was lost since the last call."""
        for line in lines:
            if line.startswith(_FRAME):
                break
        else:
            return [*lines, *self._reported()] if self._reports else lines
        kept = []
        for line in lines:
            is_frame = line.startswith(_FRAME)
            if is_frame:
                self._note(line)
            if not is_frame or self._hands_on:
                kept.append(line)
        self._news.fire()
        return [*kept, *self._reported()]

    def _note(self, line: bytes) -> None:
        if isinstance(line, OversizedLine):
            self._lose(None, f"a frame of {line.size} bytes is longer than max_line_bytes", 1)
        elif self._task is not None and self._task.finished:
            self._drop(_TOO_LATE)
        elif self._waiting_bytes + len(line) > self._most_waiting_bytes:
            self._drop(f"the store is too slow: {self._waiting_bytes} bytes wait for it, and frames are dropped")
        else:
            self._dropped = 0
            self._waiting.append(line)
            self._waiting_bytes += len(line)

    def _drop(self, why: str) -> None:
        """Lose a frame. Only the first one in a row is reported."""
        self._dropped += 1
        if self._dropped == 1:
            self._lose(None, why, 1)
        else:
            self.lost += 1

    def _reported(self) -> list[bytes]:
        reports, self._reports = self._reports, []
        return reports

    @property
    def is_behind(self) -> bool:
        """True while frames wait for the store, or it has not acknowledged the last ones."""
        return bool(self._waiting or self._storing) and self._task is not None and not self._task.finished

    async def catch_up(self) -> None:
        """Wait until everything that was taken so far is stored or lost. The store's timeouts and the end of the mirror bound it."""
        while self.is_behind:
            await self._caught_up.wait()

    # The life of the mirror.

    def start(self, *, at_end: Callable[[], object] | None = None) -> None:
        """Begin to store, in a task of its own. `at_end` is called when nothing more will be stored."""
        self._home = HostLoop(), contextvars.copy_context()
        self._task = LoopTask.spawn(self._run, name="mirror transcript", at_end=at_end)

    async def drain(self) -> Sequence[bytes]:
        """Wait a moment until everything is stored. Return the reports that were not read yet."""
        end_by = self._begin_end() - (1 - _LAST_WORDS) * self._last_calls
        if self._task is not None:
            with anyio.CancelScope(deadline=end_by):
                await self._task.wait()
        return self._reported()

    async def close(self) -> None:
        """Store what waits, within the same seconds, and give the sessions back. A cancelled call gives up at once."""
        if (task := self._task) is None:
            with anyio.move_on_after(_GIVE_BACK):
                await self._release()
            return
        try:
            with anyio.CancelScope(deadline=self._begin_end()):
                await task.wait()
        finally:
            task.cancel()
            await task.join()
            if self._waiting or self._storing:
                self._lose(None, _TOO_LATE, len(self._waiting) + self._storing)
                self._waiting.clear()
                self._storing = 0
            self._caught_up.fire()

    def abandon(self) -> None:
        """Do what `close()` does, without waiting: for a transport that was dropped. Any thread and any finaliser may call it.

        When the event loop has ended, nothing is done: no claim is renewed any more, and each ends after `CLAIM_SECONDS`.
        """
        if self._home is not None and self._task is not None and not self._task.finished:
            loop, context = self._home
            loop.call_soon(functools.partial(context.run, self._close_alone))  # the context of a thread knows no event loop

    def _close_alone(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is ending
            LoopTask.spawn(self.close, name="close mirror")

    def _begin_end(self) -> float:
        if self._end_by is None:
            self._end_by = anyio.current_time() + self._last_calls
        self._news.fire()
        return self._end_by

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_claims)
                while self._waiting or self._end_by is None:
                    await (self._store_waiting() if self._waiting else self._news.wait())
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_GIVE_BACK, shield=True):
                await self._release()

    # Claims: a session has one host at a time.

    async def claim(self, key: SessionKey) -> None:
        """Take a session for this host, before it is resumed.

        Raises:
            SessionInUse: another host has it.
            CLIConnectionError: the store failed.
        """
        holder = await self._ask_for(key, timeout=self._append_timeout)
        if holder != self._owner:
            raise SessionInUse(
                f"session {key['session_id']} is in use by another host ({holder}): wait for its end, or set fork_session=True for a copy",
                session_id=key["session_id"],
            )

    async def _ask_for(self, key: SessionKey, *, timeout: float) -> str | None:
        """Take a session, or keep it. Return the host that has it; always this one where the store knows no hosts."""
        if not has_method(self._store, "claim"):
            return self._owner
        place: Any = {"project_key": key["project_key"], "session_id": key["session_id"]}
        self._claims.setdefault((key["project_key"], key["session_id"]), 0.0)  # to give it back, also when the answer does not come
        until = anyio.current_time() + CLAIM_SECONDS
        holder = await asked(
            cast("SharedSessionStore", self._store).claim(place, owner=self._owner, seconds=CLAIM_SECONDS), timeout=timeout
        )
        self._claims[key["project_key"], key["session_id"]] = until if holder == self._owner else None
        return holder

    async def _is_ours(self, key: SessionKey) -> bool:
        """Return whether this host has a session. A claim whose time is over is asked for again: another host may have come."""
        until = self._claims.get((key["project_key"], key["session_id"]), 0.0)
        if until is None or until > anyio.current_time():
            return until is not None
        return await self._ask_for(key, timeout=self._append_timeout) == self._owner

    async def _keep_claims(self) -> None:
        """Renew the claims, also while the store takes long for another call."""
        while True:
            await anyio.sleep(CLAIM_SECONDS / 3)
            for project, session in [place for place, until in self._claims.items() if until is not None]:
                key: SessionKey = {"project_key": project, "session_id": session}
                try:
                    if await self._ask_for(key, timeout=CLAIM_SECONDS / 3) != self._owner:
                        self._lose(key, "another host has taken this session, so it is not stored any more", 0)
                except ClaudeTransportError as exc:
                    logger.warning("the claim on a session could not be renewed: %s", exc)

    async def _release(self) -> None:
        for project, session in [place for place, until in self._claims.items() if until is not None]:
            try:
                await cast("SharedSessionStore", self._store).release({"project_key": project, "session_id": session}, owner=self._owner)
            except Exception as exc:  # noqa: BLE001 - the claim ends by itself
                logger.info("a session was not given back to the store: %s", said_by(exc))
        self._claims.clear()

    # Storing.

    async def _store_waiting(self) -> None:
        size, lines = 0, []
        while self._waiting and size < _BATCH_BYTES:
            lines.append(line := self._waiting.popleft())
            size += len(line)
        by_file = self._by_file(lines)
        self._storing = sum(map(len, by_file.values()))
        for path, entries in by_file.items():
            key = key_of_transcript(path)
            if key is None:
                self._lose(None, f"{Path(path).name[-_SHOWN:]!r} is no transcript", len(entries))
            else:
                key["project_key"] = self._projects.get(key["session_id"], key["project_key"])
                await self._store_beginning(path, key, entries)
                await self._append(key, entries)
            self._storing -= len(entries)
        self._waiting_bytes -= size
        if not self._waiting:
            self._caught_up.fire()

    def _by_file(self, lines: Sequence[bytes]) -> dict[str, list[SessionStoreEntry]]:
        by_file: dict[str, list[SessionStoreEntry]] = {}
        for line in lines:
            frame = next(decode_entries([line]), None)
            path, entries = (frame.get("filePath"), frame.get("entries")) if isinstance(frame, dict) else (None, None)
            if isinstance(path, str) and isinstance(entries, list):
                by_file.setdefault(path, []).extend(entries)
            else:
                self._lose(None, f"a frame of {len(line)} bytes cannot be read", 1)
        return by_file

    async def _store_beginning(self, path: str, key: SessionKey, sent: Sequence[SessionStoreEntry]) -> None:
        """Store what the CLI has written before the entries that it `sent`, without sending it: the history of a fork, or of a session
        that was begun without a store. It is read once, when the first message of a file comes: only messages have a uuid to look for.
        """
        if path in self._seen or key["session_id"] in self._projects or not any(map(uuid_of, sent)):
            return
        self._seen.add(path)
        try:
            # an abandoned thread ends by itself: it reads a file
            end = await anyio.to_thread.run_sync(functools.partial(_end_of_beginning, path, sent), abandon_on_cancel=True)
            with contextlib.closing(EntryBatches(Path(path), end=end)) as batches:
                while end and (batch := await anyio.to_thread.run_sync(batches.next)):
                    await self._append(key, cast("list[SessionStoreEntry]", batch))
        except FileNotFoundError:
            return  # a CLI that keeps no files has sent everything
        except (OSError, RuntimeError) as exc:  # it cannot be read, or no thread can be started
            self._lose(key, f"the beginning of the transcript cannot be read: {said_by(exc)}", 1)

    async def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        failures: list[BaseException] = []
        while True:
            try:
                if not await self._is_ours(key):
                    self._lose(key, "another host has this session", len(entries))
                    return
                if failures:
                    entries = await self._not_stored(key, entries)
                await self._append_once(key, entries)
            except ClaudeTransportError as exc:
                retry = self._retry if self._end_by is None else _LAST_RETRY
                delay = retry.next_delay(exc, earlier=failures)
                if delay is None:
                    self._lose(key, str(exc), len(entries))
                    return
                if not failures:
                    logger.warning("%s; it is asked again for about a minute", exc)
                failures.append(exc)
            else:
                return
            with anyio.move_on_after(delay):
                while self._end_by is None:  # the end cuts the pause short
                    await self._news.wait()

    async def _not_stored(self, key: SessionKey, entries: list[SessionStoreEntry]) -> list[SessionStoreEntry]:
        """Return what a call that failed has not stored. A store tells by their uuids what it has; of the rest, it is asked."""
        if all(map(uuid_of, entries)):
            return entries
        stored = await asked(self._store.load(key), timeout=self._append_timeout)
        return not_stored(entries, stored or [])

    async def _append_once(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        failure: Exception | None = None
        patience = anyio.CancelScope(deadline=anyio.current_time() + self._append_timeout)
        try:
            with patience:
                await self._store.append(key, entries)
        except Exception as exc:  # noqa: BLE001 - a store may raise any
            failure = exc
        if patience.cancelled_caught or (failure is not None and patience.cancel_called):
            # it may still be written, and entries without a uuid would be there twice
            raise OutcomeUncertain(f"the session store did not answer in {self._append_timeout:g} s")
        if failure is not None:
            raise CLIConnectionError(f"the session store failed: {said_by(failure)}", code="session_store.failed") from failure

    def _lose(self, key: SessionKey | None, error: str, count: int) -> None:
        self.lost += count
        logger.warning("the transcript is not complete in the session store: %s (%d entries or frames)", error, count)
        message = {
            "type": "system",
            "subtype": "mirror_error",
            "error": error,
            "key": key,
            "uuid": str(uuids.uuid4()),
            "session_id": "" if key is None else key["session_id"],
        }
        self._reports.append(msgspec.json.encode(message))


def _end_of_beginning(path: str, sent: Sequence[SessionStoreEntry]) -> int:
    """Return the position in a transcript's file at which the entries that were `sent` begin; 0 when they are not there.

    The CLI sends most entries of the file, but not all. Those without a uuid in front of the first one with a uuid are looked for, too.
    """
    first = next(number for number, entry in enumerate(sent) if uuid_of(entry))
    uuid = uuid_of(sent[first]) or ""
    before: deque[Line] = deque(maxlen=first)
    with open_regular(Path(path)) as file:
        for line in lines_of(file):
            if uuid.encode("utf-8", "replace") in line.data and uuid_of(parse(line.data)) == uuid:
                end = line.start
                while first and before and parse(before[-1].data) == sent[first - 1]:
                    end = before.pop().start
                    first -= 1
                return end
            before.append(line)
    return 0


async def prepare_stored(options: ClaudeOptions) -> tuple[Mirror, FoundSession | None, ClaudeOptions]:
    """Ask the store of `options` for the session to resume, and take it for this host, unless it is forked.

    Return a mirror, the session (None: the store has none, or none is resumed), and the options with which the CLI is to be started.

    Raises:
        SessionInUse: another host has the session.
        CLIConnectionError: the store failed, or did not answer.
        ConfigurationError: the store cannot do what the options need.
    """
    store = options.session_store
    if store is None:
        raise ConfigurationError("session_store is not set", option="session_store")
    key = None
    if options.resume is not None or options.continue_conversation:
        key = await locate_session(store, resume=options.resume, cwd=options.cwd)
    mirror = Mirror(store, hands_on=options.session_mirror, projects={} if key is None else {key["session_id"]: key["project_key"]})
    options = options.replace(session_mirror=True)
    if key is None:
        return mirror, None, options
    try:
        if not options.fork_session:
            await mirror.claim(key)
        # only now: the host that had it may have stored its last words a moment ago
        found = await load_session(store, key)
        if found is not None:
            options = _staying_in_place(options)
    except BaseException:
        with anyio.CancelScope(shield=True):  # bounded: it gives the session back
            await mirror.close()
        raise
    return mirror, found, options.replace(resume=key["session_id"], continue_conversation=False)


async def is_stored(options: ClaudeOptions) -> bool:
    """Return True when the store of `options` has the session to resume.

    Raises:
        CLIConnectionError: the store failed, or did not answer.
    """
    store = options.session_store
    return store is not None and await find_session(store, resume=options.resume, cwd=options.cwd) is not None


def _staying_in_place(options: ClaudeOptions) -> ClaudeOptions:
    """Return the options without a variable of `settings` that would lead the CLI away from the session's files."""
    kept = settings_without_place(to_json(load_settings(options), option="settings"))
    return options if kept is None else options.replace(settings=kept.decode())
