"""Measure control requests one after the other, and whole sessions that are opened and closed: one after the other, and many at once."""

from __future__ import annotations

import functools
from dataclasses import replace

from speed import limit, official, ours
from speed.bench import Bench, Table, Tables
from speed.peers import quiet_peer, responder
from speed.sessions import FILES_EACH, allow_files

__all__ = ["tables"]

_RATIOS = {"official / ours": ("official", "ours"), "limit / ours": ("limit", "ours")}


_MORE_ROUNDS = 4


def tables(bench: Bench) -> Tables:
    """Return the tables: a control round trip; connecting, initialising and closing; and the same for hundreds of sessions at once."""
    return {
        "control round trip": functools.partial(_ask, bench),
        "connect and close": functools.partial(_connect, bench),
        "open and close at once": functools.partial(_at_once, bench),
    }


def _ask(bench: Bench) -> Table:
    peer, count = responder(bench.folder), bench.amount(3000)
    runs = {
        "limit": lambda: limit.ask(peer, count=count),
        "ours": bench.run(ours.ask, peer, count=count),
        "official": bench.run(official.ask, peer, count=count),
    }
    return bench.compare(runs, ratios=_RATIOS, unit="request")


def _connect(bench: Bench) -> Table:
    """A round takes half a second, so that what else the machine does decides single ones: more of them are steadier than longer ones."""
    peer, count = quiet_peer(bench.folder), bench.amount(60, least=60)
    bench = replace(bench, rounds=_MORE_ROUNDS * bench.rounds)
    runs = {
        "limit": lambda: limit.spawn_and_wait(peer, count=count),
        "ours": bench.run(ours.connect_and_close, peer, count=count),
        "official": bench.run(official.connect_and_close, peer, count=count),
    }
    return bench.compare(runs, ratios=_RATIOS, unit="session")


def _at_once(bench: Bench) -> Table:
    """Measure the time for many sessions, and for twice as many. A row is named for the full amount, whatever the scale."""
    peer, count = quiet_peer(bench.folder), bench.amount(400, least=2)
    allow_files(2 * count * FILES_EACH + 256)
    runs = {
        "400": bench.run(ours.open_and_close_at_once, peer, count=count),
        "800": bench.run(ours.open_and_close_at_once, peer, count=2 * count),
    }
    return bench.compare(runs, ratios={"time 800 / time 400": ("800", "400")}, unit="all sessions")
