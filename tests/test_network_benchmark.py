"""The benchmark of the network runs, and its page is made of its report."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shares import share

pytest.importorskip("websockets")
pytest.importorskip("trustme")
pytest.importorskip("trio")

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "benchmarks" / "bench_network.py"
DOCS = ROOT / "docs" / "benchmarks"
MEDIA = ("tcp", "unix", "tls", "tcp+zstd", "ws", "wss", "ws+deflate", "link over tcp", "link over ws", "gateway, tcp, plain")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Gives the modules of the benchmark by name: they are scripts, not a package that is installed."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return lambda name: importlib.import_module(f"wire.{name}")


@pytest.mark.skipif(sys.platform == "win32", reason="its other sides are Unix sockets and shells")
@pytest.mark.parametrize("backend", share(["asyncio", "trio"], ci=["asyncio"]))
def test_every_medium_is_measured_beside_a_bare_socket(backend: str) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--backend", backend]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    found: dict[str, Any] = json.loads(ran.stdout)["backends"][backend]
    assert list(found) == ["downstream", "downstream, undecoded", "round trip"]
    for table in found.values():
        assert {f"{medium} / bare socket" for medium in MEDIA} < set(table["ratios"])
        assert all(ratio["median"] > 0 for ratio in table["ratios"].values())
        assert ("websockets / ws" in table["ratios"]) == (backend == "asyncio")


def test_every_target_is_about_a_figure_of_the_published_report(network: Callable[[str], Any]) -> None:
    report = json.loads((DOCS / "network.json").read_text("utf-8"))
    for backend in ("asyncio", "trio"):
        for target in network("targets").TARGETS:
            assert target.figure(report["backends"][backend]) > 0
            assert target.floor < target.least


def test_the_tables_of_the_page_are_made_of_the_published_report(tmp_path: Path, network: Callable[[str], Any]) -> None:
    report = json.loads((DOCS / "network.json").read_text("utf-8"))
    network("figures").write_figures(report, tmp_path / "figures")
    made, published = (path.read_text("utf-8") for path in (tmp_path / "figures", DOCS / "network-figures.inc"))
    first = "## Messages downstream"
    assert first in made
    assert made.partition(first)[2] == published.partition(first)[2]
