"""Read messages from a child process: as dicts from the transport, and through `Query` as dicts and typed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from speed import instructions, limit, official, ours, typescript
from speed.bench import Bench, Table, Tables
from speed.harness import Cost, compare, ratio
from speed.peers import handshake_peer, line_peer
from speed.workload import SHAPES, Workload

__all__ = ["tables"]

_TURN = "one turn, typed"
VIEWS = {"dicts": "read_dicts", "Query, dicts": "query_dicts", "Query, typed": "query_typed", _TURN: "turn_typed"}

_ALSO_TYPESCRIPT = ("delta, 263 B", "assistant, 2.3 KB", "tool result, 1.3 MB")
_CHECKED_SCALE = 0.2
"""Up to this scale the TypeScript SDK is left out: a check or a quick run installs nothing, and it has no target."""


_SHORT, _MORE_ROUNDS = "delta, 263 B", 3
"""In a check, ours reads the small messages of a round in 40 ms, so single rounds differ much."""
_PAIRS = 15
"""Times as many rounds for ours and the limit alone. One follows the other within 40 ms, so what slows the machine slows both."""


def tables(bench: Bench) -> Tables:
    """Return the tables by shape; the ratios are `official / ours` for each view, and `limit / ours` for dicts and typed."""
    return {shape: functools.partial(_measure, bench, shape) for shape in SHAPES}


def _measure(bench: Bench, shape: str) -> Table:
    work = Workload.of_shape(bench.folder, shape, scale=bench.scale)
    if shape == _SHORT and bench.scale <= _CHECKED_SCALE:
        bench = replace(bench, rounds=_MORE_ROUNDS * bench.rounds)
    lines, session = line_peer(bench.folder, work.files), handshake_peer(bench.folder, work.files)
    runs = {"limit, dicts": lambda: limit.read_dicts(lines, work), "limit, typed": lambda: limit.read_typed(lines, work)}
    ratios = {"limit / ours, dicts": ("limit, dicts", "ours, dicts"), "limit / ours, typed": ("limit, typed", "ours, Query, typed")}
    for view, name in VIEWS.items():
        if view == _TURN and shape.startswith("tool result"):
            continue  # no turn of a real session begins with a tool result, so ours gives these to no turn
        peer = lines if view == "dicts" else session
        for subject, module in (("ours", ours), ("official", official)):
            runs[f"{subject}, {view}"] = bench.run(getattr(module, name), peer, work)
        ratios[f"official / ours, {view}"] = (f"official, {view}", f"ours, {view}")
    if shape in _ALSO_TYPESCRIPT and bench.scale > _CHECKED_SCALE and typescript.installed():
        runs["TypeScript SDK"] = functools.partial(typescript.query_typed, session, work, home=bench.folder)
        ratios["TypeScript SDK / ours, Query, typed"] = ("TypeScript SDK", "ours, Query, typed")
    table = bench.compare(runs, ratios=ratios, unit="message")
    if shape == _SHORT:
        table["paired"] = _paired(bench, runs)
        table["instructions"] = instructions.compared(bench.folder, bench.backend) if bench.rounds else instructions.UNKNOWN
    return table


def _paired(bench: Bench, runs: Mapping[str, Callable[[], Cost]]) -> dict[str, Any]:
    """Return the ratio of the limit and ours, typed, from rounds of these two alone."""
    pair = ("limit, typed", "ours, Query, typed")
    costs = compare({name: runs[name] for name in pair}, rounds=_PAIRS * bench.rounds // _MORE_ROUNDS)
    return {"limit / ours, typed": {**ratio(costs, *pair), "wall": ratio(costs, *pair, clock="wall")}}
