"""The benchmarks run: very little of each, so that a change that breaks one is seen before somebody needs its figures."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk")

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "benchmarks" / "bench_speed.py"
DOCS = ROOT / "docs" / "benchmarks"
NAMES = ("reading", "carrying", "conversing", "waking", "sessions", "gateway", "mixed", "importing", "memory", "idle", "curve")


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Gives the modules of the benchmarks by name: they are scripts, not a package that is installed."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return lambda name: importlib.import_module(f"speed.{name}")


@pytest.mark.parametrize("part", NAMES)
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.nightly)])
def test_every_benchmark_runs_and_measures_something(backend: str, part: str) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--backend", backend, "--only", part]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    found: dict[str, Any] = json.loads(ran.stdout)["backends"][backend]
    assert list(found) == [part]
    if part == "memory":
        assert all(row["samples_mb"] for row in found[part].values())
    elif part == "idle":
        assert all(len(samples) == 2 for samples in found[part]["idle sessions"]["rows"]["ours"]["samples_mb"])
    else:
        ratios = {(name, way): ratio for name, table in found[part].items() for way, ratio in table["ratios"].items()}
        assert ratios
        assert {place: ratio for place, ratio in ratios.items() if not ratio["median"] > 0} == {}


def test_a_run_that_was_stopped_goes_on_with_what_is_left_and_only_under_the_same_conditions(
    tmp_path: Path, speed: Callable[[str], Any]
) -> None:
    run = speed("run")
    about = {"python": "3", "system": "any", "cpus": 2, "rounds": 0, "scale": 0.002, "source": "", "versions": {}}
    asked: dict[str, Any] = {"backends": ["asyncio"], "names": ["waking"]}
    first = run.run_parts(tmp_path, about=about, **asked, resume=False)
    assert first["failed"] == []
    again = run.run_parts(tmp_path, about={**about, "started": "later"}, **asked, resume=True)
    assert again["about"]["sittings"] == 2
    assert again["backends"] == first["backends"]  # to the last digit: nothing was measured again
    with pytest.raises(run.NotResumable, match="differs in scale"):
        run.run_parts(tmp_path, about={**about, "scale": 1.0}, **asked, resume=True)


def test_a_part_that_fails_is_named_and_does_not_end_the_run(tmp_path: Path, speed: Callable[[str], Any]) -> None:
    about = {"python": "3", "system": "any", "cpus": 2, "rounds": 0, "scale": 0.002, "source": "", "versions": {}}
    asked: dict[str, Any] = {"about": about, "backends": ["asyncio"], "names": ["nothing", "waking"], "resume": False, "apart": False}
    report = speed("run").run_parts(tmp_path, **asked)
    assert report["failed"] == ["asyncio: nothing"]
    assert list(report["backends"]["asyncio"]) == ["waking"]


def test_every_target_is_about_a_figure_of_the_published_report_and_has_a_floor_below_it(speed: Callable[[str], Any]) -> None:
    report = published_report()
    for backend in ("asyncio", "trio"):
        for target in speed("targets").TARGETS:
            assert target.figure(report["backends"][backend]) > 0
            assert target.floor < target.least


def test_the_check_holds_what_was_reached_only_where_a_target_is_missed(speed: Callable[[str], Any]) -> None:
    by_name = {target.what: target for target in speed("targets").TARGETS}
    for what, reached in speed("targets").REACHED.items():
        assert 0 < reached < by_name[what].nearly


def test_a_target_that_may_be_met_in_two_ways_is_as_far_as_the_better_of_them(speed: Callable[[str], Any]) -> None:
    targets = speed("targets")
    ways = (targets.Target("share", ("a",), 0.6), targets.Target("GB/s", ("b",), 1.0))
    either = targets.Either("forwarding", ("a",), 1.0, ways)
    assert either.figure({"a": {"median": 0.3}, "b": {"median": 1.2}}) == pytest.approx(1.2)
    assert either.figure({"a": {"median": 0.9}, "b": {"median": 0.2}}) == pytest.approx(1.5)
    assert either.shown({"a": {"median": 0.3}, "b": {"median": 1.2}}) == "0.30 share or 1.20 GB/s"


def test_a_target_that_is_a_most_is_met_below_it_and_says_what_was_measured(speed: Callable[[str], Any]) -> None:
    within = speed("targets").AtMost("arrives within", ("a",), most=20.0, unit=" ms")
    assert within.figure({"a": {"median": 10.0}}) == pytest.approx(2.0)
    assert within.figure({"a": {"median": 25.0}}) < within.floor < within.least
    assert (within.shown({"a": {"median": 25.0}}), within.wanted) == ("25.00 ms", "at most 20.00 ms")
    times = speed("targets").AtMost("times theirs", ("a",), most=0.55, inverse=True)
    assert times.figure({"a": {"median": 2.0}}) == pytest.approx(1.1)
    assert times.shown({"a": {"median": 2.0}}) == "0.50"


def test_small_messages_are_compared_by_the_fastest_rounds_which_a_busy_minute_does_not_change(speed: Callable[[str], Any]) -> None:
    cost, fastest = speed("harness").Cost, speed("harness").fastest
    costs = {"limit": [cost(2.0, 9.0), cost(1.0, 3.0), cost(2.0, 2.0)], "ours": [cost(2.0, 4.0), cost(4.0, 8.0), cost(4.0, 4.0)]}
    assert fastest(costs, "limit", "ours")["median"] == pytest.approx(0.5)
    assert fastest(costs, "limit", "ours", clock="wall")["median"] == pytest.approx(0.5)
    by_name = {target.what: target for target in speed("targets").TARGETS}
    for clock, place in (("", ()), (", by the clock", ("wall",))):
        target = by_name[f"small messages typed, through Query, against the official client{clock}"]
        assert target.place == ("reading", "delta, 263 B", "ratios", "official / ours, Query, typed", "fastest", *place)


@pytest.mark.parametrize(("by_time", "by_instructions", "figure"), [(0.35, 0.7, 1.0), (0.7, 0.0, 1.0), (0.35, 0.0, 0.5)])
def test_small_messages_beside_the_limit_count_by_time_or_by_instructions(
    speed: Callable[[str], Any], by_time: float, by_instructions: float, figure: float
) -> None:
    (target,) = [target for target in speed("targets").TARGETS if target.what == "small messages typed, against the limit"]
    table = {"paired": {"limit / ours, typed": {"median": by_time}}, "instructions": {"median": by_instructions}}
    assert target.figure({"reading": {"delta, 263 B": table}}) == pytest.approx(figure)


def test_the_instructions_of_a_message_are_the_difference_of_two_runs(
    speed: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in the place of valgrind counts 9 for each message of the limit, and 12 for one of ours, beside 1,000 for all else."""
    counted = speed("instructions")
    fake = tmp_path / "valgrind"
    fake.write_text(
        '#!/bin/sh\neval "n=\\${$#}"\ncase "$*" in *" limit "*) each=9 ;; *) each=12 ;; esac\n'
        'echo "==7== Collected : $((1000 + n * each))" >&2\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert counted.compared(tmp_path, "asyncio") == {"limit": 9.0, "ours": 12.0, "median": 0.75}
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert counted.compared(tmp_path, "asyncio") == counted.UNKNOWN


def test_a_first_conversation_is_compared_with_the_official_one_and_with_a_loop_of_asyncio(speed: Callable[[str], Any]) -> None:
    taken = {"nothing": 10, "an empty event loop": 110, "an empty loop of asyncio": 70, "ours": 170, "official": 710}
    found = speed("importing").with_added({"rows": {name: {"samples_us": [[us, us]]} for name, us in taken.items()}})
    assert {name: ratio["median"] for name, ratio in found["added_ratios"].items()} == {
        "official / ours": 10.0,
        "asyncio's loop / ours": 1.0,
    }
    targets = [target for target in speed("targets").TARGETS if "first conversation" in target.what]
    assert [target.figure({"importing": {"first conversation": found}}) for target in targets] == pytest.approx([10.0, 1.0])


def test_a_check_measures_each_part_apart_and_only_the_tables_that_are_wanted(speed: Callable[[str], Any]) -> None:
    found = speed("parts").measure_apart("conversing", backend="asyncio", rounds=0, scale=0.002, wanted={"connect and close"})
    assert list(found) == ["connect and close"]
    assert found["connect and close"]["ratios"]["official / ours"]["median"] > 0


def test_a_check_measures_again_what_is_under_its_floor_and_nothing_else_while_there_is_time(speed: Callable[[str], Any]) -> None:
    target = speed("targets").Target
    targets = [target("good", ("reading", "small"), 1.0), target("bad", ("reading", "large"), 1.0), target("other", ("waking", "all"), 1.0)]
    asked: list[tuple[str, list[str]]] = []
    is_over = False

    def measure(part: str, tables: set[str]) -> dict[str, Any]:
        asked.append((part, sorted(tables)))
        return {table: {"median": 0.5 if table == "large" else 2.0} for table in tables}

    tries = speed("checking").Tries(targets, measure=measure, is_over=lambda: is_over)
    assert tries({"reading"}) == {"reading": {"small": {"median": 2.0}, "large": {"median": 0.5}}}
    tries({"reading"})
    is_over = True
    found = tries(["reading", "waking"])  # what has never been measured is, however late it is
    assert asked == [("reading", ["large", "small"]), ("reading", ["large"]), ("waking", ["all"])]
    assert found["reading"]["small"] == {"median": 2.0}


def test_a_check_measures_all_event_loops_before_it_measures_anything_again(speed: Callable[[str], Any]) -> None:
    """So what slows the machine for a minute does not decide. The best of three figures counts."""
    targets = [speed("targets").Target("steady", ("reading",), 1.0), speed("targets").Target("noisy", ("waking",), 1.0)]
    order: list[tuple[str, list[str]]] = []
    figures = {"asyncio": [0.5, 0.9], "trio": [0.2, 0.3, 0.4]}

    def measure_on(loop: str, names: set[str]) -> dict[str, Any]:
        order.append((loop, sorted(names)))
        return {"reading": {"median": 1.0}, "waking": {"median": figures[loop].pop(0)}}

    broken = speed("report").check({loop: functools.partial(measure_on, loop) for loop in list(figures)}, targets)
    both, noisy = ["reading", "waking"], ["waking"]
    assert order == [("asyncio", both), ("trio", both), ("asyncio", noisy), ("trio", noisy), ("trio", noisy)]
    assert broken == ["trio: noisy: 0.40"]


@pytest.mark.parametrize(("ours", "theirs", "met"), [(19.0, 20.0, True), (90.0, 400.0, True), (30.0, 60.0, False)])
def test_many_sessions_are_quick_or_four_times_quicker_than_the_official_client(
    speed: Callable[[str], Any], ours: float, theirs: float, met: bool
) -> None:
    (target,) = [target for target in speed("targets").TARGETS if "messages of 400 sessions" in target.what]
    rows = {"ours": {"p99_ms": {"median": ours}}, "official": {"p99_ms": {"median": theirs}}}
    assert (target.figure({"sessions": {"400": {"rows": rows}}}) >= 1.0) is met
    assert target.shown({"sessions": {"400": {"rows": rows}}}) == f"{ours:.2f} ms at 99 % or {ours / theirs:.2f} of the official client's"


def test_the_verdicts_follow_from_the_figures(tmp_path: Path, speed: Callable[[str], Any]) -> None:
    report = published_report()
    for table in report["backends"]["trio"]["reading"].values():
        for ratio in table["ratios"].values():
            ratio["median"] = ratio["fastest"]["median"] = ratio["fastest"]["wall"]["median"] = 100.0
    report["backends"]["trio"]["conversing"]["connect and close"]["ratios"]["official / ours"]["median"] = 0.25
    speed("figures").write_figures(report, tmp_path / "figures")
    text = (tmp_path / "figures").read_text("utf-8")
    (dicts,) = [line for line in text.splitlines() if line.startswith("| small messages as dicts, against the official SDK |")]
    assert "| 100 |" in dicts
    assert dicts.endswith(("| met |", "trio: met |"))
    assert "ours takes 4.00 times as much on trio" in text or "and 4.00 times as much on trio" in text
    slow = published_report()
    slow["backends"]["trio"]["reading"]["delta, 263 B"]["ratios"]["official / ours, dicts"]["fastest"]["median"] = 0.1
    speed("figures").write_figures(slow, tmp_path / "figures")
    (dicts,) = [
        line
        for line in (tmp_path / "figures").read_text("utf-8").splitlines()
        if line.startswith("| small messages as dicts, against the official SDK |")
    ]
    assert dicts.endswith(("| missed |", "trio: missed |"))


def test_the_page_and_the_charts_are_made_of_the_published_report(tmp_path: Path, speed: Callable[[str], Any]) -> None:
    report = published_report()
    speed("figures").write_figures(report, tmp_path / "figures")
    assert (tmp_path / "figures").read_text("utf-8") == (DOCS / "speed-figures.inc").read_text("utf-8")
    speed("figures").write_summary(report, tmp_path / "summary")
    assert (tmp_path / "summary").read_text("utf-8") == (DOCS / "speed-summary.inc").read_text("utf-8")
    assert speed("chart").draw(report) == (DOCS / "speed.svg").read_text("utf-8")
    assert speed("curves").draw_curves(report) == (DOCS / "speed-curves.svg").read_text("utf-8")


def published_report() -> dict[str, Any]:
    report: dict[str, Any] = json.loads((DOCS / "speed.json").read_text("utf-8"))
    return report
