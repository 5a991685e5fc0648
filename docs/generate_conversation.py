"""The states of a prompt, drawn from the table of transitions: `python docs/generate_conversation.py` writes the picture and the table.

Both are committed, so they can be read without building anything. A test compares them with the table in the source.
"""

from __future__ import annotations

from pathlib import Path

from claude_transport.protocol.conversation import TURN_TRANSITIONS, TurnEvent, TurnState

__all__ = ["PICTURE", "TABLE", "main", "render_picture", "render_table"]

PICTURE = Path(__file__).parent / "explanation" / "turn-states.svg"
TABLE = Path(__file__).parent / "explanation" / "turn-states.txt"

WIDTH, HEIGHT = 760, 400
BOX_WIDTH, BOX_HEIGHT = 116, 44
GRID = {"left": 110, "right": 650, "top": 90, "bottom": 320}

Point = tuple[float, float]


def moving_states() -> list[TurnState]:
    """Return the states that a prompt can leave, in the order of their definition."""
    return [state for state in TurnState if any(before is state for before, _ in TURN_TRANSITIONS)]


def ends() -> list[TurnState]:
    """Return the final states."""
    return [state for state in TurnState if state not in moving_states()]


def places() -> dict[TurnState, Point]:
    """Return the position of each state: those that can be left side by side above, the final ones below."""
    found: dict[TurnState, Point] = {}
    for row, states in (("top", moving_states()), ("bottom", ends())):
        step = (GRID["right"] - GRID["left"]) / max(len(states) - 1, 1)
        found |= {state: (GRID["left"] + step * column, GRID[row]) for column, state in enumerate(states)}
    return found


def arrows() -> dict[tuple[TurnState, TurnState], list[TurnEvent]]:
    """Return the events that lead from one state to another."""
    found: dict[tuple[TurnState, TurnState], list[TurnEvent]] = {}
    for (before, event), after in TURN_TRANSITIONS.items():
        found.setdefault((before, after), []).append(event)
    return found


def draw_state(state: TurnState, place: Point) -> str:
    x, y = place
    kind = "end" if state in ends() else "moving"
    box = f'x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="10"'
    return f'<rect class="{kind}" {box}/>\n<text class="state" x="{x:g}" y="{y + 5:g}">{state.value}</text>'


def draw_arrow(start: Point, stop: Point, label: str, *, both_ways: bool) -> str:
    """Draw a line from box to box with its label, or a loop above a box."""
    (x1, y1), (x2, y2) = start, stop
    half = BOX_HEIGHT / 2
    if start == stop:
        top = y1 - half
        loop = f"M{x1 - 22:g},{top:g} C{x1 - 34:g},{top - 44:g} {x1 + 34:g},{top - 44:g} {x1 + 22:g},{top - 2:g}"
        return f'<path class="arrow" d="{loop}"/>\n<text class="event" x="{x1:g}" y="{top - 38:g}">{label}</text>'
    if y1 == y2:  # beside each other: one line for each direction
        side = 1 if x2 > x1 else -1
        y = y1 - 9 * side if both_ways else y1
        line = (x1 + side * BOX_WIDTH / 2, y, x2 - side * (BOX_WIDTH / 2 + 2), y)
        at = ((x1 + x2) / 2, y - 7 if side > 0 else y + 17)
    else:  # the label stands near the end, where lines from one state have spread; those from left and right at different heights
        line = (x1, y1 + half, x2, y2 - half - 2)
        share = 0.82 if x1 < WIDTH / 2 else 0.62
        at = (x1 + (x2 - x1) * share, y1 + half + (y2 - y1 - BOX_HEIGHT) * share)
    path = f"M{line[0]:g},{line[1]:g} L{line[2]:g},{line[3]:g}"
    return f'<path class="arrow" d="{path}"/>\n<text class="event" x="{at[0]:g}" y="{at[1]:g}">{label}</text>'


STYLE = """\
rect { stroke: #4a6fa5; stroke-width: 1.5; } .moving { fill: #e8effa; } .end { fill: #f3f3f3; stroke: #777; }
text { font-family: sans-serif; text-anchor: middle; fill: #222; } .state { font-size: 15px; font-weight: bold; }
.event { font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 5px; }
.arrow { fill: none; stroke: #555; stroke-width: 1.2; marker-end: url(#head); }"""

ARROWHEAD = """\
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker>"""


def render_picture() -> str:
    """Return the picture as SVG."""
    where, lines = places(), arrows()
    words = "; ".join(f"{before.value} {event.value}: {after.value}" for (before, event), after in TURN_TRANSITIONS.items())
    drawn = [
        draw_arrow(where[before], where[after], ", ".join(event.value for event in events), both_ways=(after, before) in lines)
        for (before, after), events in lines.items()
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title desc">',
            f'<title id="title">The states of a prompt</title>\n<desc id="desc">{words}</desc>',
            f"<style>\n{STYLE}\n</style>",
            f"<defs>{ARROWHEAD}</defs>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" style="fill:#fff;stroke:none"/>',
            *drawn,
            *(draw_state(state, place) for state, place in where.items()),
            "</svg>\n",
        ]
    )


def render_table() -> str:
    """Return the table as MyST Markdown."""
    rows = [
        "<!-- Written by docs/generate_conversation.py from claude_transport/protocol/conversation.py: change that, and run it again. -->",
        "",
        "| state | " + " | ".join(event.value for event in TurnEvent) + " |",
        "| --- |" + " --- |" * len(TurnEvent),
    ]
    for before in moving_states():
        steps = [TURN_TRANSITIONS.get((before, event)) for event in TurnEvent]
        rows.append(f"| **{before.value}** | " + " | ".join("-" if after is None else after.value for after in steps) + " |")
    return "\n".join([*rows, ""])


def main() -> None:
    """Write the picture and the table."""
    PICTURE.write_text(render_picture(), "utf-8")
    TABLE.write_text(render_table(), "utf-8")


if __name__ == "__main__":
    main()
