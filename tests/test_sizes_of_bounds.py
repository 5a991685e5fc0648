"""No bound of the package is so large that it bounds nothing."""

from __future__ import annotations

import re
from pathlib import Path

import claude_transport

PACKAGE = Path(claude_transport.__file__).parent
CONSTANT = re.compile(r'^(_?[A-Z][A-Z0-9_]*)(?:: [^=\n]+)? = ([0-9][0-9_.e*+ -]*?)\s*(?:#.*)?\n(?:"""([^"]*)""")?', re.MULTILINE)

MOST = {"seconds": 3600, "bytes": 256 * 2**20, "characters": 64 * 2**20, "number": 100_000}
"""The largest bound of each unit, unless it is in `LARGER`."""

WORDS = {"seconds": "second|timeout|patience|grace", "bytes": "bytes|size", "characters": "chars", "number": "limit|max|most|length|depth"}
"""What is in the name of a bound whose docstring does not begin with its unit."""

LARGER = {
    "app/bench.py MOST_MESSAGES": 10**6,  # of one run of a benchmark, which its user starts
    "client/questions.py _CLI_PATIENCE": 86_400.0,  # longer than this program waits itself
    "client/questions.py _LONGEST_HOOK_TIMEOUT": 2e6,  # the timers of the CLI end at once beyond 2**31 milliseconds
    "fleet/answers.py _MOST": 10**15 - 1,  # what a script of Redis counts exactly
    "fleet/stream.py _UNCLAIMED_SECONDS": 86_400,  # memory of the broker for a session that nobody takes
    "inspection/timeline.py _MAX_LINE_BYTES": 2**31,  # the text of a tape is read in pieces
    "protocol/observation.py _MAX_POSITION": 2**53,  # what JavaScript counts exactly
    "protocol/server_sent_events.py DEFAULT_MAX_EVENT_BYTES": 2**29,
    "redis/resp.py _MAX_ELEMENTS": 2**20,  # of one answer, that are kept
    "sessions/store_entries.py LONGEST_CLAIM": 86_400.0,  # what a program may ask for
    "streams/guard.py _FIRST_LIMIT": 2**61,  # rlimits that mark a process
    "streams/guard.py _LIMITS": 2**60 - 93,
    "testing/conformance/media.py _NEVER": 2**62,  # means never
    "testing/stand_in/tee.py _MOST_WAITING": 64 * 2**20,  # bytes
    "testing/fake_claude_process/mcp.py CALL_SECONDS": 100_000.0,  # the default of the CLI
    "codex/testing/fake_codex_process/frames.py MAX_PROMPT": 2**20,  # characters
    "testing/store_conformance.py _MILLISECONDS": 1e12,  # a time in seconds is far below
    "protocol/token_counts.py _MOST_TOKENS": 10**15,  # what an exporter can count
}


def unit_of(name: str, said: str) -> str | None:
    """Return the unit of a constant: its docstring begins with it, or its name holds a word of it. None when it bounds nothing."""
    begins = (unit for unit in WORDS if re.match(rf"(?i)(?:the |maximum |most )*{unit}\b", said))
    named = (unit for unit, words in WORDS.items() if re.search(words, name, re.IGNORECASE))
    return next(begins, None) or next(named, None)


def test_no_bound_is_as_good_as_none() -> None:
    found = {
        (f"{path.relative_to(PACKAGE).as_posix()} {name}", unit): eval(text)  # digits and operators alone
        for path in PACKAGE.rglob("*.py")
        for name, text, said in CONSTANT.findall(path.read_text("utf-8"))
        if (unit := unit_of(name, said)) is not None
    }
    assert len(found) > 350
    assert {place: value for (place, unit), value in found.items() if value > MOST[unit]} == LARGER
