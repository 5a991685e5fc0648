"""`WireCheck`: counts what lines of a conversation say that the schemas do not, by message and path."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import msgspec

from claude_transport.protocol.envelope import JSONTextError, parse_json
from claude_transport.wire.documents import WireDirection, schema_on_tape, wire_range
from claude_transport.wire.walk import Difference, Kind, Walker

MAX_FINDINGS: Final = 1000
"""Findings that are kept. A peer that makes up names could fill the memory otherwise."""
_OF_A_KIND: Final = 60
"""Characters of a type or subtype that are kept."""


class WireFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One place of one kind of message that differs from the schema, and how often.

    `kind`: `unknown` (a field or a type that the schema does not have), `missing` (a required field), `type` (a value of another type),
    `unreadable` (a line that is not a JSON object). `message` is the type of the line, with its subtype: `assistant`, `system/init`,
    `control_response/get_plan`. `path` is the place in it; `[]` is any item of a list, and `*` any key of a mapping. `expected` and `found`
    are the types of JSON; `found` of an unknown type of message is its name.
    """

    kind: Kind
    direction: WireDirection
    message: str
    path: str
    expected: str = ""
    found: str = ""
    count: int = 1


class WireCheck:
    """Compares the lines of a conversation with the schemas of its CLI, and counts the differences in `findings`.

    Feed every line with its direction to `add()`, in their order: what an answer may say depends on its question. `lines` is the number of
    lines so far. A field that is unknown is no mistake of the peer, but something that this library does not know.

    Args:
        cli_version: the version of the CLI, which chooses the schemas; None means the newest ones.

    Raises:
        UsageError: `cli_version` is not a version.
    """

    def __init__(self, *, cli_version: str | None = None) -> None:
        self.cli_version = cli_version
        self.range: str = wire_range(cli_version)
        self.lines: int = 0
        self.unlisted: int = 0
        self._walkers = {direction: Walker(schema_on_tape(direction, cli_version=cli_version)) for direction in _DIRECTIONS}
        self._questions: dict[tuple[WireDirection, str], str] = {}  # who asked, and the request id -> subtype
        self._found: Counter[tuple[WireDirection, str, Difference]] = Counter()

    @property
    def findings(self) -> tuple[WireFinding, ...]:
        """The differences so far, by direction, message and path. There are at most 1000; `unlisted` counts what came after these."""
        found = sorted(self._found.items(), key=lambda item: item[0])
        return tuple([_finding(direction, message, difference, count) for (direction, message, difference), count in found])

    def add(self, direction: WireDirection, line: bytes) -> tuple[WireFinding, ...]:
        """Compare one line, and return what differs in it. `direction` is `in` for a line of the host and `out` for one of the CLI. Blank
        lines do not count.
        """
        if not line.strip():
            return ()
        self.lines += 1
        try:
            message, differences = self._compare(direction, _read(line))
        except RecursionError:
            message, differences = "", [_unreadable("nested too deeply")]
        except ValueError:
            message, differences = "", [_unreadable("not JSON")]
        for difference in differences:
            key = (direction, message, difference)
            if key in self._found or len(self._found) < MAX_FINDINGS:
                self._found[key] += 1
            else:
                self.unlisted += 1
        return tuple([_finding(direction, message, difference, 1) for difference in differences])

    def _compare(self, direction: WireDirection, value: Any) -> tuple[str, list[Difference]]:
        """Return the name of the message, and what differs."""
        if not isinstance(value, dict):
            return "", [_unreadable("JSON, but no object")]
        differences = self._walkers[direction].differences(value)
        message = _name(value.get("type"))
        request, reply = value.get("request"), value.get("response")
        if message == "system":
            return f"{message}/{_name(value.get('subtype'))}", differences
        if message == "control_request" and isinstance(request, dict):
            return f"{message}/{self._note_question(direction, value, request)}", differences
        if message == "control_response" and isinstance(reply, dict):
            subtype = self._questions.get(("in" if direction == "out" else "out", _id_in(reply)))
            if subtype is not None:
                return f"{message}/{_name(subtype)}", differences + self._compare_payload(direction, subtype, reply)
        return message, differences

    def _note_question(self, direction: WireDirection, value: dict[str, Any], request: dict[str, Any]) -> str:
        """Keep what was asked, for the answer. Returns the name of the question."""
        subtype, given = request.get("subtype"), request.get("input")
        self._questions[direction, _id_in(value)] = str(subtype)
        if subtype == "hook_callback" and isinstance(given, dict) and "hook_event_name" in given:
            return f"{subtype}/{_name(given['hook_event_name'])}"
        return _name(subtype)

    def _compare_payload(self, direction: WireDirection, subtype: str, reply: dict[str, Any]) -> list[Difference]:
        """Compare what a successful answer carries with what its question asked for."""
        payload, definition = reply.get("response"), f"answer.{subtype}"
        walker = self._walkers[direction]
        if reply.get("subtype") != "success" or not isinstance(payload, dict) or not walker.knows(definition):
            return []
        return [one._replace(path=f"response.response.{one.path}") for one in walker.differences(payload, definition)]


_DIRECTIONS: Final[tuple[WireDirection, ...]] = ("in", "out")


def find_cli_version(lines: Iterable[bytes]) -> str | None:
    """Return the version that a CLI names in its lines; None when it names none."""
    for line in lines:
        if b'"claude_code_version"' not in line:
            continue
        try:
            value, _ = parse_json(line)
        except JSONTextError:
            continue
        reply = value.get("response") if isinstance(value, dict) else None
        payload = reply.get("response") if isinstance(reply, dict) else None
        for holder in (value, payload):
            version = holder.get("claude_code_version") if isinstance(holder, dict) else None
            if isinstance(version, str):
                return version
    return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_strict = json.JSONDecoder(parse_constant=_refuse)


def _read(line: bytes) -> Any:
    """Read a line as any language does: NaN, bare control characters and bytes that are not UTF-8 are no JSON; half a pair is."""
    return _strict.decode(line.decode("utf-8"))


def _unreadable(found: str) -> Difference:
    return Difference("unreadable", "", "", found)


def _finding(direction: WireDirection, message: str, difference: Difference, count: int) -> WireFinding:
    return WireFinding(direction=direction, message=message, count=count, **difference._asdict())


def _id_in(value: dict[str, Any]) -> str:
    return str(value.get("request_id"))


def _name(value: object) -> str:
    return value[:_OF_A_KIND] if isinstance(value, str) else "?"
