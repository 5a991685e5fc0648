"""The floors of the house, drawn from the table by which tests/test_floors.py checks every import: `python docs/generate_floors.py`.

The picture is committed, so that it can be seen without building anything; a test holds that it is what the table says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

__all__ = ["PICTURE", "WORDS", "main", "read_floors", "read_pure", "read_table", "render"]

PICTURE = Path(__file__).parent / "explanation" / "floors.svg"
CHECKER = Path(__file__).parent.parent / "tests" / "test_floors.py"

WIDTH, LEFT, GAP = 1000, 40, 10
FLOOR_HEIGHT, BOX_HEIGHT = 66, 52

WORDS: Mapping[str, str] = {
    "__init__": "the public names",
    "__main__": "python -m",
    "app": "the program claude-transport",
    "bridge": "a host's tools",
    "completion": "one call",
    "fleet": "many machines",
    "gateway": "far clients",
    "interop": "the official SDK",
    "pool": "warm sessions",
    "testing": "tests of others",
    "inspection": "what a tape says",
    "client": "turns, callbacks, requests",
    "jsonrpc": "other agents",
    "observing": "those who watch",
    "serving": "doors, listeners, pages",
    "codex.session": "threads and turns",
    "codex.agent": "as an agent, whole",
    "agents": "who can be run",
    "agents.warm_pool": "ready before use",
    "codex": "its messages and options",
    "transports": "lines over bytes",
    "wrappers": "a Transport around a Transport",
    "streams": "processes, sockets, memory: bytes, and how they end",
    "transport": "the contract, clause by clause",
    "messages": "their names",
    "hooks": "their names",
    "wire": "schemas, checks",
    "sessions": "stored ones",
    "control": "their names",
    "loops": "tasks, alarms, waits",
    "exchange": "lines, requests, the end",
    "backoff": "delays",
    "launch": "what would be run",
    "protocol": "lines, messages, decisions",
    "redis": "a server, for all",
    "platform": "Windows, and locks",
    "text": "of others: one line, no secrets",
    "link": "outlives its connections",
    "errors": "one tree: whose fault, and would trying again help",
    "loggers": "silent until configured",
    "lazy": "names, loaded late",
}

STYLE = """\
text { font-family: sans-serif; text-anchor: middle; fill: #222; } .unit { font-size: 15px; font-weight: bold; }
.words { font-size: 11px; } .floor { font-size: 14px; fill: #777; }
.box { fill: #e8effa; stroke: #4a6fa5; stroke-width: 1.5; } .pure { fill: #eef6e8; stroke: #5f8f3f; stroke-width: 1.5; }
.line { stroke: #ccc; stroke-width: 1; }"""


def read_table(name: str) -> ast.Dict:
    """The table of this name, as it stands in tests/test_floors.py; nothing of that file is run."""
    for node in ast.parse(CHECKER.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Dict) and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return value
    raise ValueError(f"{CHECKER.name} has no table {name}")


def read_floors() -> dict[str, int]:
    """The floor of each unit."""
    return dict(ast.literal_eval(read_table("FLOORS")))


def read_pure() -> list[str]:
    """The units that may import no event loop."""
    return [ast.literal_eval(key) for key in read_table("FORBIDDEN_MODULES").keys if key is not None]


def draw_floor(number: int, y: float, units: list[str], pure: list[str]) -> Iterator[str]:
    """One floor: its number, and its units side by side."""
    width = (WIDTH - LEFT - GAP * (len(units) + 1)) / len(units)
    yield f'<text class="floor" x="{LEFT / 2:g}" y="{y + BOX_HEIGHT / 2 + 5:g}">{number}</text>'
    for column, unit in enumerate(units):
        x = LEFT + GAP + column * (width + GAP)
        kind = "pure" if unit in pure else "box"
        yield f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="6"/>'
        yield f'<text class="unit" x="{x + width / 2:.1f}" y="{y + 22:g}">{unit}</text>'
        yield f'<text class="words" x="{x + width / 2:.1f}" y="{y + 40:g}">{escape(WORDS[unit])}</text>'


def render() -> str:
    """The picture, as SVG."""
    table, pure = read_floors(), read_pure()
    numbers = sorted(set(table.values()), reverse=True)
    height = FLOOR_HEIGHT * len(numbers) + GAP
    floors = {number: sorted(unit for unit, floor in table.items() if floor == number) for number in numbers}
    words = "; ".join(f"floor {number}: {', '.join(units)}" for number, units in floors.items())
    drawn: list[str] = []
    for row, (number, units) in enumerate(floors.items()):
        y = GAP + row * FLOOR_HEIGHT
        drawn += draw_floor(number, y, units, pure)
        if row:
            edge = y - (FLOOR_HEIGHT - BOX_HEIGHT) / 2
            drawn.append(f'<line class="line" x1="{GAP}" y1="{edge:g}" x2="{WIDTH - GAP}" y2="{edge:g}"/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title desc">',
            f'<title id="title">The floors of claude_transport</title>\n<desc id="desc">{words}</desc>',
            f"<style>\n{STYLE}\n</style>",
            f'<rect width="{WIDTH}" height="{height}" style="fill:#fff"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write the picture to its place."""
    PICTURE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
