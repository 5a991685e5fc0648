"""`MetricsSnapshot`: the counts of one session or of many, as plain data to compare, sum up, export and send. `metrics` counts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from claude_transport.protocol.prometheus import Sample, check_labels, family_text
from claude_transport.protocol.token_counts import ModelCounts, TokenCounts


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of something that happened `count` times, in seconds: their sum `total`, the `longest` and the `last` one.

    `last` is None when it never happened.
    """

    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    last: float | None = None

    @property
    def mean(self) -> float | None:
        """The average duration in seconds; None when it never happened."""
        return self.total / self.count if self.count else None

    def plus(self, other: Self) -> Self:
        """Return a new `Timing` of everything in both; its `last` is that of `other`, which is the later one."""
        return type(self)(
            count=self.count + other.count,
            total=self.total + other.total,
            longest=max(self.longest, other.longest),
            last=self.last if other.last is None else other.last,
        )


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one or more sessions at one moment. Only `tokens_in_progress`, `running` and the `last` of a `Timing` may fall.

    Bytes and lines are those that passed the wrapper, each line with its newline. `messages_read` and `messages_written` count by the
    `type` of the message. `unreadable_lines` held no message. `prompts` counts user messages that were written. `results` counts outcomes
    by code (`ok`, `result.overloaded`, …). `sessions` is the number of sessions that are counted.

    `tokens` is the sum of `result.usage`: the main conversation turn by turn, without subagents, and 0 for an interrupted turn.
    `models` and `cost_usd` count everything that was paid since the session began, with subagents and interrupted turns, but
    without the earlier use of a resumed session. `tokens_in_progress` is the use of running turns so far, each API message once. Its
    output tokens are exact only with the option `include_partial_messages`, and too low without. `api_messages` counts the messages of the
    model, subagents' included.

    `connects` counts attempts to connect by outcome: `ok`, the code of the error, or `cancelled`. `retries` counts the attempts after a
    failed one. `running` is the number of sessions that are connected now. `failures` counts, by the code of the error, the connections
    that could not be made and those that an error ended, each once; a failed result is in `results` alone. `lost_prompts` counts the
    prompts that were written and got no result before the session was over, by the code of what ended it (`session_ended`: no error did).

    `connect` has the durations of connecting. `first_message` and `result` have the times from a prompt until the model began to speak, and
    until its result.
    """

    sessions: int = 1
    bytes_read: int = 0
    bytes_written: int = 0
    lines_read: int = 0
    lines_written: int = 0
    messages_read: Mapping[str, int] = {}
    messages_written: Mapping[str, int] = {}
    unreadable_lines: int = 0
    prompts: int = 0
    results: Mapping[str, int] = {}
    api_messages: int = 0
    tokens: TokenCounts = TokenCounts()
    tokens_in_progress: TokenCounts = TokenCounts()
    models: Mapping[str, ModelCounts] = {}
    cost_usd: float = 0.0
    connect: Timing = Timing()
    first_message: Timing = Timing()
    result: Timing = Timing()
    running: int = 0
    connects: Mapping[str, int] = {}
    retries: int = 0
    failures: Mapping[str, int] = {}
    lost_prompts: Mapping[str, int] = {}

    def plus(self, other: Self) -> Self:
        """Return a new snapshot with the sum of both. `other` is the later one: its `Timing.last` counts, if it has one."""
        names = self.__struct_fields__
        return type(self)(**{name: _sum(getattr(self, name), getattr(other, name)) for name in names})

    @classmethod
    def total(cls, snapshots: Iterable[MetricsSnapshot]) -> MetricsSnapshot:
        """Return a new snapshot with the sum of `snapshots`, the latest one last. Everything is 0 when there are none."""
        sum_ = MetricsSnapshot(sessions=0)
        for snapshot in snapshots:
            sum_ = sum_.plus(snapshot)
        return sum_


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {key: _sum(one[key], other[key]) if key in one and key in other else {**one, **other}[key] for key in {**one, **other}}
    return one.plus(other) if isinstance(one, TokenCounts | ModelCounts | Timing) else one + other


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Counts that share a name. `name` has words joined by `_` and `.`; `unit` is in UCUM notation (`By`, `s`, `{line}`).

    `only_grows` is False for a number that rises and falls.
    """

    name: str
    unit: str
    doc: str
    samples: tuple[Sample, ...]
    only_grows: bool = True


