"""Write the page of all error codes from the code that raises them: `python docs/generate_codes.py`.

A class has its code as an attribute. The code of a particular failure is found by reading the source. Its meaning is in `MEANINGS`; a code
without a meaning is an error, and so is a meaning without a code. The page is committed, and a test compares it with the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from claude_transport import errors
from claude_transport.completion.resolution import MATRIX
from claude_transport.protocol.diagnosis import ReportedFailure
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.testing.tape_shelf import TapeMissing
from claude_transport.wrappers.failover import AllTransportsFailed

sys.path.insert(0, str(Path(__file__).parent))

from generate_met_errors import anchor, index

__all__ = ["MEANINGS", "PAGE", "found_codes", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "codes.md"
ERRORS = [name for name in errors.__all__ if not name.endswith("Warning")]
PACKAGE = Path(__file__).parent.parent / "claude_transport"

INTRODUCTION = """\
# Every code

<!-- Written by docs/generate_codes.py from claude_transport/errors.py and the places where errors are raised: change those, and run it
again. -->

`error.code` is for programs and stays the same between releases; the text of a message is for people and may change. An error without a
code of its own has the code of its class. [Errors and their codes](errors-and-codes.md) is ordered by causes, and says what is retried.

*Retryable*: whether the same call may succeed when it is made again; *it depends* when only the error itself can tell.

*Reason* is where `error.reason` comes from, in this order: *said*, what the other side said with the failure; *result*, the text of the
failed result, or its first error; *stderr*, the end of standard error. When there is none of these, it is what the nearest `__cause__`
says: the system, or a transport of your own. It is empty when nothing is known.
"""

PATTERNS = """\
## Codes with a variable part

