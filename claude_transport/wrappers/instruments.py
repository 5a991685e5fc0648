"""The counts of a registry as OpenTelemetry instruments. They are asked when somebody exports; counting a message costs them nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from claude_transport.protocol.messages import ResultMessage
from claude_transport.wrappers import gen_ai
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, counter_families

_SCOPE = "claude_transport"


class Countable(Protocol):
    """As `MetricsRegistry`."""

    @property
    def running(self) -> int: ...
    def snapshot(self) -> MetricsSnapshot: ...
    def on_result(self, listener: Callable[[float, ResultMessage], None]) -> None: ...


def instrument(registry: Countable, *, meter_provider: MeterProvider | None = None) -> None:
    """Make the instruments: an observable counter `claude_transport.NAME` for each family, `claude_transport.sessions.running`, and the
    histogram `gen_ai.client.operation.duration` of the conventions.
    """
    meter = get_meter(_SCOPE, meter_provider=meter_provider)
    for family in counter_families(MetricsSnapshot()):
        meter.create_observable_counter(
            f"{_SCOPE}.{family.name}", [_observer(registry, family.name)], unit=family.unit, description=family.doc
        )

    def running(_: CallbackOptions) -> Iterable[Observation]:
        yield Observation(registry.running)

    meter.create_observable_up_down_counter(
        f"{_SCOPE}.sessions.running", [running], unit="{session}", description="Sessions that are not over."
    )
    durations = meter.create_histogram("gen_ai.client.operation.duration", unit="s", description="From a prompt to its result.")
    registry.on_result(lambda seconds, result: durations.record(seconds, gen_ai.measured(result)))


def _observer(registry: Countable, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for family in counter_families(registry.snapshot()):
            if family.name == name:
                for sample in family.samples:
                    yield Observation(sample.value, dict(sample.labels))

    return observe
