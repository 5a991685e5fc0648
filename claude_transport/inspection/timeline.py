"""`read_timeline()` and `summarize()`: read a tape into events and figures, in one pass and in bounded memory.

`RecordSource` reads the records of a file of any size. `ControlLane` and `SessionLane` read two of the lanes; `speech.py` reads the others.
`scene.py` collects the events, `summary.py` has the figures.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from claude_transport.agents.readers import TapeReader
from claude_transport.agents.registry import AgentFinder
from claude_transport.agents.scene import (
    DEFAULT_MAX_EVENTS,
    DEFAULT_MAX_TEXT_CHARS,
    CallBook,
    CallStats,
    Event,
    EventStore,
    Level,
    Section,
    TapeFigures,
    gist_of,
    gist_of_input,
    json_text,
)
from claude_transport.errors import ConfigurationError
from claude_transport.inspection.speech import Speech
from claude_transport.inspection.summary import TapeSummary
from claude_transport.inspection.turn_book import TurnScene
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import (
    CanUseTool,
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Elicitation,
    HookCallback,
    InboundBody,
    McpMessage,
)
from claude_transport.protocol.envelope import DecodeFailure, JSONTextError, Message, OversizedMessage, UnknownMessage, as_float, parse_json
from claude_transport.protocol.messages import (
    APIRetryMessage,
    AssistantMessage,
    CommandLifecycle,
    CompactBoundary,
    ControlRequestProgress,
    ConversationReset,
    HookResponse,
    HookStarted,
    Informational,
    InitMessage,
    ModelFallback,
    ModelRefusalNoFallback,
    PermissionDeniedMessage,
    RateLimitEvent,
    ResultMessage,
    StatusMessage,
    StreamEvent,
    SystemMessage,
    TaskNotification,
    TaskStarted,
    UserMessage,
)
from claude_transport.protocol.tape import (
    CLOSED,
    INPUT_ENDED,
    OUTPUT_ENDED,
    Tape,
    TapeHeader,
    TapeRecord,
    read_exit_note,
    without_withdrawn,
)
from claude_transport.protocol.token_counts import TokenCounts

OnProgress = Callable[[int, int], object]
"""Called with the bytes read so far, and the size of the file."""

_MAX_TYPES = 200
"""Wire types counted separately. More types count as `other`, so that a hostile tape cannot fill the memory."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What `read_timeline()` has read from a tape: its figures (`summary`), and its `events` in the order of their times.

    `event_count` is the number of events on the tape. When it is more than `len(events)`, the events in the middle were left out.
    `text_limit` is the length in characters to which each section of text was cut.
    """

    summary: TapeSummary
    events: tuple[Event, ...] = ()
    event_count: int = 0
    text_limit: int = 0


def summarize(tape: Tape | str | os.PathLike[str], *, on_progress: OnProgress | None = None) -> TapeSummary:
    """Read a tape of any size, and return its figures without its events.

    Args:
        tape: a `Tape`, or the path of a tape.
        on_progress: called from time to time with the bytes read and the size of the file; never for a `Tape`.

    Raises:
        ConfigurationError: the file cannot be read, or is not a tape.
    """
    return read_timeline(tape, max_events=1, max_text_chars=0, on_progress=on_progress).summary


def read_timeline(
    tape: Tape | str | os.PathLike[str],
    *,
    max_events: int = DEFAULT_MAX_EVENTS,
    max_text_chars: int = DEFAULT_MAX_TEXT_CHARS,
    on_progress: OnProgress | None = None,
) -> Timeline:
    """Read a tape of any size, and return its figures and its events, in bounded memory.

    Args:
        tape: a `Tape`, or the path of a tape.
        max_events: events to return; of more events, those in the middle are left out.
        max_text_chars: characters of text to return in all, about; longer texts are cut.
        on_progress: called from time to time with the bytes read and the size of the file; never for a `Tape`.

    Raises:
        ConfigurationError: the file cannot be read, or is not a tape.
    """
    source = RecordSource(tape, on_progress=on_progress)
    reading = Reading(EventStore(max_events=max_events, max_text_chars=max_text_chars))
    for number, record in source:
        reading.read(number, record)
    return reading.finish(source)


class Reading:
    """One pass over the records of a session. Hands each record to its lane."""

    def __init__(self, shelf: EventStore) -> None:
        self._scene = TurnScene(shelf)
        self._speech = Speech(self._scene)
        self._control = ControlLane(self._scene, on_denied=self._speech.denied)
        self._session = SessionLane(self._scene)
        self._lanes: dict[type[Message], Callable[[Any], None]] = {
            UserMessage: self._speech.user,
            AssistantMessage: self._speech.assistant,
            StreamEvent: self._speech.partial,
            PermissionDeniedMessage: self._speech.refused,
            TaskStarted: self._speech.task_started,
            TaskNotification: self._speech.task_ended,
            ControlRequest: partial(self._control.request, by="claude"),
            ControlCancelRequest: partial(self._control.cancel, by="claude"),
        }
        self._agents = AgentFinder()
        self._other: TapeReader | None = None  # in place of the lanes above, once the lines have told that they are those of another agent
        self._bytes = {"in": 0, "out": 0}
        self._types: dict[str, Counter[str]] = {"in": Counter(), "out": Counter()}
        self._unreadable = 0

    def read(self, number: int, record: TapeRecord) -> None:
        """Read the next record; `number` is its position on the tape, from 1."""
        scene = self._scene
        scene.record = number
        scene.t = max(scene.t, record.t)  # a clock that was set back must not make a duration negative
        if record.dir == "err":
            self._session.stderr(record.line)
            return
        self._session.between()
        if record.dir == "note":
            self._session.note(record.line)
            return
        self._bytes[record.dir] += len(record.line) + 1
        if not self._agents.is_decided:
            agent = self._agents.look([record.whole_line])
            self._other = agent.tape_reader(scene)
            if self._other is not None:
                self._session.agent = agent.program
        if self._other is not None:
            self._read_other(self._other, record)
            return
        message = decode_message(record.whole_line)
        self._count(record.dir, message)
        if record.dir == "in":
            self._from_host(message)
        else:
            self._from_claude(message, record)

    def _read_other(self, reader: TapeReader, record: TapeRecord) -> None:
        is_host = record.dir == "in"
        message = reader.said(record.whole_line) if is_host else reader.heard(record.whole_line, self._as_recorded(record))
        self._count(record.dir, message)
        if isinstance(message, DecodeFailure | OversizedMessage):
            self._session.unreadable(message, by="the host" if is_host else self._session.agent)

    def _count(self, direction: str, message: Message) -> None:
        if isinstance(message, DecodeFailure | OversizedMessage):
            self._unreadable += not (isinstance(message, DecodeFailure) and message.kind == "blank")
            return
        counts = self._types[direction]
        kind = gist_of(message.type)
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
        if isinstance(message, ControlResponse):
            self._control.response(message, by="claude", kept=self._as_recorded(record))
        else:
            self._lanes.get(type(message), self._session.message)(message)
        if scene.shelf.count > before and not isinstance(message, ControlResponse):
            scene.shelf.extend(scene.shelf.count, *self._as_recorded(record))

    def _as_recorded(self, record: TapeRecord) -> tuple[Section, ...]:
        """Return a section with what the tape has of a line that was cut while recording; nothing for a whole line."""
        if record.trimmed_from_chars is None:
            return ()
        kept = self._scene.shelf.section("as recorded", record.line.decode("utf-8", "replace"))
        return (msgspec.structs.replace(kept, chars=record.trimmed_from_chars),)

    def finish(self, source: RecordSource) -> Timeline:
        """Close what is open, and return the timeline."""
        self.close()
        if source.is_torn:
            torn = "the recording was interrupted: the last line of the tape is not whole and was left out"
            self._scene.blame("warning", torn, event=None)
        self._scene.record = source.count
        return self.timeline(source.header, is_torn=source.is_torn)

    def close(self) -> None:
        """Close what is open, because no record follows."""
        scene, speech = self._scene, self._speech
        speech.give_up(at_end=True)
        scene.settle(scene.turns.ended(scene.t))
        self._control.ended()
        for call in speech.tools.still_open():
            scene.worsen(call.event, "warning", f"{call.name} has no result")
        if self._other is not None:
            self._other.ended()

    def timeline(self, header: TapeHeader, *, is_torn: bool = False) -> Timeline:
        """Return the timeline of what was read so far."""
        shelf = self._scene.shelf
        return Timeline(
            summary=self.summary(header, is_torn=is_torn), events=shelf.events(), event_count=shelf.count, text_limit=shelf.limit
        )

    def _figures(self) -> TapeFigures:
        """Return the figures of a tape of Claude."""
        turns = self._scene.turns
        return TapeFigures(
            session_ids=self._session.session_ids,
            turns=turns.turns,
            tools=self._speech.tools.stats(),
            requests=self._control.requests,
            models=turns.ledger.models,
            cost_usd=turns.ledger.cost_usd,
            api_messages=turns.ledger.api_messages,
            retries=self._session.retries,
        )

    def summary(self, header: TapeHeader, *, is_torn: bool = False) -> TapeSummary:
        """Return the figures of what was read so far."""
        scene, session = self._scene, self._session
        figures = self._figures() if self._other is None else self._other.figures()
        tokens = TokenCounts()
        for turn in figures.turns:
            tokens = tokens.plus(turn.tokens)
        return TapeSummary(
            agent=session.agent,
            cli_version=header.cli_version,
            created_at=header.created_at,
            scrubbed=header.scrubbed,
            is_torn=is_torn,
            records=scene.record,
            bytes_in=self._bytes["in"],
            bytes_out=self._bytes["out"],
            seconds=scene.t,
            session_ids=tuple(figures.session_ids),
            turns=tuple(figures.turns),
            tools=tuple(figures.tools),
            requests=tuple(figures.requests),
            tokens=tokens,
            models=figures.models,
            cost_usd=figures.cost_usd,
            api_messages=figures.api_messages,
            retries=figures.retries,
            messages_in=dict(self._types["in"]),
            messages_out=dict(self._types["out"]),
            unreadable_lines=self._unreadable,
            stderr_lines=session.stderr_lines,
            exit_code=session.exit_code,
            signal=session.signal,
            problems=tuple(sorted(scene.problems, key=lambda problem: problem.t)),
            problem_count=scene.problem_count,
            error_count=scene.error_count,
        )


_BLOCK_BYTES = 2**20
"""Bytes read at a time, and then on to the end of the line."""

_MAX_LINE_BYTES = 2**31
"""Bytes of one line: as JSON, a line of 256 MiB that is not UTF-8 takes half as much. A hostile file may have no newline at all."""

_WITHDRAWAL = b"withdrawn in "
"""The beginning of a note that withdraws a line (`protocol.tape.note_of_withdrawal`)."""


class RecordSource:
    """Yields the records of a tape with their numbers from 1, without withdrawn lines. Iterate it once; then `is_torn` is known.

    Raises:
        ConfigurationError: the file cannot be read, or is not a tape. The message is that of `Tape.read()`.
    """

    def __init__(self, tape: Tape | str | os.PathLike[str], *, on_progress: OnProgress | None = None) -> None:
        self._tape = tape
        self._on_progress = on_progress
        self.header: TapeHeader = TapeHeader()
        self.is_torn: bool = False
        self.count: int = 0
        """The records that were read, withdrawn ones included."""

    def __iter__(self) -> Iterator[tuple[int, TapeRecord]]:
        tape = self._tape
        if isinstance(tape, Tape):
            self.header, self.is_torn, self.count = tape.header, tape.is_torn, len(tape)
            yield from _without(_withdrawn_of(enumerate(tape, 1)), enumerate(tape, 1))
            return
        try:
            with _open_seekable(tape) as file:
                _refuse_other_files(file, name=Path(tape).name)
                yield from self._read(file, name=Path(tape).name)
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the tape {os.fspath(tape)}: {error.strerror or error}. `claude-transport record` writes tapes.",
                option="path",
            ) from error

    def _read(self, file: BinaryIO, *, name: str) -> Iterator[tuple[int, TapeRecord]]:
        withdrawn: frozenset[int] = frozenset()
        if any(_WITHDRAWAL in block for block in _blocks(file, name=name)):  # rare: only such a tape is read twice
            withdrawn = _withdrawn_of(self._records(file, name=name, on_progress=None))
        yield from _without(withdrawn, self._records(file, name=name, on_progress=self._on_progress))

    def _records(self, file: BinaryIO, *, name: str, on_progress: OnProgress | None) -> Iterator[tuple[int, TapeRecord]]:
        total = file.seek(0, os.SEEK_END)
        number = lines = done = 0
        for block in _blocks(file, name=name):
            tape = _parse(block, name=name, lines_before=lines, header=self.header)
            if not lines:
                self.header = tape.header
            self.is_torn = tape.is_torn
            lines += block.count(b"\n")
            for record in tape:
                number += 1
                self.count = number
                yield number, record
            done += len(block)
            if on_progress is not None:
                on_progress(done, total)
        if not total:
            Tape.parse(b"", name=name)  # raises the usual error for an empty file


def _parse(block: bytes, *, name: str, lines_before: int, header: TapeHeader) -> Tape:
    if not lines_before:
        return Tape.parse(block, name=name)
    first = header.encode()
    try:
        return Tape.parse(first + block, name=name)
    except ConfigurationError:
        # parse again behind as many lines as there were before, so that the error names the right line
        return Tape.parse(first + b"\n" * (lines_before - 1) + block, name=name)


def _open_seekable(path: str | os.PathLike[str]) -> BinaryIO:
    """Open the file, or a temporary copy of a pipe, because a tape may have to be read twice."""
    file = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        copy = tempfile.TemporaryFile()  # noqa: SIM115
        shutil.copyfileobj(file, copy)
        return copy


def _refuse_other_files(file: BinaryIO, *, name: str) -> None:
    """Raise for a file that does not begin with JSON, before a huge file is searched for the end of its first line."""
    file.seek(0)
    beginning = file.read(_BLOCK_BYTES)
    text = beginning.lstrip()
    if text and not text.startswith(b"{"):
        line = beginning[: len(beginning) - len(text)].count(b"\n") + 1
        raise ConfigurationError(
            f"{name} is not a tape, line {line}: every line of a tape is a JSON object. `claude-transport record` writes tapes.",
            option="path",
        )


def _blocks(file: BinaryIO, *, name: str) -> Iterator[bytes]:
    """Yield the file from its beginning, in blocks of whole lines."""
    file.seek(0)
    lines = 1
    while block := file.read(_BLOCK_BYTES):
        if not block.endswith(b"\n"):
            block += file.readline(_MAX_LINE_BYTES)
            if not block.endswith(b"\n") and file.read(1):
                lines += block.count(b"\n")
                raise ConfigurationError(f"{name} is not a tape, line {lines}: it is longer than {_MAX_LINE_BYTES} bytes", option="path")
        lines += block.count(b"\n")
        yield block


def _without(withdrawn: frozenset[int], records: Iterator[tuple[int, TapeRecord]]) -> Iterator[tuple[int, TapeRecord]]:
    return (pair for pair in records if pair[0] not in withdrawn) if withdrawn else records


def _withdrawn_of(records: Iterator[tuple[int, TapeRecord]]) -> frozenset[int]:
    """Return the numbers of the withdrawn lines, and of the notes that withdraw them."""
    # records whose time is their number: `protocol/tape.py` alone decides what is withdrawn
    relevant = [
        (number, record) for number, record in records if record.dir == "in" or (record.dir == "note" and _WITHDRAWAL in record.line)
    ]
    stand_ins = [TapeRecord(number, record.dir, record.line if record.dir == "note" else b"") for number, record in relevant]
    kept = {record.t for record in without_withdrawn(stand_ins)}
    return frozenset(number for number, _ in relevant if number not in kept)


Side = Literal["host", "claude"]

_PERMISSION = "can_use_tool"


class ControlLane:
    """Reads the control requests of both sides, with their answers and durations.

    `on_denied` is called with the id of a tool call that the host does not allow.
    """

    def __init__(self, scene: TurnScene, *, on_denied: Callable[[str | None], object]) -> None:
        self._scene = scene
        self._on_denied = on_denied
        self.host: CallBook = CallBook("host")
        self.claude: CallBook = CallBook("claude")
        self._asked_for: dict[int, str | None] = {}  # by the event of a permission question: the id of the tool call

    @property
    def requests(self) -> tuple[CallStats, ...]:
        """The requests of both sides."""
        return (*self.host.stats(), *self.claude.stats())

    def _book(self, side: Side) -> CallBook:
        return self.host if side == "host" else self.claude

    def request(self, message: ControlRequest, *, by: Side) -> None:
        """Read a request from the side `by`."""
        scene, body = self._scene, message.request
        name = body.subtype or "(no subtype)"
        about, details = _about(body)
        event = scene.add(
            "control",
            "request" if by == "host" else "question",
            f"{name} {about}".strip(),
            gist=details,
            status="open",
            sections=scene.text("request", json_text(body.to_dict())),
        )
        if isinstance(body, CanUseTool):
            self._asked_for[event] = body.tool_use_id
        self._book(by).began(message.request_id, name=name, event=event, t=scene.t)
        if by == "host" and name == "initialize" and body.to_dict().get("jsonSchema") is not None:
            scene.turns.expect_structure()

    def response(self, message: ControlResponse, *, by: Side, kept: tuple[Section, ...] = ()) -> None:
        """Read an answer of the side `by`. `kept` replaces the text of an answer that is not whole on the tape."""
        scene = self._scene
        status = self._status(message, by)
        call = self._book("claude" if by == "host" else "host").ended(message.request_id, t=scene.t, status=status)
        shown = kept or scene.text("response", json_text(message.response.to_dict()))
        if call is None:
            level: Level = "warning" if status == "error" else "minor"
            title = f"Answer of {by} to nothing that is open"
            scene.add("control", "answer", title, gist=message.error or "", level=level, sections=shown)
            return
        scene.close(call, status, shown)
        asked_for = self._asked_for.pop(call.event, None)
        if status == "error":
            scene.worsen(call.event, "warning", f"{call.name} failed: {gist_of(message.error or 'no reason given')}")
        elif status == "denied":
            self._on_denied(asked_for)

    def _status(self, message: ControlResponse, by: Side) -> str:
        if not message.ok:
            return "error"
        behavior = message.payload.get("behavior")
        if by == "host" and isinstance(behavior, str):
            call = self.claude.find(message.request_id)
            if call is not None and call.name == _PERMISSION:
                return {"allow": "allowed", "deny": "denied"}.get(behavior, "ok")
        return "ok"

    def cancel(self, message: ControlCancelRequest, *, by: Side) -> None:
        """Read a withdrawal: the side `by` does not want an answer any more."""
        scene = self._scene
        call = self._book(by).ended(message.request_id, t=scene.t, status="cancelled")
        if call is None:
            scene.add("control", "cancel", f"{by} withdraws what is not open", level="minor")
            return
        self._asked_for.pop(call.event, None)
        scene.close(call, "cancelled", ())

    def ended(self) -> None:
        """Note the end of the tape: open requests have no answer."""
        for side in (self.host, self.claude):
            for call in side.still_open():
                self._scene.worsen(call.event, "warning", f"{call.name} has no answer")


def _about(body: InboundBody) -> tuple[str, str]:
    """Return what follows the subtype in the title, and one line about the rest."""
    match body:
        case CanUseTool():
            return body.tool_name, gist_of_input(body.input)
        case HookCallback():
            return body.event, str(body.input.get("tool_name") or body.callback_id)
        case McpMessage():
            params = body.message.get("params")
            tool = params.get("name") if isinstance(params, dict) else None
            return body.server_name, " ".join(str(word) for word in (body.message.get("method") or "answer", tool) if word)
        case Elicitation():
            return body.mcp_server_name, body.message
        case _:
            fields: dict[str, Any] = {key: value for key, value in body.to_dict().items() if key != "subtype"}
            return "", gist_of_input(fields)


_MINOR: Final = frozenset(
    {
        *("keep_alive", "tool_progress", "transcript_mirror", "command_lifecycle", "status", "session_state_changed", "thinking_tokens"),
        *("task_progress", "task_updated", "background_tasks_changed", "control_request_progress", "commands_changed", "hook_progress"),
        *("session_title_changed", "update_environment_variables"),
    }
)
_ENVELOPE: Final = frozenset({"type", "subtype", "uuid", "session_id"})
_WORDS: Final = {INPUT_ENDED: "The host ended its input", OUTPUT_ENDED: "The output ended", CLOSED: "The host closed the transport"}
_MAX_STDERR_LINES: Final = 200
"""Lines of standard error in one event, when nothing else happens between them."""


class SessionLane:
    """Reads what the CLI reports about itself, what its process prints, and the notes of the recorder."""

    def __init__(self, scene: TurnScene) -> None:
        self._scene = scene
        self.agent: str = "claude"
        """The name of the agent, for texts."""
        self._hooks = CallBook("claude")
        self._session_ids: dict[str, None] = {}
        self._last_init = ""
        self._last_failed = False  # the last result was an error: exit code 1 is expected then
        self._closed = False
        self._stderr: tuple[int, list[str]] | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.retries: int = 0
        self.stderr_lines: int = 0

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The ids of the sessions on the tape, in order."""
        return tuple(self._session_ids)

    def message(self, message: Message) -> None:
        """Read a message of the CLI that belongs to no other lane."""
        match message:
            case InitMessage():
                self._init(message)
            case ResultMessage():
                self._result(message)
            case HookStarted():
                event = self._add(message, f"Hook {message.hook_name}", status="open")
                self._hooks.began(message.hook_id, name=message.hook_name, event=event, t=self._scene.t)
            case HookResponse():
                self._hook_ended(message)
            case DecodeFailure() | OversizedMessage():
                self.unreadable(message, by=self.agent)
            case _:
                title, gist, level = _told(message)
                if isinstance(message, APIRetryMessage):
                    self.retries += 1
                self._add(message, title, gist=gist, level=level)

    def _add(self, message: Message, title: str, *, gist: str = "", level: Level = "normal", **more: Any) -> int:
        wire = message.to_dict()
        kind = str(wire.get("subtype") or wire.get("type") or message.type)
        return self._scene.add(
            "session", kind, title, gist=gist, level=level, sections=self._scene.text("message", json_text(wire)), **more
        )

    def _init(self, message: InitMessage) -> None:
        if message.session_id:
            self._session_ids[gist_of(message.session_id)] = None
        said = f"{message.model}, {message.permission_mode}, {len(message.tools)} tools, session {message.session_id or 'without an id'}"
        level: Level = "minor" if said == self._last_init else "normal"  # the CLI repeats it in every turn [10a]
        self._last_init = said
        self._add(message, "Session", gist=said, level=level)

    def _result(self, message: ResultMessage) -> None:
        """Read a result. It ends the last known turn, unless it repeats an earlier result."""
        turns = self._scene.turns.turns
        repeated = message.prompt_uuids is None  # a repetition of an earlier result
        turn = None if repeated or not turns else turns[-1]
        outcome = message.outcome
        self._last_failed = message.is_error is True
        said = message.result or " ".join(message.errors)
        sections = (*self._scene.text("text", said), *self._scene.text("message", json_text(message.to_dict())))
        self._scene.add(
            "session",
            "result",
            "Result",
            gist=said if outcome.ok else f"{outcome.text} {said}",
            level="normal" if outcome.ok else "error",
            status=outcome.code,
            turn=None if turn is None else turn.number,
            tokens=None if turn is None else turn.tokens,
            cost_usd=None if turn is None else turn.cost_usd,
            sections=sections,
        )

    def _hook_ended(self, message: HookResponse) -> None:
        failed = message.exit_code not in (None, 0)
        call = self._hooks.ended(message.hook_id, t=self._scene.t, status="error" if failed else "ok")
        if call is None:
            self._add(message, f"Hook {message.hook_name}", gist=message.output, level="warning" if failed else "normal")
            return
        scene = self._scene
        scene.close(call, message.outcome or ("error" if failed else "ok"), scene.text("answer", json_text(message.to_dict())))
        if failed:
            scene.worsen(call.event, "warning", f"hook {call.name} failed with exit code {message.exit_code}")

    def unreadable(self, message: DecodeFailure | OversizedMessage, *, by: str) -> None:
        """Read a line of the side `by` that holds no message."""
        text = message.raw.decode("utf-8", "replace")
        if isinstance(message, OversizedMessage):
            title, why = "A line too long to be read", f"{message.size} bytes"
        else:
            title, why = f"A line of {by} that holds no message", f"{message.kind}: {message.error}"
        level: Level = "minor" if isinstance(message, DecodeFailure) and message.kind == "blank" else "warning"
        self._scene.add("session", "unreadable", title, gist=why, level=level, sections=self._scene.text("line", text))

    def from_host(self, message: Message) -> None:
        """Read a line of the host that is neither a prompt nor part of the control protocol."""
        if isinstance(message, DecodeFailure | OversizedMessage):
            self.unreadable(message, by="the host")
            return
        level: Level = "minor" if message.type in _MINOR else "normal"
        self._add(message, f"From the host: {message.type or 'a message without a type'}", level=level)

    def stderr(self, line: bytes) -> None:
        """Read a line of standard error. Consecutive lines form one event."""
        self.stderr_lines += 1
        text = line.decode("utf-8", "replace")
        if self._stderr is None or len(self._stderr[1]) >= _MAX_STDERR_LINES:
            event = self._scene.add("session", "stderr", "Standard error", gist=text)
            self._stderr = (event, [])
        event, lines = self._stderr
        lines.append(text)
        self._scene.shelf.change(event, sections=self._scene.text("lines", "\n".join(lines)))

    def between(self) -> None:
        """Begin a new event for the next line of standard error, because something else happened."""
        self._stderr = None

    def note(self, line: bytes) -> None:
        """Read a note of the recorder."""
        ended = read_exit_note(line)
        if ended is not None:
            self._exit(*ended)
            return
        if line == CLOSED:
            self._closed = True
        if line in _WORDS:
            self._scene.add("session", "note", _WORDS[line])
            return
        text = line.decode("utf-8", "replace")
        failure = _failure_of(line)
        if failure is not None:
            where, error = str(failure.get("failure", "")), str(failure.get("error", ""))
            said = f"{error}: {failure.get('message', '')} [{failure.get('code', '')}]"
            self._scene.add("session", "failure", f"{where} failed", gist=said, level="error", sections=self._scene.text("note", text))
            return
        self._scene.add("session", "note", "Note", gist=text, level="minor", sections=self._scene.text("note", text))

    def _exit(self, exit_code: int | None, signal: int | None) -> None:
        self.exit_code, self.signal = exit_code, signal
        how = f"with exit code {exit_code}" if signal is None else f"by signal {signal}"
        expected = exit_code == 0 or (exit_code == 1 and self._last_failed) or (self._closed and signal is not None)
        level: Level = "normal" if expected else "error"
        self._scene.add("session", "exit", f"The process ended {how}", level=level)


