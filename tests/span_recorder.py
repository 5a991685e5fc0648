"""OpenTelemetry providers that keep what they are given: what an SDK would export, without one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation


class RecordedSpan(trace.Span):
    """A span that remembers everything."""

    def __init__(self, name: str, *, context: trace.SpanContext, parent: trace.SpanContext | None, kind: trace.SpanKind) -> None:
        self.name = name
        self.kind = kind
        self.parent = parent
        self.attributes: dict[str, Any] = {}
        self.status = trace.Status(trace.StatusCode.UNSET)
        self.ends = 0
        self._context = context

    def get_span_context(self) -> trace.SpanContext:
        return self._context

    def is_recording(self) -> bool:
        return not self.ends

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            self.set_attribute(name, value)

    def set_attribute(self, key: str, value: Any) -> None:
        assert not self.ends, f"{key} was set on {self.name} after its end"
        assert isinstance(value, str | bool | int | float | tuple), f"{key}: {value!r} cannot be exported"
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status if isinstance(status, trace.Status) else trace.Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        self.ends += 1

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        raise AssertionError(name)

    def record_exception(self, exception: BaseException, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(exception)

    def update_name(self, name: str) -> None:
        raise AssertionError(name)

    @property
    def failed(self) -> bool:
        return self.status.status_code is trace.StatusCode.ERROR


class SpanRecorder(trace.TracerProvider, trace.Tracer):
    """A tracer provider and its tracer; `spans` in the order they were started."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self._ids = itertools.count(1)

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return self

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        attributes: Any = None,
        links: Any = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> RecordedSpan:
        above = trace.get_current_span(context).get_span_context()
        number = next(self._ids)
        own = trace.SpanContext(above.trace_id or number << 64, number, is_remote=False, trace_flags=trace.TraceFlags(1))
        span = RecordedSpan(name, context=own, parent=above if above.is_valid else None, kind=kind)
        span.set_attributes(attributes or {})
        self.spans.append(span)
        return span

    @contextmanager
    def start_as_current_span(self, name: str, **kwargs: Any) -> Iterator[RecordedSpan]:  # type: ignore[override]
        span = self.start_span(name)
        with trace.use_span(span, end_on_exit=True):
            yield span

    def named(self, name: str) -> list[RecordedSpan]:
        """The spans whose name begins so."""
        return [span for span in self.spans if span.name.startswith(name)]

    @property
    def turns(self) -> list[RecordedSpan]:
        return self.named("invoke_agent")

    @property
    def tools(self) -> list[RecordedSpan]:
        return self.named("execute_tool")

    def parent_of(self, span: RecordedSpan) -> RecordedSpan | None:
        """The span above this one, among the recorded ones."""
        return next((other for other in self.spans if span.parent and other.get_span_context().span_id == span.parent.span_id), None)

    @property
    def text(self) -> str:
        """Everything that would leave the process."""
        return repr([(span.name, span.attributes, span.status.description) for span in self.spans])


class MeterRecorder(metrics.MeterProvider, metrics.NoOpMeter):
    """A meter provider and its meter; `collect()` asks the observable instruments, as an exporter would."""

    def __init__(self) -> None:
        metrics.NoOpMeter.__init__(self, "test")
        self.callbacks: dict[str, list[Callable[[CallbackOptions], Any]]] = {}
        self.recorded: list[tuple[str, float, dict[str, Any]]] = []
        self.created: list[str] = []

    def get_meter(self, *args: Any, **kwargs: Any) -> metrics.Meter:
        return self

    def create_observable_counter(self, name: str, callbacks: Sequence[Any] | None = None, unit: str = "", description: str = "") -> Any:
        self.created.append(name)
        self.callbacks[name] = list(callbacks or ())

    def create_observable_up_down_counter(
        self, name: str, callbacks: Sequence[Any] | None = None, unit: str = "", description: str = ""
    ) -> Any:
        self.create_observable_counter(name, callbacks)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **kwargs: Any) -> Any:
        self.created.append(name)
        return RecordedHistogram(name, self)

    def collect(self) -> dict[str, list[Observation]]:
        return {name: [each for ask in asks for each in ask(CallbackOptions())] for name, asks in self.callbacks.items()}


class RecordedHistogram(metrics.NoOpHistogram):
    """A histogram that keeps each value."""

    def __init__(self, name: str, recorder: MeterRecorder) -> None:
        super().__init__(name)
        self._recorder = recorder
        self._called = name

    def record(self, amount: float, attributes: Any = None, context: Any = None) -> None:
        self._recorder.recorded.append((self._called, amount, dict(attributes or {})))
