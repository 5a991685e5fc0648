"""`GatewayMetrics`: what a gateway counts. `/metrics` shows it."""

from __future__ import annotations

from collections import Counter

from claude_transport.protocol.prometheus import counts_text


class GatewayMetrics:
    """Counters and gauges of one gateway. The gateway writes them; read them at any time.

    Counters: `connections` by medium, `refused` by code, `sessions` by mode, `ended` sessions by reason, `resumed`, `lines` and `bytes` by
    direction (`in` comes from clients). Gauges: `active_sessions`, `detached_sessions` (their client is away), `half_open`.
    """

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.resumed = 0
        self.lines: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.active_sessions = 0
        self.detached_sessions = 0
        self.half_open = 0

    def carried(self, direction: str, *, lines: int, size: int) -> None:
        """Count `lines` lines of `size` bytes in total. `direction` is `in` (from clients) or `out`."""
        self.lines[direction] += lines
        self.bytes[direction] += size

    def prometheus_text(self) -> str:
        """Write all counters and gauges in the Prometheus text format, version 0.0.4. No label holds the name of a token or a client."""
        counters: tuple[tuple[str, str, str, Counter[str]], ...] = (
            ("connections", "Connections accepted.", "medium", self.connections),
            ("refused", "Connections and requests turned away.", "code", self.refused),
            ("sessions", "Sessions begun.", "mode", self.sessions),
            ("sessions_ended", "Sessions ended.", "reason", self.ended),
            ("lines", "Lines carried.", "direction", self.lines),
            ("bytes", "Bytes carried.", "direction", self.bytes),
        )
        numbers: tuple[tuple[str, str, int], ...] = (
            ("resumed_total", "Sessions taken up again by a client that came back.", self.resumed),
            ("active_sessions", "Sessions with a running process.", self.active_sessions),
            ("detached_sessions", "Sessions whose client is away.", self.detached_sessions),
            ("half_open", "Connections that have not been admitted.", self.half_open),
        )
        return counts_text("claude_transport_gateway_", counters, numbers)