def _failure_of(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b'{"failure"'):
        return None
    try:
        value, _ = parse_json(line)
    except JSONTextError:
        return None
    return value if isinstance(value, dict) else None


def _told(message: Message) -> tuple[str, str, Level]:
    """Return the title, the one-line text and the level of a report of the CLI."""
    match message:
        case APIRetryMessage():
            status = message.error_status or message.error or "no answer"
            wait = f"{message.attempt} of {message.max_retries}, in {as_float(message.retry_delay_ms) / 1000:.1f} s"
            return "API retry", f"{status}: {wait}", "warning"
        case ModelFallback():
            return "Another model takes over", f"{message.original_model} → {message.fallback_model}", "warning"
        case ModelRefusalNoFallback():
            return "The model refused", message.content, "warning"
        case CompactBoundary():
            about = message.compact_metadata
            return "The conversation was shortened", f"{about.pre_tokens:,} → {about.post_tokens or 0:,} tokens", "normal"
        case ConversationReset():
            return "A new conversation", message.new_conversation_id, "normal"
        case RateLimitEvent():
            info = message.rate_limit_info
            good = info.status in ("", "allowed")
            return "Rate limit", f"{info.status} {info.rate_limit_type or ''}".strip(), "minor" if good else "warning"
        case Informational():
            level: Level = "warning" if message.level in ("warning", "error") else "normal"
            return "Information", message.content, level
        case StatusMessage():
            return "Status", message.status or message.permission_mode or "", "minor"
        case CommandLifecycle():
            return f"Prompt {message.state}", message.command_uuid, "minor"
        case ControlRequestProgress():
            return "A request is still at work", message.status, "minor"
        case UnknownMessage():
            return "A message of an unknown type", message.wire_type, "normal"
        case _:
            kind = message.subtype if isinstance(message, SystemMessage) else message.type
            rest = {key: value for key, value in message.to_dict().items() if key not in _ENVELOPE}
            return kind.replace("_", " ").capitalize(), json_text(rest) if rest else "", "minor" if kind in _MINOR else "normal"
