"""The table of what a gateway refuses, on the page of the link protocol: `python docs/generate_refusals.py` writes it.

What stands between the marks is written; all else on the page is left as it is. The page is committed, so that it can be read without
building anything; a test holds that its table is what the gateway says.
"""

from __future__ import annotations

import re
from pathlib import Path

from claude_transport.errors import ConnectionLost
from claude_transport.link.machine import Refusal
from claude_transport.serving.turned_away import REASONS

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "link-protocol.md"
MARKED = re.compile(r"(?P<begin><!-- Written by docs/generate_refusals.py [^>]*-->\n).*?(?P<end><!-- end -->)", re.DOTALL)
HEAD = "| `code` | HTTP | meaning | raised |\n|---|---|---|---|\n"

SESSION_IS_OVER = frozenset({"line_too_long", "session_bytes", "stalled"})
"""What is found out when the client is in already: its session ends, and it gets no refusal but a goodbye with this code."""


def row(code: str) -> str:
    """What is known of a refusal: its status in HTTP, what it means, and what the client raises."""
    status, meaning = REASONS[code]
    raised = (ConnectionLost if code in SESSION_IS_OVER else type(Refusal(code=code).to_error())).__name__
    return f"| `{code}` | {status} | {meaning} | `{raised}` |\n"


def render(page: str) -> str:
    """`page` with its table written anew.

    Raises:
        ValueError: it has no place for the table.
    """
    table = "".join(row(code) for code in REASONS)
    written, count = MARKED.subn(lambda found: found["begin"] + "\n" + HEAD + table + "\n" + found["end"], page)
    if count != 1:
        raise ValueError("the page has no place, or several, for the table of refusals")
    return written


def main() -> None:
    """Write the table to its place."""
    PAGE.write_text(render(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