"""

REFUSALS = "[refusals](link-protocol.md#what-a-gateway-refuses)"

MADE: Mapping[str, tuple[str, str]] = {
    "connect.http_…": (
        "`CLIConnectionError`",
        "The status with which a server refused a WebSocket: `connect.http_502`. 401 and 403 have codes of their own.",
    ),
    "connection.…": (
        "`ConnectionLost`",
        "Why a server ended a session: `connection.line_too_long`. Our gateway uses {reasons}, and the codes of its {refusals}.",
    ),
    "fleet.…": (
        "`ConnectionLost`, `CLIConnectionError`",
        "Why a worker ended a session of a fleet, or refused it: `fleet.stopped`, `.lease`, `.failed`, `.start`, and its {refusals}.",
    ),
    "gateway.…": ("`TurnedAway`", "Raised by `Gateway.check_upgrade()` for an adapter, with a code of its {refusals}."),
}
"""Patterns for codes that cannot be listed: the class, and the meaning of the variable part."""

ENDINGS: Mapping[str, str] = {
    "ended": "the process ended",
    "client": "the client closed the session",
    "lease": "the client did not come back in time",
    "failed": "an error on the way",
}
"""The reasons for which a gateway ends a session, besides its refusals and its own end (`closed_by_server`)."""

MEANINGS: Mapping[str, str] = {
    "bridge.host_gone": "The program whose tools a bridge forwards has ended.",
    "bridge.host_unreachable": "A bridge could not reach the address of its host, or was not admitted in time.",
    "bridge.protocol": "The other side at the address of a bridge speaks another protocol.",
    "bridge.refused": "The host refused this bridge because of its token, or of the name of the server.",
    "bridge.too_large": "A host sent a message over the limit of a bridge.",
    "completion.unexpected": "A call failed with an error that is not from this library or the API client; see the `__cause__`.",
    "config.missing_extra": "An option needs a package that is not installed; the message names the extra.",
    "config.no_agent": "The agent was to be found, and neither a claude nor a codex can be run.",
    "config.no_auth_path": "There is neither a claude nor an API key, so no path can be used.",
    "config.plugin_failed": "A plug-in was asked for and cannot be used; the message names its distribution.",
    "config.unsupported_event_loop": "This event loop cannot start processes: on Windows, the selector loop of asyncio.",
    "connect.forbidden": "The system does not allow the connection, or the server answered HTTP 403.",
    "connect.hung_up": "The server closed the connection during the WebSocket handshake.",
    "connect.not_a_link": "The server does not speak the link protocol.",
    "connect.not_websocket": "The server does not speak WebSocket.",
    "connect.refused": "No server listens at the address.",
    "connect.tls_failed": "The TLS handshake failed, or the server closed the connection during it.",
    "connect.tls_untrusted": "The certificate of the server is not trusted for this address.",
    "connect.unresolved": "The name of the host has no address.",
    "connect.version": "The server speaks a version of the link protocol that this library does not know.",
    "connection.closed_by_server": "The gateway ended, and closed its sessions before. Resume the session at another gateway.",
    "connection.input_lost": "The remote process ended well, but did not get everything that was sent.",
    "doctor.other_api": "The tested claude did not call the API of the checkup, because managed settings send it elsewhere.",
    "exec.cli.permission_denied": "The permissions did not allow what the run needed, or root asked to bypass them.",
    "exec.cli.timeout": "There was no complete answer in time.",
    "fleet.broker_lost": "The broker of a fleet was not reached again, or took no call, for as long as this end waits.",
    "fleet.broker_unreachable": "The broker of a fleet could not be reached at all.",
    "fleet.fenced": "Another client, or another worker, has taken the place of this end of a session.",
    "fleet.gone": "The broker does not know the session: it has ended, or the broker has started again without its data.",
    "fleet.line_too_long": "A line in the broker has no end within the limit of its reader.",
    "fleet.malformed": "The broker holds a key, an entry, a field or an answer that no client and no worker of this library writes.",
    "fleet.no_session": "The fleet has no session of this id: it has ended, or never began.",
    "fleet.no_worker": "The worker of a session is gone, and no other one took it in time.",
    "fleet.refused": "The broker refused a command, for example because its user may not run scripts.",
    "fleet.stale": "An entry of an older worker follows one of a newer worker: the broker has lost the change between them.",
    "fleet.version": "The workers of a fleet, or a session, have a version of the format that is not known here. The message has both.",
    "internal": "In `doctor --json`: an error that is not from this library.",
    "link.malformed": "The peer of a link sent something that its protocol does not allow.",
    "link.numbers": "A position on a link does not follow the one before: data is missing, or was never sent.",
    "link.window": "The peer of a link sent more unacknowledged data than its window allows.",
    "output.failed": "The program could not write to stdout: the disk is full, or the stream is closed.",
    "pool.exhausted": "No session of the pool was free in time; the message has a snapshot of the pool.",
    "pool.not_warm": "The pool did not have the requested number of sessions ready in time.",
    "protocol.compression": "A compressed stream cannot be decompressed, or continues after its end.",
    "protocol.message_too_big": "A WebSocket message is larger than the limit of its reader.",
    "protocol.websocket": "The peer broke the WebSocket protocol.",
    "result.cancelled": "A queued message was cancelled before Claude worked on it.",
    "result.connection_failed": "The CLI or the API client could not reach the API.",
    "result.invalid_request": "The API refused the request as invalid.",
    "result.max_output_tokens": "The answer exceeded the maximum number of output tokens.",
    "result.server_error": "The API failed.",
    "result.startup_failed": "The session could not be started.",
    "result.structured_output_invalid": "The model did not produce output that fits the schema.",
    "transport.failed": "A transport or a wrapper raised an exception that is not from this library; see the `__cause__`.",
    "transport.stalled": "A watchdog ended a conversation that made no progress.",
    "session_store.failed": "The session store failed, or did not answer in time, before a session could be resumed from it.",
    "usage.callback_failed": "A callback raised a `BaseException` that is not an `Exception`, which ended its conversation.",
    "usage.guards_need_input": "The input cannot end while hooks guard running work: this CLI would go on without asking.",
    "usage.running_loop": "A blocking call (`complete_sync()`, `stream_sync()`, `SyncQuery`, `SyncCodexSession`) was made where an "
    "event loop runs, "
    "which it would block. Use `complete()`, `stream()`, `Query` or `CodexSession` there.",
    "usage.wrong_loop": "A query, a pool or a JSON-RPC peer was used from another event loop than its own.",
}
"""The meaning of codes that belong to a particular failure."""

NAMED = {"_TIMEOUT_CODE": "exec.cli.timeout"}
"""Constants that are used in place of a code."""

OTHER_CLASSES: tuple[type[errors.ClaudeTransportError], ...] = (AllTransportsFailed, TurnedAway, ExpectationFailed, TapeMissing)
"""Errors outside of the public tree that have a code of their own."""


class Raised(NamedTuple):
    """One place that gives a code: the class, its category, and whether it may be retried (None: unspecified)."""

    kind: str
    category: str | None
    retryable: str | None


def found_codes() -> dict[str, set[Raised]]:
    """Return every code that is given to an error where it is raised, with these places."""
    found: dict[str, set[Raised]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                for code in codes_in(given.get("code")):
                    found.setdefault(code, set()).add(raised_by(node, given))
    for cells in MATRIX.values():
        for cell in cells.values():
            if cell.code and cell.failure == "preflight":
                found.setdefault(cell.code, set()).add(Raised("ConfigurationError", None, None))
    # two that are given by way of a variable
    for code in ("protocol.message_too_big", "protocol.websocket"):
        found.setdefault(code, set()).add(Raised("ProtocolError", None, None))
    return {code: places for code, places in found.items() if {place.kind for place in places} & set(ERRORS)}


def codes_in(value: ast.expr | None) -> Iterator[str]:
    """Yield the codes that an expression can be seen to give."""
    match value:
        case ast.Constant(value=str(code)):
            yield code
        case ast.IfExp(body=one, orelse=other):
            yield from codes_in(one)
            yield from codes_in(other)
        case ast.Name(id=name) if name in NAMED:
            yield NAMED[name]
        case _:
            pass


def raised_by(call: ast.Call, given: Mapping[str | None, ast.expr]) -> Raised:
    """Return the class that a call makes, or passes to a function that makes it, with the arguments that matter."""
    name = ast.unparse(call.func)
    if name in ("_worded", "_Failure"):
        name = ast.unparse(call.args[0]).replace("type(error)", "ResultError")  # which one it is, it stays
    category, retryable = given.get("category"), given.get("retryable")
    told = ast.literal_eval(category) if isinstance(category, ast.Constant) else None
    if retryable is None:
        return Raised(name.split(".")[-1], told, None)
    lasting = ("yes" if retryable.value else "no") if isinstance(retryable, ast.Constant) else "it depends"
    return Raised(name.split(".")[-1], told, lasting)


def classes_told() -> set[str]:
    """Return the names of the classes that are raised somewhere with what the other side said."""
    calls = (node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    return {ast.unparse(call.func).split(".")[-1] for call in calls if any(keyword.arg == "reason" for keyword in call.keywords)}


def reasons_of(kinds: str, told: set[str]) -> str:
    """Return where these classes find a reason, by asking one of each."""
    found: list[str] = []
    for cls in (getattr(errors, name) for name in kinds.replace("`", "").split(", ") if name in ERRORS):
        known = cls("m")
        found += ["said"] if cls.__name__ in told else []
        found += ["result"] if hasattr(known, "result") and cls("m", result=ReportedFailure(result="x")).reason == "x" else []
        found += ["stderr"] if hasattr(known, "stderr_tail") and cls("m", stderr_tail="x").reason == "x" else []
    return ", ".join(name for name in ("said", "result", "stderr") if name in found) or "cause"


def rows() -> dict[str, list[str]]:
    """Return for each code: classes, categories, whether it may be retried, and its meaning."""
    table = {cls.code: own_row(cls) for cls in (getattr(errors, name) for name in ERRORS)}
    table |= {cls.code: own_row(cls) for cls in OTHER_CLASSES if cls is not TurnedAway}
    found = found_codes()
    particular = set(found) - set(table)
    if missing := particular - set(MEANINGS):
        raise ValueError(f"without words: {sorted(missing)}")
    if unused := set(MEANINGS) - particular:
        raise ValueError(f"words for nothing: {sorted(unused)}")
    for code in particular:
        places = sorted((place for place in found[code] if place.kind in ERRORS), key=lambda place: place.kind)
        kinds = list(dict.fromkeys(place.kind for place in places))
        categories = dict.fromkeys(f"`{place.category or getattr(errors, place.kind).category}`" for place in places)
        again = {place.retryable or ("yes" if getattr(errors, place.kind).retryable else "no") for place in places}
        shown = again.pop() if len(again) == 1 else "it depends"
        table[code] = [", ".join(f"`{kind}`" for kind in kinds), ", ".join(categories), shown, MEANINGS[code]]
    return dict(sorted(table.items()))


def own_row(cls: type[errors.ClaudeTransportError]) -> list[str]:
    """Return the row of a class's own code."""
    meaning = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    return [f"`{cls.__name__}`", f"`{cls.category}`", "yes" if cls.retryable else "no", " ".join(meaning.split()).replace("|", "\\|")]


def render() -> str:
    """Return the page as MyST Markdown."""
    lines = ["| `code` | Class | `category` | Retryable | Reason | When |", "| --- | --- | --- | --- | --- | --- |"]
    told = classes_told()
    met = index()
    printed = {code: f" [As printed](met-errors.md#{anchor(titles[0])})." for code, titles in met.items()}
    for code, (kinds, category, again, meaning) in rows().items():
        cells = [kinds, category, again, reasons_of(kinds, told), f"{meaning}{printed.get(code, '')}"]
        lines.append(f"| `{code}` | {' | '.join(cells)} |")
    reasons = ", ".join(f"`{name}` ({why})" for name, why in ENDINGS.items())
    made = ["| `code` | Class | What the rest is |", "| --- | --- | --- |"]
    made += [f"| `{code}` | {kind} | {rest.format(reasons=reasons, refusals=REFUSALS)} |" for code, (kind, rest) in MADE.items()]
    return "\n".join([INTRODUCTION, *lines, "", PATTERNS.rstrip("\n"), "", *made, ""])


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
