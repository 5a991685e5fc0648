"""Wrappers: each is a transport that wraps another transport and adds one thing to it.

For your own: `TransportWrapper` forwards everything. `LineWrapper` sees each line that passes. `ObservingWrapper` only looks on, and its
    failures never reach the program. `peek` says what a line is, as a `Peek`. `redactor_for` removes the secrets of a transport.
Look on: `LoggingTransport` logs, `TracingTransport` makes OpenTelemetry spans, `RecordingTransport` writes a tape, `StatefulTransport`
    keeps a `TransportState`, `ObservableTransport` keeps the last lines for `observe`. `TapeSeries` and `ConnectionState` go on across a
    reconnect.
Count: `MetricsTransport` counts into `Metrics`. `MetricsRegistry` adds up many transports. `MetricsSnapshot` is the counts at one moment,
    with `ModelCounts`, `TokenCounts` and `Timing`. `prometheus_text` writes a snapshot as Prometheus text.
Change: `RetryingTransport` connects in several attempts, makes the next transport, and reports each `RetryAttempt`. `WriteUncertain` says
    that a write may have arrived. `FailoverTransport` connects the first of several transports that can be connected, and raises
    `AllTransportsFailed` when none can. `FaultyTransport` injects the faults of `claude_transport.wrappers.faults`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "protocol.peek": "Peek peek",
        "wrappers.base": "LineWrapper ObservingWrapper TransportWrapper",
        "wrappers.failover": "AllTransportsFailed FailoverTransport",
        "wrappers.faulty": "FaultyTransport",
        "wrappers.logging": "LoggingTransport",
        "wrappers.metrics": "Metrics MetricsRegistry MetricsTransport",
        "wrappers.metrics_snapshot": "MetricsSnapshot Timing prometheus_text",
        "protocol.token_counts": "ModelCounts TokenCounts",
        "wrappers.observable": "ObservableTransport",
        "wrappers.redactor": "redactor_for",
        "wrappers.recording": "RecordingTransport TapeSeries",
        "wrappers.retrying": "RetryAttempt RetryingTransport WriteUncertain",
        "wrappers.stateful": "ConnectionState StatefulTransport TransportState",
        "wrappers.tracing": "TracingTransport",
    },
    modules=("faults",),
)
