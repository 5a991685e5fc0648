"""The table of the how-to "Move from the official SDK", from the rows that the translation works by: `python docs/generate_moving.py`.

The page is committed, so that it can be read without building anything; a test holds that it shows every row.
"""

from __future__ import annotations

import re
from pathlib import Path

from claude_transport.interop.agent_sdk.translation import OPTION_ROWS

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "how-to" / "move-from-the-agent-sdk.md"
HEAD = "| official option | here | what differs |\n| --- | --- | --- |\n"


def render(page: str) -> str:
    """`page` with its table written anew."""
    rows = "".join(f"| `{row.option}` | {row.here} | {row.note} |\n" for row in OPTION_ROWS)
    return re.sub(rf"{re.escape(HEAD)}(\|.*\n)*", lambda _old: HEAD + rows, page)


def main() -> None:
    """Write the table to its place."""
    PAGE.write_text(render(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
