"""A snapshot in the text format that Prometheus scrapes, without any library of its."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from claude_transport.errors import ConfigurationError
from claude_transport.wrappers.metric_families import counter_families, timings_of
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot

__all__ = ["prometheus_text"]

_PREFIX = "claude_transport_"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def prometheus_text(snapshot: MetricsSnapshot, *, labels: Mapping[str, str] | None = None) -> str:
    """`snapshot` in Prometheus' text format (version 0.0.4), to be served as `text/plain`; every sample gets the `labels` besides its own.

    Raises `ConfigurationError` for a label that cannot be one.
    """
    labels = labels or {}
    for name in labels:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ConfigurationError(f"{name!r} cannot be the name of a label", option="labels")
    return "".join(f"{line}\n" for line in _lines(snapshot, labels))


def _lines(snapshot: MetricsSnapshot, labels: Mapping[str, str]) -> Iterator[str]:
    for family in counter_families(snapshot):
        name = f"{_PREFIX}{family.name}_total"
        yield f"# HELP {name} {family.doc}"
        yield f"# TYPE {name} counter"
        for sample in family.samples:
            yield f"{name}{_written({**labels, **sample.labels})} {_number(sample.value)}"
    for what, (timing, doc) in timings_of(snapshot).items():
        name = f"{_PREFIX}{what}_seconds"
        yield f"# HELP {name} {doc}"
        yield f"# TYPE {name} summary"
        yield f"{name}_sum{_written(labels)} {_number(timing.total)}"
        yield f"{name}_count{_written(labels)} {timing.count}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _written(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    # a lone surrogate, which JSON may hold, has no place in UTF-8
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
