"""Measure control requests one after the other, and whole sessions that are opened and closed."""

from __future__ import annotations

import functools

from speed import limit, official, ours
from speed.bench import Bench, Table, Tables
from speed.peers import quiet_peer, responder

__all__ = ["tables"]

_RATIOS = {"official / ours": ("official", "ours"), "limit / ours": ("limit", "ours")}


def tables(bench: Bench) -> Tables:
    """Return the tables: a control round trip; and connecting, initialising and closing."""
    return {"control round trip": functools.partial(_ask, bench), "connect and close": functools.partial(_connect, bench)}


def _ask(bench: Bench) -> Table:
    peer, count = responder(bench.folder), bench.amount(3000)
    runs = {
        "limit": lambda: limit.ask(peer, count=count),
        "ours": bench.run(ours.ask, peer, count=count),
        "official": bench.run(official.ask, peer, count=count),
    }
    return bench.compare(runs, ratios=_RATIOS, unit="request")


def _connect(bench: Bench) -> Table:
    peer, count = quiet_peer(bench.folder), bench.amount(20, least=1)
    runs = {
        "limit": lambda: limit.spawn_and_wait(peer, count=count),
        "ours": bench.run(ours.connect_and_close, peer, count=count),
        "official": bench.run(official.connect_and_close, peer, count=count),
    }
    return bench.compare(runs, ratios=_RATIOS, unit="session")
