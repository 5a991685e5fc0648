"""`render_page()`: a timeline as one page of HTML that needs nothing else: no network, no other file, no trust in what is on the tape.

Whatever comes from the tape is data: in the markup it is escaped, and for the script it is JSON in which no `<` is left. The page's own
policy (CSP) lets exactly two pieces of code and style in, named by their hashes, and no connection out.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec

from claude_transport.inspection.event import LANES, Event
from claude_transport.inspection.page_summary import summary_html, verdict_html
from claude_transport.inspection.timeline import Timeline

__all__ = ["render_page"]

_LEVELS: Final = ("minor", "normal", "warning", "error")
_PLACES: Final = re.compile(r"\{\{(\w+)\}\}")

# JSON has no use for these but inside strings, where an escape means the same; without them no text can end the script it stands in,
# begin a comment there, or end a line of JavaScript.
_HARMLESS: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)

_ROWS_AT_A_TIME: Final = 500


def render_page(timeline: Timeline, *, title: str) -> Iterator[str]:
    """The page, piece by piece, to be written to a file as UTF-8; `title` is what it is called, usually the name of the tape."""
    style, script = _asset("page.css"), _asset("page.js")
    fills = {
        "title": escape(title),
        "policy": _policy(style=style, script=script),
        "style": style,
        "script": script,
        "verdict": verdict_html(timeline.summary),
        "summary": summary_html(timeline),
    }
    pieces = _PLACES.split(_asset("page.html"))  # text, name, text, name, …, text
    for position, piece in enumerate(pieces):
        if position % 2 == 0:
            yield piece
        elif piece == "data":
            yield from _data(timeline)
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
    """What the script draws, as JSON."""
    summary = timeline.summary
    turns = [[turn.number, round(turn.t, 6), round(turn.seconds, 6), turn.outcome == "ok"] for turn in summary.turns]
    head = _harmless({"seconds": summary.seconds, "turns": turns, "count": timeline.event_count})
    yield head.removesuffix("}") + ',"events":['
    for start in range(0, len(timeline.events), _ROWS_AT_A_TIME):
        rows = _harmless([_row(event) for event in timeline.events[start : start + _ROWS_AT_A_TIME]])
        yield ("," if start else "") + rows[1:-1]
    yield "]}"


def _row(event: Event) -> list[Any]:
    """The fields in the order in which page.js names them."""
    tokens = event.tokens
    read = None if tokens is None else tokens.input_tokens + tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens
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
        read,
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
