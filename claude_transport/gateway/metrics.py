"""`GatewayMetrics`: what a gateway has done, in plain numbers, and as a page for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

__all__ = ["GatewayMetrics"]

_PREFIX = "claude_transport_gateway_"


class GatewayMetrics:
    """Counters that only grow, and gauges of this moment. To be read at any time; written by the gateway alone.

    `connections` by medium, `refused` by code, `ended` sessions by reason; `lines` and `bytes` by direction: `in` is what clients sent.
    """

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()  # by mode
        self.ended: Counter[str] = Counter()
        self.resumed = 0
        self.lines: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.active_sessions = 0
        self.detached_sessions = 0
        self.half_open = 0

    def carried(self, direction: str, *, lines: int, size: int) -> None:
        """Count a batch."""
        self.lines[direction] += lines
        self.bytes[direction] += size

    def prometheus_text(self) -> str:
        """All of it in Prometheus' text format (version 0.0.4), to be served as `text/plain`. No label holds a name of anybody."""
        return "".join(f"{line}\n" for line in self._page())

    def _page(self) -> Iterator[str]:
        families: tuple[tuple[str, str, str, Counter[str]], ...] = (
            ("connections", "Connections accepted.", "medium", self.connections),
            ("refused", "Connections and requests turned away.", "code", self.refused),
            ("sessions", "Sessions begun.", "mode", self.sessions),
            ("sessions_ended", "Sessions ended.", "reason", self.ended),
            ("lines", "Lines carried.", "direction", self.lines),
            ("bytes", "Bytes carried.", "direction", self.bytes),
        )
        for name, doc, label, counts in families:
            yield f"# HELP {_PREFIX}{name}_total {doc}"
            yield f"# TYPE {_PREFIX}{name}_total counter"
            for value, count in sorted(counts.items()):
                yield f'{_PREFIX}{name}_total{{{label}="{value}"}} {count}'
        yield f"# HELP {_PREFIX}resumed_total Sessions taken up again by a client that came back."
        yield f"# TYPE {_PREFIX}resumed_total counter"
        yield f"{_PREFIX}resumed_total {self.resumed}"
        gauges = (
            ("active_sessions", "Sessions with a running process.", self.active_sessions),
            ("detached_sessions", "Sessions whose client is away.", self.detached_sessions),
            ("half_open", "Connections that have not been admitted.", self.half_open),
        )
        for gauge, doc, number in gauges:
            yield f"# HELP {_PREFIX}{gauge} {doc}"
            yield f"# TYPE {_PREFIX}{gauge} gauge"
            yield f"{_PREFIX}{gauge} {number}"
