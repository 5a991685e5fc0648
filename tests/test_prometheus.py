"""The Prometheus text format: what a session and what a gateway export is read here by a reader that shares no code with the writer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.metrics import GatewayMetrics
from claude_transport.protocol.prometheus import CONTENT_TYPE, Sample, family_text
from claude_transport.protocol.token_counts import ModelCounts, TokenCounts
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, Timing, prometheus_text

STRANGE = 'a "b"\\n\n\\ä{},= #'


@dataclass
class Family:
    """What a scrape knows of one metric."""

    kind: str = ""
    doc: str = ""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


def read(text: str) -> dict[str, Family]:
    """A small reader of the format, from its description: HELP, TYPE and samples, each family in one piece."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    name = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, doc = line.removeprefix("# HELP ").partition(" ")
            assert name not in families, "one HELP line for each family"
            families[name] = Family(doc=unescaped(doc, "\\n"))
        elif line.startswith("# TYPE "):
            typed, _, kind = line.removeprefix("# TYPE ").partition(" ")
            assert (typed, families[name].kind, families[name].samples) == (name, "", {}), "TYPE comes once, after HELP, before samples"
            families[name].kind = kind
        else:
            sample, labels, value = read_sample(line)
            suffixes = ("_sum", "_count") if families[name].kind == "summary" else ("",)
            assert sample in {f"{name}{suffix}" for suffix in suffixes}, "a sample belongs to the family above it"
            assert (sample, labels) not in families[name].samples, "a sample comes once"
            families[name].samples[sample, labels] = value
    return families


def read_sample(line: str) -> tuple[str, tuple[tuple[str, str], ...], float]:
    found = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line)
    assert found, line
    rest = line[found.end() :]
    labels = []
    if rest.startswith("{"):
        rest = rest[1:]
        while not rest.startswith("}"):
            label = re.match(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?', rest)
            assert label, rest
            labels.append((label[1], unescaped(label[2], '\\n"')))
            rest = rest[label.end() :]
        rest = rest[1:]
    assert rest.startswith(" ")
    return found[0], tuple(labels), float(rest)


def unescaped(text: str, escapes: str) -> str:
    def one(match: re.Match[str]) -> str:
        assert match[1] in escapes, f"\\{match[1]} is no escape here"
        return "\n" if match[1] == "n" else match[1]

    return re.sub(r"\\(.)", one, text)


def a_session() -> str:
    tokens = TokenCounts(input_tokens=3, output_tokens=5)
    snapshot = MetricsSnapshot(
        bytes_read=7,
        messages_read={STRANGE: 2},
        tokens=tokens,
        models={"m": ModelCounts(tokens=tokens, cost_usd=0.25)},
        cost_usd=0.25,
        connect=Timing(count=2, total=1.5, longest=1.0),
        running=1,
        connects={"ok": 2, STRANGE: 1},
    )
    return prometheus_text(snapshot, labels={"service": STRANGE})


def a_gateway() -> str:
    metrics = GatewayMetrics()
    metrics.connections["unix"] = 2
    metrics.refused[STRANGE] = 1
    metrics.carried("in", lines=3, size=40)
    metrics.half_open = 4
    return metrics.prometheus_text()


def test_an_independent_reader_gets_the_numbers_of_a_session() -> None:
    families = read(a_session())
    service = ("service", STRANGE)
    assert {kind: [name for name, family in families.items() if family.kind == kind] for kind in ("counter", "gauge", "summary")} == {
        "counter": [
            f"claude_transport_{name}_total"
            for name in (
                *("sessions", "bytes", "lines", "messages", "unreadable_lines", "prompts", "results", "api_messages", "tokens"),
                *("model_tokens", "cost_usd", "connects", "retries", "failures", "lost_prompts"),
            )
        ],
        "gauge": ["claude_transport_sessions_running"],
        "summary": [f"claude_transport_{name}_seconds" for name in ("connect", "first_message", "result")],
    }
    assert families["claude_transport_bytes_total"].samples == {
        ("claude_transport_bytes_total", (service, ("direction", "read"))): 7.0,
        ("claude_transport_bytes_total", (service, ("direction", "write"))): 0.0,
    }
    assert families["claude_transport_messages_total"].samples == {
        ("claude_transport_messages_total", (service, ("direction", "read"), ("type", STRANGE))): 2.0
    }
    assert families["claude_transport_sessions_running"].samples == {("claude_transport_sessions_running", (service,)): 1.0}
    assert families["claude_transport_connects_total"].samples == {
        ("claude_transport_connects_total", (service,)): 2.0,
        ("claude_transport_connects_total", (service, ("error_type", STRANGE))): 1.0,
    }
    assert families["claude_transport_cost_usd_total"].samples == {("claude_transport_cost_usd_total", (service,)): 0.25}
    assert families["claude_transport_connect_seconds"].samples == {
        ("claude_transport_connect_seconds_sum", (service,)): 1.5,
        ("claude_transport_connect_seconds_count", (service,)): 2.0,
    }


def test_the_same_reader_gets_the_numbers_of_a_gateway() -> None:
    families = read(a_gateway())
    assert {name.removeprefix("claude_transport_gateway_"): family.kind for name, family in families.items()} == {
        **dict.fromkeys(("connections_total", "refused_total", "sessions_total", "sessions_ended_total"), "counter"),
        **dict.fromkeys(("lines_total", "bytes_total", "resumed_total"), "counter"),
        **dict.fromkeys(("active_sessions", "detached_sessions", "half_open"), "gauge"),
    }
    samples = {sample: value for family in families.values() for sample, value in family.samples.items()}
    assert samples == {
        ("claude_transport_gateway_connections_total", (("medium", "unix"),)): 2.0,
        ("claude_transport_gateway_refused_total", (("code", STRANGE),)): 1.0,
        ("claude_transport_gateway_lines_total", (("direction", "in"),)): 3.0,
        ("claude_transport_gateway_bytes_total", (("direction", "in"),)): 40.0,
        ("claude_transport_gateway_resumed_total", ()): 0.0,
        ("claude_transport_gateway_active_sessions", ()): 0.0,
        ("claude_transport_gateway_detached_sessions", ()): 0.0,
        ("claude_transport_gateway_half_open", ()): 4.0,
    }


@pytest.mark.parametrize("write", [a_session, a_gateway])
def test_every_family_says_what_it_is(write: Callable[[], str]) -> None:
    for name, family in read(write()).items():
        assert family.doc.endswith("."), name
        assert family.kind in {"counter", "gauge", "summary"}, name


def test_a_help_text_and_a_label_keep_every_character() -> None:
    families = read(family_text("a", "gauge", STRANGE, [Sample(1, {"b": STRANGE}), Sample(0.5, {"b": "\ud800"})]))
    assert families["a"].doc == STRANGE
    assert families["a"].samples == {("a", (("b", STRANGE),)): 1.0, ("a", (("b", "?"),)): 0.5}


def test_the_page_of_a_gateway_has_the_content_type_of_the_format() -> None:
    page = Gateway(command=["true"]).page("/metrics", token=None)
    assert page is not None
    assert page.headers["content-type"] == CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert set(read(page.text)) == set(read(a_gateway()))
