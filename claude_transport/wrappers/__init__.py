"""wrappers"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "wrappers.base": "LineWrapper ObservingWrapper TransportWrapper",
        "wrappers.faulty": "FaultyTransport",
        "wrappers.logging": "LoggingTransport",
        "wrappers.metrics": "Metrics MetricsRegistry MetricsTransport",
        "wrappers.metrics_snapshot": "MetricsSnapshot ModelCounts Timing TokenCounts prometheus_text",
        "wrappers.recording": "RecordingTransport TapeSeries",
        "wrappers.retrying": "RetryAttempt RetryingTransport WriteUncertain",
        "wrappers.stateful": "ConnectionState StatefulTransport TransportState",
        "wrappers.tracing": "TracingTransport",
    },
)
