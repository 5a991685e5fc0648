# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.agents.scene import CallStats as CallStats
from claude_transport.agents.scene import Event as Event
from claude_transport.agents.scene import Problem as Problem
from claude_transport.agents.scene import Section as Section
from claude_transport.agents.scene import TurnSummary as TurnSummary
from claude_transport.inspection.page import render_page as render_page
from claude_transport.inspection.summary import TapeSummary as TapeSummary
from claude_transport.inspection.timeline import Timeline as Timeline
from claude_transport.inspection.timeline import read_timeline as read_timeline
from claude_transport.inspection.timeline import summarize as summarize

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
