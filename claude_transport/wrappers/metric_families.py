"""What a snapshot says, as families of samples with names, units and labels: one table for every exporter."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, Timing, TokenCounts

__all__ = ["Family", "Sample", "counter_families", "timings_of"]


class Sample(msgspec.Struct, frozen=True):
    """One number and its labels."""

    value: float
    labels: Mapping[str, str] = {}


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one name, in words joined by `_`; `unit` as UCUM writes it (`By`, `s`, `{line}`)."""

    name: str
    unit: str
    doc: str
    samples: tuple[Sample, ...]


def counter_families(snapshot: MetricsSnapshot) -> tuple[Family, ...]:
    """Everything in `snapshot` that only grows, except times; always the same families in the same order."""
    one, ways = Sample, (("read", "read"), ("written", "write"))
    messages = {way: getattr(snapshot, f"messages_{name}") for name, way in ways}
    rows = (
        ("sessions", "{session}", "Sessions begun.", [one(snapshot.sessions)]),
        ("bytes", "By", "Bytes carried.", [one(getattr(snapshot, f"bytes_{name}"), {"direction": way}) for name, way in ways]),
        ("lines", "{line}", "Lines carried.", [one(getattr(snapshot, f"lines_{name}"), {"direction": way}) for name, way in ways]),
        (
            "messages",
            "{message}",
            "Messages carried, by type.",
            [one(count, {"direction": way, "type": kind}) for way, counts in messages.items() for kind, count in counts.items()],
        ),
        ("unreadable_lines", "{line}", "Lines read that held no message.", [one(snapshot.unreadable_lines)]),
        ("prompts", "{prompt}", "User messages written.", [one(snapshot.prompts)]),
        ("results", "{result}", "Results, by outcome.", [one(count, {"outcome": code}) for code, count in snapshot.results.items()]),
        ("api_messages", "{message}", "Messages of the model, each once, subagents' too.", [one(snapshot.api_messages)]),
        ("tokens", "{token}", "Tokens of the main conversation, as the results say.", _by_kind(snapshot.tokens)),
        (
            "model_tokens",
            "{token}",
            "Tokens paid for, by model, subagents' too.",
            [sample for model, counts in snapshot.models.items() for sample in _by_kind(counts.tokens, model=model)],
        ),
        ("cost_usd", "{USD}", "US dollars paid.", [one(snapshot.cost_usd)]),
    )
    return tuple(Family(name=name, unit=unit, doc=doc, samples=tuple(samples)) for name, unit, doc, samples in rows)


def timings_of(snapshot: MetricsSnapshot) -> dict[str, tuple[Timing, str]]:
    """The times in `snapshot`: what was counted, and what it is, by name."""
    return {
        "connect": (snapshot.connect, "Seconds that connecting took."),
        "first_message": (snapshot.first_message, "Seconds from a prompt until the model began to speak."),
        "result": (snapshot.result, "Seconds from a prompt to its result."),
    }


def _by_kind(tokens: TokenCounts, **labels: str) -> list[Sample]:
    kinds = {name: getattr(tokens, name) for name in tokens.__struct_fields__}
    return [Sample(count, {**labels, "kind": name.removesuffix("_tokens").removesuffix("_input")}) for name, count in kinds.items()]
