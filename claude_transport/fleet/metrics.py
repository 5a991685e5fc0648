"""`FleetMetrics`: what one worker of a fleet has done, in counters, and their text for Prometheus."""

from __future__ import annotations

from collections import Counter

from claude_transport.protocol.prometheus import counts_text


class FleetMetrics:
    """Counters and gauges of one worker. The worker writes them; read them at any time.

    Counters: `claimed` sessions by kind (`new`, `takeover`), `ended` sessions by reason, `uncertain` turns that were told, `lost` sessions
    by code, `bytes` by direction (`in` comes from clients). A session is lost to another worker, or with the broker's data. Gauges:
    `active_sessions`, `capacity`, `free_capacity` (0 while the worker drains), `waiting_sessions` (as this worker saw the queue last).
    """

    def __init__(self) -> None:
        self.claimed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.uncertain = 0
        self.active_sessions = 0
        self.waiting_sessions = 0
        self.capacity = 0
        self.free_capacity = 0

    def prometheus_text(self) -> str:
        """Write all counters and gauges in the Prometheus text format, version 0.0.4. No label holds the name of a session or a token."""
        counters = (
            ("claimed", "Sessions taken.", "kind", self.claimed),
            ("ended", "Sessions ended.", "reason", self.ended),
            ("lost", "Sessions given up to another worker, or with the broker.", "code", self.lost),
            ("bytes", "Bytes carried.", "direction", self.bytes),
        )
        numbers = (
            ("uncertain_turns_total", "Turns of workers that were gone.", self.uncertain),
            ("active_sessions", "Sessions with a running process.", self.active_sessions),
            ("waiting_sessions", "Sessions without a worker, as this worker saw last.", self.waiting_sessions),
            ("capacity", "The most sessions at the same time.", self.capacity),
            ("free_capacity", "How many more sessions this worker takes.", self.free_capacity),
        )
        return counts_text("claude_transport_fleet_", counters, numbers)
