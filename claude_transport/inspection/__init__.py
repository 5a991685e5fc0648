"""Reads a tape: figures with `summarize()`, events with `read_timeline()`, and a page of HTML that shows both with `render_page()`.

* `timeline`: reads the records and the lanes of control and session. `speech`: reads the lanes of user, assistant and tools.
* `scene`: collects events, calls and turns. `summary`: the figures.
* `page`: the page, with its script and style in `assets`.

Nothing here uses an event loop. The program's `inspect` shows the same figures on a terminal.
"""

from __future__ import annotations

from claude_transport.inspection.page import render_page
from claude_transport.inspection.scene import Event, Section
from claude_transport.inspection.summary import CallStats, Problem, TapeSummary, TurnSummary
from claude_transport.inspection.timeline import Timeline, read_timeline, summarize

__all__ = [
    "CallStats",
    "Event",
    "Problem",
    "Section",
    "TapeSummary",
    "Timeline",
    "TurnSummary",
    "read_timeline",
    "render_page",
    "summarize",
]