def families_of(snapshot: MetricsSnapshot) -> tuple[Family, ...]:
    """Return the counts of `snapshot`, without the timings, under the names of OpenTelemetry. The families and their order never change."""
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
        ("connects", "{attempt}", "Attempts to connect; error.type says which failed.", _by_error(snapshot.connects)),
        ("retries", "{attempt}", "Attempts to connect after a failed one.", [one(snapshot.retries)]),
        ("failures", "{failure}", "Connections that could not be made, or that an error ended.", _by_error(snapshot.failures)),
        ("lost_prompts", "{prompt}", "Prompts without a result when the session was over.", _by_error(snapshot.lost_prompts)),
    )
    running = Family(
        name="sessions.running",
        unit="{session}",
        doc="Sessions that are connected.",
        samples=(one(snapshot.running),),
        only_grows=False,
    )
    return (*(Family(name=name, unit=unit, doc=doc, samples=tuple(samples)) for name, unit, doc, samples in rows), running)


def timings_of(snapshot: MetricsSnapshot) -> dict[str, tuple[Timing, str]]:
    """Return the timings of `snapshot` by name, each with its description."""
    return {
        "connect": (snapshot.connect, "Seconds that connecting took."),
        "first_message": (snapshot.first_message, "Seconds from a prompt until the model began to speak."),
        "result": (snapshot.result, "Seconds from a prompt to its result."),
    }


def _by_kind(tokens: TokenCounts, **labels: str) -> list[Sample]:
    kinds = {name: getattr(tokens, name) for name in tokens.__struct_fields__}
    return [Sample(count, {**labels, "kind": name.removesuffix("_tokens").removesuffix("_input")}) for name, count in kinds.items()]


def _by_error(counts: Mapping[str, int]) -> list[Sample]:
    """Return samples by `error.type`. By OpenTelemetry's conventions, what succeeded has no such attribute."""
    return [Sample(count, {} if code == "ok" else {"error.type": code}) for code, count in counts.items()]


_PREFIX = "claude_transport_"


def prometheus_text(snapshot: MetricsSnapshot, *, labels: Mapping[str, str] | None = None) -> str:
    """Return `snapshot` as text in the Prometheus format, version 0.0.4, for the answer to a scrape.

    `labels` are added to every sample. A sample's own label of the same name wins.

    Raises:
        ConfigurationError: the name of a label is not valid in Prometheus.
    """
    common = labels or {}
    check_labels(common)
    families = []
    for family in families_of(snapshot):
        counts = [Sample(sample.value, {**common, **_spelled(sample.labels)}) for sample in family.samples]
        name = f"{_PREFIX}{_spell(family.name)}"
        families.append(
            family_text(f"{name}_total", "counter", family.doc, counts)
            if family.only_grows
            else family_text(name, "gauge", family.doc, counts)
        )
    for what, (timing, doc) in timings_of(snapshot).items():
        samples = (Sample(timing.total, common, "_sum"), Sample(timing.count, common, "_count"))
        families.append(family_text(f"{_PREFIX}{what}_seconds", "summary", doc, samples))
    return "".join(families)


def _spell(name: str) -> str:
    """Return a name of OpenTelemetry as Prometheus spells it."""
    return name.replace(".", "_")


def _spelled(labels: Mapping[str, str]) -> dict[str, str]:
    return {_spell(name): value for name, value in labels.items()}
