"""What a tape says, in figures and in pictures: `summarize()` and `read_timeline()`, and the page that shows a timeline.

```text
record_source ──records──> timeline ──> speech · control_lane · session_lane ──events──> event_shelf ──> Timeline ──> page
                                            turn_book · call_book · streamed: what belongs together
```

Nothing here knows an event loop. The program's `inspect` shows the same figures on a terminal.
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
