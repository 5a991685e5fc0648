"""What `claude-transport inspect --html` costs on long tapes: seconds, memory, the size of the page, and when the page can be used.

    python benchmarks/bench_inspect.py                      50 and 100 MB, as the table in docs/how-to/inspect-a-tape.md
    python benchmarks/bench_inspect.py --megabytes 5        a small tape

The tapes repeat the one of that page (docs/generate_inspected.py), with its short messages or with tool results of 100 kB. The program
runs in a process of its own. Where there is a Chromium, the page is opened in it; the time ends when the script of the page has run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from claude_transport.inspection import read_timeline
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord

ROOT = Path(__file__).parent.parent
LARGE = "a line of what a tool said, " * 3600  # 100 kB
HEAD = "| tape | read, and page written | memory of the program | page | open and usable |\n|---|---|---|---|---|"


def one_conversation() -> Tape:
    """Return the tape that the how-to shows."""
    spec = importlib.util.spec_from_file_location("generate_inspected", ROOT / "docs" / "generate_inspected.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tape = module.make_tape()
    assert isinstance(tape, Tape)
    return tape


def repeated(tape: Tape, *, bytes_in_all: int, large: bool) -> Iterator[bytes]:
    """Yield the lines of a tape file: the conversation again and again, each time with new ids."""
    yield TapeHeader(cli_version="2.1.329", scrubbed=True).encode()
    last, size, round_ = tape.records[-1].t, 0, 0
    while size < bytes_in_all:
        for record in tape.records[:-3]:  # without the end of the process
            line = record.line.replace(b"toolu_", b"toolu_%d_" % round_).replace(b'"msg_', b'"msg_%d_' % round_)
            line = line.replace(b"-9a0e-", b"-%04x-" % (round_ % 0x10000)).replace(b'"start"', b'"start_%d"' % round_)
            if large and b'"tool_result"' in line:
                line = line.replace(b"has been updated.", LARGE.encode()).replace(b" passed in ", LARGE.encode())
            encoded = TapeRecord(record.t + round_ * last, record.dir, line).encode()
            size += len(encoded)
            yield encoded
        round_ += 1


def measured(tape: Path, page: Path) -> tuple[float, int]:
    """Run the program, and return its seconds and its peak memory in bytes."""
    began = time.perf_counter()
    program = [sys.executable, "-m", "claude_transport", "inspect", str(tape), "--html", str(page)]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(program)} failed with {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def opened(page: Path) -> str:
    """Return the seconds until the page can be used, as text; the reason, where that cannot be measured."""
    sys.path.append(str(ROOT / "tests"))
    chromium = importlib.import_module("chromium")  # of the tests
    if chromium.chromium_program() is None:
        return "no Chromium here"
    with chromium.running_chromium() as browser:
        began = time.perf_counter()
        with browser.open(page):
            return f"{time.perf_counter() - began:.1f} s"


def row(kind: str, path: Path, *, browser: bool) -> str:
    """Return one line of the table."""
    page = path.with_suffix(".html")
    seconds, memory = measured(path, page)
    timeline = read_timeline(path)
    shown, there = len(timeline.events), timeline.event_count
    events = f"{shown:,} events" if shown == there else f"{shown:,} of {there:,} events"
    name = f"{path.stat().st_size / 1e6:.0f} MB of {kind}, {timeline.summary.records:,} records"
    usable = opened(page) if browser else "not tried"
    return f"| {name} | {seconds:.1f} s | {memory / 1e6:.0f} MB | {page.stat().st_size / 1e6:.1f} MB, {events} | {usable} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 100], help="sizes of the tapes")
    parser.add_argument("--no-browser", action="store_true", help="do not open the pages")
    given = parser.parse_args()
    tape = one_conversation()
    print(HEAD)
    for megabytes in given.megabytes:
        for kind, large in (("short messages", False), ("large tool results", True)):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "long.ndjson")
                with path.open("wb") as file:
                    file.writelines(repeated(tape, bytes_in_all=megabytes * 1_000_000, large=large))
                print(row(kind, path, browser=not given.no_browser), flush=True)


if __name__ == "__main__":
    main()
