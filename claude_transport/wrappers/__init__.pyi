# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.wrappers import faults as faults
from claude_transport.protocol.peek import Peek as Peek
from claude_transport.protocol.peek import peek as peek
from claude_transport.protocol.token_counts import ModelCounts as ModelCounts
from claude_transport.protocol.token_counts import TokenCounts as TokenCounts
from claude_transport.wrappers.base import LineWrapper as LineWrapper
from claude_transport.wrappers.base import ObservingWrapper as ObservingWrapper
from claude_transport.wrappers.base import TransportWrapper as TransportWrapper
from claude_transport.wrappers.failover import AllTransportsFailed as AllTransportsFailed
from claude_transport.wrappers.failover import FailoverTransport as FailoverTransport
from claude_transport.wrappers.faulty import FaultyTransport as FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport as LoggingTransport
from claude_transport.wrappers.metrics import Metrics as Metrics
from claude_transport.wrappers.metrics import MetricsRegistry as MetricsRegistry
from claude_transport.wrappers.metrics import MetricsTransport as MetricsTransport
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot as MetricsSnapshot
from claude_transport.wrappers.metrics_snapshot import Timing as Timing
from claude_transport.wrappers.metrics_snapshot import prometheus_text as prometheus_text
from claude_transport.wrappers.observable import ObservableTransport as ObservableTransport
from claude_transport.wrappers.recording import RecordingTransport as RecordingTransport
from claude_transport.wrappers.recording import TapeSeries as TapeSeries
from claude_transport.wrappers.redactor import redactor_for as redactor_for
from claude_transport.wrappers.retrying import RetryAttempt as RetryAttempt
from claude_transport.wrappers.retrying import RetryingTransport as RetryingTransport
from claude_transport.wrappers.retrying import WriteUncertain as WriteUncertain
from claude_transport.wrappers.stateful import ConnectionState as ConnectionState
from claude_transport.wrappers.stateful import StatefulTransport as StatefulTransport
from claude_transport.wrappers.stateful import TransportState as TransportState
from claude_transport.wrappers.tracing import TracingTransport as TracingTransport

__all__ = [
    "AllTransportsFailed",
    "ConnectionState",
    "FailoverTransport",
    "FaultyTransport",
    "LineWrapper",
    "LoggingTransport",
    "Metrics",
    "MetricsRegistry",
    "MetricsSnapshot",
    "MetricsTransport",
    "ModelCounts",
    "ObservableTransport",
    "ObservingWrapper",
    "Peek",
    "RecordingTransport",
    "RetryAttempt",
    "RetryingTransport",
    "StatefulTransport",
    "TapeSeries",
    "Timing",
    "TokenCounts",
    "TracingTransport",
    "TransportState",
    "TransportWrapper",
    "WriteUncertain",
    "peek",
    "prometheus_text",
    "redactor_for",
]
