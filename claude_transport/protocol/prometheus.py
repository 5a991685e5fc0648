"""Writes metrics in the text format of Prometheus, version 0.0.4, without any library.

This module owns the format: `# HELP` and `# TYPE` lines, escaping, numbers and the content type. It does not choose any metric: a session's
are in `wrappers/metrics_snapshot.py`, a gateway's in `gateway/metrics.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from claude_transport.errors import ConfigurationError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Value of the HTTP header `content-type` for a page in this format."""

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Sample(msgspec.Struct, frozen=True):
    """One number of a metric, with its labels. `suffix` is appended to the name of the metric: `_sum` and `_count` of a summary."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


def family_text(name: str, kind: Literal["counter", "gauge", "summary"], doc: str, samples: Iterable[Sample]) -> str:
    """Write one metric: its HELP line, its TYPE line, and a line for each sample. Each line ends with a newline."""
    lines = [f"# HELP {name} {_escaped(doc)}", f"# TYPE {name} {kind}"]
    for sample in samples:
        labels = ",".join(f'{label}="{_escaped(str(value), quotes=True)}"' for label, value in sample.labels.items())
        number = str(sample.value) if isinstance(sample.value, int) else repr(float(sample.value))
        lines.append(f"{name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {number}")
    return "\n".join(lines) + "\n"


def counts_text(prefix: str, counters: Iterable[tuple[str, str, str, Mapping[str, int]]], numbers: Iterable[tuple[str, str, int]]) -> str:
    """Write counters with one label, and numbers without any.

    `counters` are rows of name, HELP text, label, and counts by the value of the label; `_total` is appended to the names. `numbers` are
    rows of name, HELP text and value: counters when their names end in `_total`, else gauges. `prefix` begins every name.
    """
    families = [
        family_text(f"{prefix}{name}_total", "counter", doc, [Sample(n, {label: value}) for value, n in sorted(counts.items())])
        for name, doc, label, counts in counters
    ]
    families += [
        family_text(f"{prefix}{name}", "counter" if name.endswith("_total") else "gauge", doc, [Sample(number)])
        for name, doc, number in numbers
    ]
    return "".join(families)


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` when the name of a label is not allowed by Prometheus; `__` at the beginning is reserved there."""
    for name in labels:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ConfigurationError(
                f"{name!r} is not a valid label name: use letters, digits and _, without a digit or __ at the beginning", option="labels"
            )


def _escaped(text: str, *, quotes: bool = False) -> str:
    # JSON may hold a lone surrogate, which UTF-8 cannot encode
    clean = text.encode("utf-8", "replace").decode("utf-8").replace("\\", r"\\").replace("\n", r"\n")
    return clean.replace('"', r"\"") if quotes else clean
