"""`render_page()`: shows a timeline as one page of HTML, which needs no network, no other file, and no trust in the tape.

Text from the tape is escaped in the markup, and the JSON for the script has no `<` in it. The page's policy (CSP) admits one script and one
style, by their hashes, and no connections. `assets/page.js` draws the events; the figures above them need no script.

`LiveTimeline` reads the lines of a session while it runs, with the lanes of `timeline.py`, and tells its page what has changed.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Final, TypeAlias

import msgspec

from claude_transport.agents.scene import LANES, CallStats, Event, EventStore, TurnSummary
from claude_transport.inspection.summary import TapeSummary
from claude_transport.inspection.timeline import Reading, Timeline
from claude_transport.inspection.wording import bytes_text, count_text, dollars_text, plural, seconds_text
from claude_transport.protocol.observation import ObservedLine
from claude_transport.protocol.tape import TapeHeader
from claude_transport.protocol.token_counts import TokenCounts

_LEVELS: Final = ("minor", "normal", "warning", "error")
_PLACES: Final = re.compile(r"\{\{(\w+)\}\}")

# In JSON these characters occur only inside strings, where an escape means the same. Without them no text can end the script element, begin
# a comment, or end a line of JavaScript.
_HARMLESS: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)

_ROWS_AT_A_TIME: Final = 500

MAX_LIVE_EVENTS = 8_000
"""Events of a live page: half from the beginning, half from the end."""

MAX_LIVE_CHARS = 4_000_000
"""Characters of text of a live page, about."""


def render_page(timeline: Timeline, *, title: str) -> Iterator[str]:
    """Yield the pieces of one HTML page that shows `timeline`: its figures, and its events in rows.

    Write the pieces to a file in UTF-8, in order. The page needs no network and no other file. Text from the tape is escaped, so the tape
    need not be trusted. `title` is the title of the page, usually the name of the tape.
    """
    style, script = _asset("page.css"), _asset("page.js")
    fills = {
        "title": escape(title),
        "policy": _policy(style=style, script=script),
        "style": style,
        "script": script,
        "verdict": _verdict(timeline.summary),
        "summary": _summary(timeline),
        "live": "",
        "footer": _FOOTER,
    }
    yield from _filled(fills, _data(timeline))


_FOOTER: Final = "Made by <code>claude-transport inspect</code> from a tape; nothing is loaded from anywhere else."
_LIVE_FOOTER: Final = "A running session, as its gateway shows it. Nothing is loaded from anywhere else, and nothing can be written here."

_LIVE: Final = """<p class="notice" id="link" role="status">Connecting …</p>
<form id="door" hidden><label>Token of an observer <input id="token" type="password" autocomplete="off" spellcheck="false"></label>
<button type="submit" class="quiet">Watch</button></form>"""


@cache
def render_live_page() -> str:
    """Return the HTML page that follows a running session of a gateway. It is the same for every session, and holds nothing of one.

    Its script asks the gateway for the changes at `timeline`, below the address of the page. The token of the observer comes from behind
    the `#` of that address, which browsers do not send.
    """
    style, script = _asset("page.css"), _asset("page.js")
    fills = {
        "title": "session",
        "policy": live_policy(),
        "style": style,
        "script": script,
        "verdict": "",
        "summary": "",
        "live": _LIVE,
        "footer": _LIVE_FOOTER,
    }
    return "".join(_filled(fills, [_harmless({"live": True, "seconds": 0, "turns": [], "count": 0, "events": []})]))


@cache
def live_policy() -> str:
    """Return the policy (CSP) of the live page: its script, its style, and connections to its own gateway only."""
    return _policy(style=_asset("page.css"), script=_asset("page.js")) + "; connect-src 'self'"


def live_changes(summary: TapeSummary, events: Sequence[Event], *, count: int, revision: int, ended: bool) -> bytes:
    """Return what the script of a live page needs to show the figures and these events, as one line of JSON.

    The markup of the figures is escaped as on every page.
    """
    verdict = _verdict(summary) if ended else '<span class="badge live">live</span>'
    return msgspec.json.encode(
        {
            "revision": revision,
            "ended": ended,
            "seconds": summary.seconds,
            "turns": _turns(summary),
            "count": count,
            "verdict": verdict,
            "summary": _summary(Timeline(summary=summary), is_live=True),
            "events": [_row(event) for event in events],
        }
    )


def _filled(fills: Mapping[str, str], data: Iterable[str]) -> Iterator[str]:
    pieces = _PLACES.split(_asset("page.html"))  # text, name, text, name, …, text
    for position, piece in enumerate(pieces):
        if position % 2 == 0:
            yield piece
        elif piece == "data":
            yield from data
        else:
            yield fills[piece]


def _policy(*, style: str, script: str) -> str:
    hashes = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for name, text in (("style", style), ("script", script))
    }
    return (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _data(timeline: Timeline) -> Iterator[str]:
    """Yield the events that the script draws, as JSON."""
    summary = timeline.summary
    head = _harmless({"seconds": summary.seconds, "turns": _turns(summary), "count": timeline.event_count})
    yield head.removesuffix("}") + ',"events":['
    for start in range(0, len(timeline.events), _ROWS_AT_A_TIME):
        rows = _harmless([_row(event) for event in timeline.events[start : start + _ROWS_AT_A_TIME]])
        yield ("," if start else "") + rows[1:-1]
    yield "]}"


def _turns(summary: TapeSummary) -> list[list[Any]]:
    return [[turn.number, round(turn.t, 6), round(turn.seconds, 6), turn.outcome == "ok"] for turn in summary.turns]


def _row(event: Event) -> list[Any]:
    """Return the fields of an event in the order in which page.js names them."""
    tokens = event.tokens
    return [
        event.id,
        event.record,
        round(event.t, 6),
        LANES.index(event.lane),
        event.kind,
        event.title,
        event.gist,
        _LEVELS.index(event.level),
        event.status,
        None if event.seconds is None else round(event.seconds, 6),
        None if event.waited is None else round(event.waited, 6),
        event.turn,
        event.nested,
        event.agent,
        event.parent,
        None if tokens is None else _read(tokens),
        None if tokens is None else tokens.output_tokens,
        event.cost_usd,
        event.pieces,
        [[section.label, section.text, section.chars] for section in event.sections],
    ]


def _harmless(value: Any) -> str:
    data = msgspec.json.encode(value)
    for dangerous, escaped in _HARMLESS:
        data = data.replace(dangerous, escaped)
    return data.decode()


@cache
def _asset(name: str) -> str:
    return (files("claude_transport.inspection") / "assets" / name).read_text("utf-8")


_MAX_ROWS: Final = 500
"""Rows of a table. More turns are in the timeline only."""

_Cells: TypeAlias = list[tuple[str, str]]
"""A row of a table: the CSS class and the markup of each cell."""

_ASKED_BY: Final = {"model": "the model", "host": "the host"}


def _verdict(summary: TapeSummary) -> str:
    """Return the badge that says how the session ended."""
    failed = sum(turn.outcome != "ok" for turn in summary.turns)
    if not summary.turns:
        return '<span class="badge">no turns</span>'
    if summary.ok:
        return '<span class="badge good">all turns ok</span>'
    return (
        f'<span class="badge error">{plural(failed, "turn")} failed</span>' if failed else '<span class="badge warning">failed exit</span>'
    )


def _summary(timeline: Timeline, *, is_live: bool = False) -> str:
    """Return the figures above the timeline: cards, facts, notes and tables."""
    summary = timeline.summary
    parts = ['<dl class="cards">', *_cards(summary), "</dl>", f'<p class="facts">{_facts(summary, is_live=is_live)}</p>']
    parts += [f'<p class="notice">{escape(note)}</p>' for note in _notes(timeline)]
    parts += ['<div class="folds">', *_folds(summary), "</div>", '<div class="folds more">', *_more_folds(summary), "</div>"]
    return "\n".join(parts)


def _cards(summary: TapeSummary) -> Iterator[str]:
    tokens = summary.tokens
    failed = sum(turn.outcome != "ok" for turn in summary.turns)
    yield _card("Duration", seconds_text(summary.seconds), plural(summary.records, "record"))
    yield _card("Turns", count_text(len(summary.turns)), f"{failed} failed" if failed else "", "error" if failed else "")
    errors = summary.tool_errors
    yield _card("Tool calls", count_text(summary.tool_calls), f"{errors} failed or denied" if errors else "", "warning" if errors else "")
    yield _card("Control requests", count_text(summary.control_requests), "")
    yield _card("Tokens in", count_text(_read(tokens)), f"{count_text(tokens.cache_read_input_tokens)} from the cache")
    yield _card("Tokens out", count_text(tokens.output_tokens), plural(summary.api_messages, "API message"))
    yield _card("Cost", dollars_text(summary.cost_usd), "")
    serious = summary.error_count
    level = "error" if serious else "warning" if summary.problem_count else ""
    yield _card("Problems", count_text(summary.problem_count), plural(serious, "error") if serious else "", level)


def _card(name: str, value: str, more: str, level: str = "") -> str:
    return f'<div class="card {level}"><dt>{name}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>'


def _facts(summary: TapeSummary, *, is_live: bool) -> str:
    kept = "shown: the owner of the session allows it" if is_live else "perhaps on it: the tape does not say that they were removed"
    facts = [
        ("began" if is_live else "recorded", "" if summary.created_at is None else f"{summary.created_at:%Y-%m-%d %H:%M:%S} UTC"),
        (summary.agent, summary.cli_version or ""),
        ("model", ", ".join(summary.models)),
        (
            "session",
            ", ".join(summary.session_ids[:3]) + (f" and {len(summary.session_ids) - 3} more" if len(summary.session_ids) > 3 else ""),
        ),
        (f"to {summary.agent}", bytes_text(summary.bytes_in)),
        (f"from {summary.agent}", bytes_text(summary.bytes_out)),
        (
            "exit",
            f"signal {summary.signal}" if summary.signal is not None else "" if summary.exit_code is None else f"code {summary.exit_code}",
        ),
        ("secrets", ("removed" if is_live else "removed while recording") if summary.scrubbed else kept),
    ]
    return " · ".join(f"{name} <b>{escape(value)}</b>" for name, value in facts if value)


def _notes(timeline: Timeline) -> Iterator[str]:
    """Yield notes about what this page does not show."""
    if timeline.summary.is_torn:
        yield "The recording was interrupted in the middle of a line. That line is left out."
    missing = timeline.event_count - len(timeline.events)
    if missing:
        yield (
            f"The tape has {count_text(timeline.event_count)} events. The first and the last "
            f"{count_text(len(timeline.events) // 2)} are on this page; the {count_text(missing)} between them are left out. "
            "All of them are in the figures."
        )
    cut = sum(section.is_cut for event in timeline.events for section in event.sections)
    if cut:
        yield (
            f"{plural(cut, 'text')} longer than {count_text(timeline.text_limit)} characters, or cut on the tape already, "
            + ("is" if cut == 1 else "are")
            + " not whole on this page; each says how long it is."
        )


def _folds(summary: TapeSummary) -> Iterator[str]:
    """Yield the tables of problems and turns."""
    problems = [
        [("number", f"{problem.t:.3f}"), ("wide", _linked(problem.text, problem.event, "bad" if problem.level == "error" else "warn"))]
        for problem in summary.problems
    ]
    if problems:
        yield _fold("Problems", summary.problem_count, ("At (s)", "What"), problems, is_open=summary.problem_count <= 8)
    turns = [_turn_row(turn) for turn in summary.turns[:_MAX_ROWS]]
    if turns:
        columns = ["#", "Prompt", "Outcome", "Took", "First words", "Tools", "Tokens in", "out", "Cost"]
        yield _fold("Turns", len(summary.turns), columns, turns, is_open=len(turns) <= 8)


def _more_folds(summary: TapeSummary) -> Iterator[str]:
    """Yield the tables of tools, requests, models and lines."""
    tools = [_call_row(stats) for stats in summary.tools]
    if tools:
        yield _fold("Tools", summary.tool_calls, ["Tool", "Calls", "Failed", "Denied", "Open", "Total", "Mean", "Longest"], tools)
    requests = [_request_row(stats) for stats in summary.requests]
    if requests:
        columns = ["Request", "Of", "Number", "Failed", "Denied", "Withdrawn", "Open", "Mean", "Longest"]
        yield _fold("Control requests", summary.control_requests, columns, requests)
    models = [
        [("wide", escape(name)), *_numbers(_read(used.tokens), used.tokens.output_tokens), ("number", dollars_text(used.cost_usd))]
        for name, used in summary.models.items()
    ]
    if models:
        yield _fold("Models", len(models), ("Model", "Tokens in", "out", "Cost"), models)
    counted = [
        [("wide", escape(kind or "(no type)")), ("", way), ("number", count_text(number))]
        for way, counts in ((f"to {summary.agent}", summary.messages_in), (f"from {summary.agent}", summary.messages_out))
        for kind, number in sorted(counts.items(), key=lambda pair: -pair[1])
    ]
    lines = sum(summary.messages_in.values()) + sum(summary.messages_out.values())
    yield _fold("Lines", lines, ("Type", "Way", "Number"), counted)


def _turn_row(turn: TurnSummary) -> _Cells:
    prompt = turn.prompt or ("(no prompt: a task woke the session)" if not turn.prompts else "(an empty prompt)")
    more = f" <span class='nil'>and {turn.prompts - 1} more</span>" if turn.prompts > 1 else ""
    style = "fine" if turn.outcome == "ok" else "bad"
    failed = f" <span class='warn'>({turn.tool_errors})</span>" if turn.tool_errors else ""
    return [
        ("number", str(turn.number)),
        ("wide", escape(prompt) + more),
        ("", f'<span class="{style}" title="{escape(turn.detail)}">{escape(turn.outcome)}</span>'),
        ("number", seconds_text(turn.seconds)),
        ("number", "" if turn.first_output is None else seconds_text(turn.first_output)),
        ("number", count_text(turn.tool_calls) + failed),
        *_numbers(_read(turn.tokens), turn.tokens.output_tokens),
        ("number", dollars_text(turn.cost_usd)),
    ]


def _call_row(stats: CallStats) -> _Cells:
    counts = _numbers(stats.calls, stats.errors, stats.denied, stats.open)
    return [("wide", escape(stats.name or "(no name)")), *counts, ("number", seconds_text(stats.seconds)), *_mean_and_longest(stats)]


def _request_row(stats: CallStats) -> _Cells:
    counts = _numbers(stats.calls, stats.errors, stats.denied, stats.cancelled, stats.open)
    return [("wide", escape(stats.name)), ("", _ASKED_BY.get(stats.asked_by, stats.asked_by)), *counts, *_mean_and_longest(stats)]


def _mean_and_longest(stats: CallStats) -> _Cells:
    ended = stats.calls - stats.open
    return [("number", seconds_text(stats.seconds / ended) if ended else ""), ("number", seconds_text(stats.longest) if ended else "")]


def _numbers(*numbers: int) -> _Cells:
    return [("number", count_text(number) if number else '<span class="nil">0</span>') for number in numbers]


def _linked(text: str, event: int | None, style: str) -> str:
    shown = f'<span class="{style}">{escape(text)}</span>'
    return shown if event is None else f'<a href="#event-{event}">{shown}</a>'


def _fold(title: str, count: int, columns: Sequence[str], rows: Sequence[_Cells], *, is_open: bool = False) -> str:
    """Return a table that can be folded, with at most `_MAX_ROWS` rows."""
    styles = [style for style, _ in rows[0]] if rows else [""] * len(columns)
    head = "".join(f'<th class="{style if style == "number" else ""}">{name}</th>' for name, style in zip(columns, styles, strict=True))
    cells = ("".join(f'<td class="{style}">{markup}</td>' for style, markup in row) for row in rows[:_MAX_ROWS])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = f'<p class="facts">The first {count_text(_MAX_ROWS)} are shown.</p>' if len(rows) >= _MAX_ROWS else ""
    return (
        f"<details{' open' if is_open else ''}><summary>{title} <small>{count_text(count)}</small></summary>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div></details>'
    )


def _read(tokens: TokenCounts) -> int:
    return tokens.input_tokens + tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens


class LiveTimeline:
    """The timeline of a running session, in bounded memory. Each reading of lines makes a new `revision`.

    Args:
        cli_version: the version of the agent, if it is known.
        created_at: when the session began, in UTC.
        scrubbed: whether the lines are redacted.
    """

    def __init__(self, *, cli_version: str | None = None, created_at: dt.datetime | None = None, scrubbed: bool = True) -> None:
        self._header = TapeHeader(cli_version=cli_version, created_at=created_at, scrubbed=scrubbed)
        self._shelf = EventStore(max_events=MAX_LIVE_EVENTS, max_text_chars=MAX_LIVE_CHARS)
        self._shelf.on_change = self._note
        self._reading = Reading(self._shelf)
        self._changed: dict[int, int] = {}  # the revision of each event, the oldest change first
        self.ended: bool = False
        """True after `end()`."""
        self.revision: int = 0
        """Grows with each change; 0 before the first."""

    def read(self, lines: Iterable[ObservedLine]) -> None:
        """Read lines that follow those that were read."""
        self.revision += 1
        for line in lines:
            self._reading.read(line.position, line.record)

    def end(self) -> None:
        """Close what is open: the session has ended. Later calls do nothing."""
        if not self.ended:
            self.ended = True
            self.revision += 1
            self._reading.close()

    def changes(self, since: int) -> bytes:
        """Return what has changed behind revision `since`, as one line of JSON for the script of the page.

        It has all figures, and the events that were added or changed. For `since=0` these are all events.
        """
        ids: list[int] = []
        for event_id, revision in reversed(self._changed.items()):
            if revision <= since:
                break
            ids.append(event_id)
        events = [event for event_id in reversed(ids) if (event := self._shelf.get(event_id)) is not None]
        summary = self._reading.summary(self._header)
        return live_changes(summary, events, count=self._shelf.count, revision=self.revision, ended=self.ended)

    def _note(self, event_id: int) -> None:
        self._changed.pop(event_id, None)
        self._changed[event_id] = self.revision
        if len(self._changed) > 2 * MAX_LIVE_EVENTS:  # events that were left out of the shelf
            self._changed = {each: revision for each, revision in self._changed.items() if self._shelf.get(each) is not None}
