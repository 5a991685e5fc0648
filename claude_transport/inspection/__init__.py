"""What a tape says, in figures and in pictures.

Figures: `summarize` gives a `TapeSummary`, with one `TurnSummary` for each turn, `CallStats` for each kind of call, and each `Problem`
    found.
Pictures: `read_timeline` gives a `Timeline`: each `Event` in order, in `Section`s. `render_page` makes an HTML page of it.

Nothing here knows an event loop. The program's `inspect` shows the same on a terminal.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "inspection.page": "render_page",
        "agents.scene": "CallStats Event Problem Section TurnSummary",
        "inspection.summary": "TapeSummary",
        "inspection.timeline": "Timeline read_timeline summarize",
    },
)
