"""The tables: lines downstream, as dicts and undecoded, and round trips, in every medium."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from speed.bench import Bench, Table
from speed.harness import Cost, spread

from wire import bare, native, ours
from wire.flow import SINGLE
from wire.sides import Sides, serving

__all__ = ["TABLES", "measure_tables"]

_LINES, _TRIPS = 200_000, 2_000

_SHARE = {
    "websockets / ws": ("websockets", "ws"),
    "ws, a line a message / ws": ("ws, a line a message", "ws"),
    "websockets, a line a message / ws, a line a message": ("websockets, a line a message", "ws, a line a message"),
    "tcp / link over tcp": ("tcp", "link over tcp"),
    "ws / link over ws": ("ws", "link over ws"),
    "gateway, tcp, plain / tcp": ("gateway, tcp, plain", "tcp"),
    "gateway, ws, plain / ws": ("gateway, ws, plain", "ws"),
}
"""Pairs to compare, besides everything with the bare socket: the first is divided by the second."""


def measure_tables(bench: Bench, names: Collection[str]) -> dict[str, Table]:
    """Measure the named tables, the subjects in turns."""
    with serving(bench.folder, count=bench.amount(_LINES)) as sides:
        return {name: make(bench, sides) for name, make in TABLES.items() if name in names}


def _downstream(bench: Bench, sides: Sides, *, view: str = "dicts") -> Table:
    runs = {"bare socket": bench.run(bare.read, sides.urls["tcp"], sides.flow, view=view)}
    for name, url, settings in _subjects(sides):
        runs[name] = bench.run(ours.read, url, sides.flow, view=view, **settings)
    runs["ws, a line a message"] = bench.run(ours.read, sides.urls["ws"], sides.flow, view=view, asks=SINGLE, resume=False)
    if bench.backend == "asyncio":
        runs["websockets"] = bench.run(native.read, sides.urls["ws"], sides.flow, view=view)
        runs["websockets, a line a message"] = bench.run(native.read, sides.urls["ws"], sides.flow, view=view, asks=SINGLE)
    return _compare(bench, runs, unit="message")


def _round_trip(bench: Bench, sides: Sides) -> Table:
    told = {"line": sides.flow.lines()[0], "count": bench.amount(_TRIPS)}
    runs = {"bare socket": bench.run(bare.round_trips, sides.urls["tcp"], **told)}
    for name, url, settings in _subjects(sides):
        runs[name] = bench.run(ours.round_trips, url, **told, **settings)
    if bench.backend == "asyncio":
        runs["websockets"] = bench.run(native.round_trips, sides.urls["ws"], **told)
    return _compare(bench, runs, unit="round trip")


def _compare(bench: Bench, runs: dict[str, Callable[[], Cost]], *, unit: str) -> Table:
    pairs = {f"{name} / bare socket": (name, "bare socket") for name in runs if name != "bare socket"}
    pairs |= {name: pair for name, pair in _SHARE.items() if set(pair) <= set(runs)}
    table = bench.compare(runs, ratios=pairs, unit=unit)
    table["rates"] = {name: spread([1e6 / wall for _, wall in row["samples_us"]]) for name, row in table["rows"].items()}
    return table


def _subjects(sides: Sides) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, URL and the arguments for `NetworkTransport`."""
    for name in ("tcp", "unix", "tls", "tcp+zstd", "ws", "wss", "ws+deflate"):
        settings: dict[str, Any] = {"resume": False}
        if name in {"tls", "wss"}:
            settings["ssl_context"] = sides.tls
        if "+" in name:
            settings["compression"] = name.partition("+")[2]
        yield name, sides.urls[name], settings
    for medium in ("tcp", "ws"):
        yield f"link over {medium}", sides.urls[f"memory, {medium}"], {}
        yield f"gateway, {medium}, plain", sides.urls[f"process, {medium}"], {"resume": False}
        yield f"gateway, {medium}, link", sides.urls[f"process, {medium}"], {}


TABLES: dict[str, Callable[[Bench, Sides], Table]] = {
    "downstream": _downstream,
    "downstream, undecoded": partial(_downstream, view="lines"),
    "round trip": _round_trip,
}
"""The tables by name: messages as dicts, undecoded lines, and round trips."""
