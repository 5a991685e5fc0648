"""`MetricsRegistry`: the counts of many sessions as one, the ones that are over included."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Protocol

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.messages import ResultMessage
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot
from claude_transport.wrappers.prometheus_text import prometheus_text

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["Counted", "MetricsRegistry"]

logger: logging.Logger = logging.getLogger(__name__)


class Counted(Protocol):
    """What a registry sums up; a `Metrics` is one."""

    def snapshot(self) -> MetricsSnapshot:
        """Everything until now."""
        ...

    def on_result(self, listener: Callable[[float, ResultMessage], None]) -> None:
        """Have `listener` told of every prompt that gets a result."""
        ...


class MetricsRegistry:
    """Give the same one to every `MetricsTransport`: their sum only grows, because a session that is over stays in it.

    Nothing is global: two registries know nothing of each other.
    """

    def __init__(self) -> None:
        self._running: dict[int, Counted] = {}
        self._over = MetricsSnapshot(sessions=0)
        self._listeners: list[Callable[[float, ResultMessage], None]] = []
        self._complained = False
        # Whoever scrapes does so from a thread of its own, and must not catch a session between running and over. Reentrant, because
        # a collection of garbage may retire one at any moment.
        self._lock = RLock()

    @property
    def running(self) -> int:
        """How many sessions are not over."""
        return len(self._running)

    def add(self, metrics: Counted) -> None:
        """Count this session, too."""
        with self._lock:
            self._running[id(metrics)] = metrics
        metrics.on_result(self._tell)

    def retire(self, metrics: Counted) -> None:
        """This session is over; does nothing the second time."""
        with self._lock:
            if self._running.pop(id(metrics), None) is not None:
                self._over = self._over.plus(metrics.snapshot())

    def snapshot(self) -> MetricsSnapshot:
        """All sessions together."""
        with self._lock:
            over, running = self._over, tuple(self._running.values())
            while over is not self._over:  # one was retired by a collection of garbage, between the two
                over, running = self._over, tuple(self._running.values())
        return MetricsSnapshot.total([over, *(metrics.snapshot() for metrics in running)])

    def prometheus_text(self, *, labels: Mapping[str, str] | None = None) -> str:
        """All sessions together in Prometheus' text format; see `prometheus_text`."""
        return prometheus_text(self.snapshot(), labels=labels)

    def on_result(self, listener: Callable[[float, ResultMessage], None]) -> None:
        """Have `listener` told of every prompt, of any session, that gets a result: after how many seconds, and which.

        What it raises is logged, once for each registry, and changes nothing.
        """
        self._listeners.append(listener)

    def instrument(self, *, meter_provider: MeterProvider | None = None) -> None:
        """Export everything through OpenTelemetry, by the global meter provider or this one; call it once.

        Raises:
            ConfigurationError: OpenTelemetry is not installed (`pip install claude-transport[otel]`).
        """
        try:
            import opentelemetry.metrics  # noqa: F401
        except ImportError as exc:
            raise ConfigurationError(
                "OpenTelemetry is not installed: pip install 'claude-transport[otel]', and an SDK of your choice", option="instrument"
            ) from exc
        from claude_transport.wrappers.instruments import instrument

        instrument(self, meter_provider=meter_provider)

    def _tell(self, seconds: float, result: ResultMessage) -> None:
        for listener in self._listeners:
            try:
                listener(seconds, result)
            except Exception as error:  # noqa: BLE001 - whoever listens must cost neither the count nor the other listeners anything
                if not self._complained:
                    self._complained = True
                    logger.warning("a listener of a MetricsRegistry raised %s", type(error).__name__)  # its text may hold what was said
