"""`read_timeline()` and `summarize()`: a tape as figures and events, read once, in bounded memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from claude_transport.inspection.control_lane import ControlLane
from claude_transport.inspection.event import Event, Section
from claude_transport.inspection.event_shelf import DEFAULT_MAX_EVENTS, DEFAULT_MAX_TEXT_CHARS, EventShelf
from claude_transport.inspection.record_source import OnProgress, RecordSource
from claude_transport.inspection.scene import Scene
from claude_transport.inspection.session_lane import SessionLane
from claude_transport.inspection.speech import Speech
from claude_transport.inspection.summary import Problem, TapeSummary
from claude_transport.inspection.wording import gist
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.messages import (
    AssistantMessage,
    DecodeFailure,
    Message,
    OversizedMessage,
    PermissionDeniedMessage,
    StreamEvent,
    TaskNotification,
    TaskStarted,
    UserMessage,
)
from claude_transport.protocol.tape import Tape, TapeRecord
from claude_transport.wrappers.metrics_snapshot import TokenCounts

__all__ = ["Timeline", "read_timeline", "summarize"]

_MAX_TYPES = 200
"""Wire types counted one by one; a tape that makes up more of them does not grow the memory."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A tape's figures, and its events in the order of their times.

    `event_count` is how many there are on the tape: when that is more than `events` holds, those in the middle were left out.
    `text_limit` is the length to which every section of text was cut, in characters.
    """

    summary: TapeSummary
    events: tuple[Event, ...] = ()
    event_count: int = 0
    text_limit: int = 0


def summarize(tape: Tape | str | os.PathLike[str], *, on_progress: OnProgress | None = None) -> TapeSummary:
    """The figures of a tape: a `Tape`, or the path of one, of any size.

    `on_progress` is called with the bytes read and the size of the file. Raises `ConfigurationError` for what is no tape.
    """
    return read_timeline(tape, max_events=1, max_text_chars=0, on_progress=on_progress).summary


def read_timeline(
    tape: Tape | str | os.PathLike[str],
    *,
    max_events: int = DEFAULT_MAX_EVENTS,
    max_text_chars: int = DEFAULT_MAX_TEXT_CHARS,
    on_progress: OnProgress | None = None,
) -> Timeline:
    """The figures and the events of a tape: a `Tape`, or the path of one, of any size.

    Of more than `max_events` events, those in the middle are left out; texts are cut until there are at most about `max_text_chars`
    characters of them. `on_progress` is called with the bytes read and the size of the file. Raises `ConfigurationError` for what is
    no tape.
    """
    source = RecordSource(tape, on_progress=on_progress)
    reading = _Reading(EventShelf(max_events=max_events, max_text_chars=max_text_chars))
    for number, record in source:
        reading.read(number, record)
    return reading.finish(source)


class _Reading:
    """One pass over a tape: each record goes to the lane it belongs to."""

    def __init__(self, shelf: EventShelf) -> None:
        self._scene = Scene(shelf)
        self._speech = Speech(self._scene)
        self._control = ControlLane(self._scene, on_denied=self._speech.denied)
        self._session = SessionLane(self._scene)
        self._bytes = {"in": 0, "out": 0}
        self._types: dict[str, Counter[str]] = {"in": Counter(), "out": Counter()}
        self._unreadable = 0

    def read(self, number: int, record: TapeRecord) -> None:
        """The next record."""
        scene = self._scene
        scene.record = number
        scene.t = max(scene.t, record.t)  # a clock that was set back must not make anything take less than no time
        if record.dir == "err":
            self._session.stderr(record.line)
            return
        self._session.between()
        if record.dir == "note":
            self._session.note(record.line)
            return
        self._bytes[record.dir] += len(record.line) + 1
        message = decode_message(record.whole_line)
        self._count(record.dir, message)
        if record.dir == "in":
            self._from_host(message)
        else:
            self._from_claude(message, record)

    def _count(self, direction: str, message: Message) -> None:
        if isinstance(message, DecodeFailure | OversizedMessage):
            self._unreadable += not (isinstance(message, DecodeFailure) and message.kind == "blank")
            return
        counts = self._types[direction]
        kind = gist(message.type)
        counts[kind if kind in counts or len(counts) < _MAX_TYPES else "other"] += 1

    def _from_host(self, message: Message) -> None:
        match message:
            case UserMessage():
                self._speech.prompt(message)
            case ControlRequest():
                self._control.request(message, by="host")
            case ControlResponse():
                self._control.response(message, by="host")
            case ControlCancelRequest():
                self._control.cancel(message, by="host")
            case _:
                self._session.from_host(message)

    def _from_claude(self, message: Message, record: TapeRecord) -> None:
        scene = self._scene
        scene.settle(scene.turns.heard(message, scene.t))
        before = scene.shelf.count
        handle = _LANES.get(type(message))
        if isinstance(message, ControlResponse):
            self._control.response(message, by="claude", kept=self._as_recorded(record))
        elif handle is not None:
            handle(self, message)
        else:
            self._session.message(message)
        if scene.shelf.count > before and not isinstance(message, ControlResponse):
            scene.shelf.extend(scene.shelf.count, *self._as_recorded(record))

    def _as_recorded(self, record: TapeRecord) -> tuple[Section, ...]:
        """What the tape has of a line that was trimmed while recording, and how long that was; nothing for a whole one."""
        if record.trimmed_from_chars is None:
            return ()
        kept = self._scene.shelf.section("as recorded", record.line.decode("utf-8", "replace"))
        return (msgspec.structs.replace(kept, chars=record.trimmed_from_chars),)

    def finish(self, source: RecordSource) -> Timeline:
        """Everything is read."""
        scene, speech, session = self._scene, self._speech, self._session
        speech.give_up(at_end=True)
        scene.settle(scene.turns.ended(scene.t))
        self._control.ended()
        for call in speech.tools.still_open():
            scene.worsen(call.event, "warning", f"{call.name} has no result")
        if source.is_torn:
            scene.blame("warning", "the tape is torn: its last line is not whole, and was left out", event=None)
        turns, ledger = scene.turns.turns, scene.turns.ledger
        tokens = TokenCounts()
        for turn in turns:
            tokens = tokens.plus(turn.tokens)
        summary = TapeSummary(
            cli_version=source.header.cli_version,
            created_at=source.header.created_at,
            scrubbed=source.header.scrubbed,
            is_torn=source.is_torn,
            records=scene.record,
            bytes_in=self._bytes["in"],
            bytes_out=self._bytes["out"],
            seconds=scene.t,
            session_ids=session.session_ids,
            turns=tuple(turns),
            tools=speech.tools.stats(),
            requests=(*self._control.host.stats(), *self._control.claude.stats()),
            tokens=tokens,
            models=ledger.models,
            cost_usd=ledger.cost_usd,
            api_messages=ledger.api_messages,
            retries=session.retries,
            messages_in=dict(self._types["in"]),
            messages_out=dict(self._types["out"]),
            unreadable_lines=self._unreadable,
            stderr_lines=session.stderr_lines,
            exit_code=session.exit_code,
            signal=session.signal,
            problems=_in_order(scene.problems),
            problem_count=scene.problem_count,
            error_count=scene.error_count,
        )
        return Timeline(summary=summary, events=scene.shelf.events(), event_count=scene.shelf.count, text_limit=scene.shelf.limit)


def _in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.t))


_LANES: dict[type[Message], Callable[[_Reading, Any], None]] = {
    UserMessage: lambda reading, message: reading._speech.user(message),  # noqa: SLF001 - the table belongs to the class above
    AssistantMessage: lambda reading, message: reading._speech.assistant(message),  # noqa: SLF001
    StreamEvent: lambda reading, message: reading._speech.partial(message),  # noqa: SLF001
    PermissionDeniedMessage: lambda reading, message: reading._speech.refused(message),  # noqa: SLF001
    TaskStarted: lambda reading, message: reading._speech.task_started(message),  # noqa: SLF001
    TaskNotification: lambda reading, message: reading._speech.task_ended(message),  # noqa: SLF001
    ControlRequest: lambda reading, message: reading._control.request(message, by="claude"),  # noqa: SLF001
    ControlCancelRequest: lambda reading, message: reading._control.cancel(message, by="claude"),  # noqa: SLF001
}
"""Which lane reads what; everything else belongs to the session."""
