"""`claude-transport wire`: what a claude says that the schemas of this library do not, and the schemas themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import anyio.to_thread
import msgspec

from claude_transport.agents.registry import agent_of
from claude_transport.app.event_loop import run_interruptibly, run_on
from claude_transport.app.failures import EXIT_FAILED, EXIT_OK, PROGRAM
from claude_transport.app.standard_streams import write_out, write_remark
from claude_transport.app.terminal import json_for_terminals, one_line
from claude_transport.errors import ConfigurationError
from claude_transport.inspection.wording import plural
from claude_transport.launch.discovery import ask_cli_version, find_cli
from claude_transport.protocol.tape import Tape, without_withdrawn
from claude_transport.wire.check import WireCheck, WireFinding, find_cli_version
from claude_transport.wire.documents import WireDirection, read_document, wire_range

Line = tuple[WireDirection, bytes]

_DIRECTIONS: Final[tuple[WireDirection, ...]] = ("in", "out")
_MAX_CELL: Final = 200
"""Characters of a cell. Names of fields are what a peer says."""


class WireReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `ok` is True when nothing differs and the conversation came to its end; `left` names what did not.

    `range` is the first version of the range whose schemas were used; `unlisted` counts differences beyond the first 1000.
    """

    ok: bool
    cli_version: str | None
    range: str
    lines: int
    findings: tuple[WireFinding, ...]
    unlisted: int = 0
    left: tuple[str, ...] = ()


def run(args: SimpleNamespace) -> int:
    """Check, or print a schema. Returns 0 when nothing differs, else 1.

    Raises `ConfigurationError` if there is no claude, or the file is neither a tape nor lines of JSON.
    """
    if args.action == "schema":
        _refuse_what_is_for_checks(args)
        write_out(read_document(wire_range(args.cli_version), args.direction).decode().removesuffix("\n"))
        return EXIT_OK
    if args.tape is not None and args.claude_binary is not None:
        raise ConfigurationError("wire check takes a TAPE or --claude-binary, and not both", option="claude_binary")
    if args.tape is None:
        return run_on(args.backend, partial(_check_binary, args))
    said, lines = _read(args.tape, args.direction)
    version = args.cli_version or said or find_cli_version(line for _, line in lines)
    return _show(args, version, lines, left=())


def _refuse_what_is_for_checks(args: SimpleNamespace) -> None:
    if args.tape is not None or args.claude_binary is not None:
        raise ConfigurationError("wire schema takes no TAPE and no --claude-binary: it only prints a schema", option="tape")


async def _check_binary(args: SimpleNamespace) -> int:
    from claude_transport.app.wire_conversation import WireConversation

    path = find_cli(args.claude_binary).path
    version = args.cli_version or await anyio.to_thread.run_sync(ask_cli_version, path)
    conversation = WireConversation(path, version=version)

    async def work() -> int:
        await conversation.hold(timeout=args.timeout)
        return _show(args, version, conversation.lines, left=conversation.left)

    return await run_interruptibly(work, give_up=conversation.give_up)


def _show(args: SimpleNamespace, version: str | None, lines: Sequence[Line], *, left: Sequence[str]) -> int:
    check = WireCheck(cli_version=version)
    for direction, line in lines:
        check.add(direction, line)
    report = WireReport(
        ok=not check.findings and not left,
        cli_version=version,
        range=check.range,
        lines=check.lines,
        findings=check.findings,
        unlisted=check.unlisted,
        left=tuple(left),
    )
    if args.json:
        write_out(json_for_terminals(msgspec.json.format(msgspec.json.encode(report))).decode())
    else:
        for row in _rows(report.findings):
            write_out(row)
        _remark(report)
    return EXIT_OK if report.ok else EXIT_FAILED


def _rows(findings: Sequence[WireFinding]) -> Iterator[str]:
    """Yield one line for each finding, in columns: kind, count, direction, message, path, and the types."""
    cells = [(each.kind, f"{each.count}x", each.direction, each.message or "-", each.path or "-", _types(each)) for each in findings]
    short = [[one_line(cell, width=_MAX_CELL) for cell in row] for row in cells]
    widths = [max(len(cell) for cell in column) for column in zip(*short, strict=True)]
    for row in short:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _types(finding: WireFinding) -> str:
    if finding.kind == "missing":
        return ""
    return f"{finding.found}, not {finding.expected}" if finding.expected else finding.found


def _remark(report: WireReport) -> None:
    for what in report.left:
        write_remark(f"{PROGRAM}: {one_line(what, width=_MAX_CELL)}")
    if report.unlisted:
        write_remark(f"{PROGRAM}: {report.unlisted} more differences are not listed")
    count = sum(finding.count for finding in report.findings) + report.unlisted
    differs = "nothing differs" if not count else f"{plural(count, 'difference')} in {plural(len(report.findings), 'place')}"
    who = f"claude {one_line(report.cli_version, width=40)}" if report.cli_version else "a claude of unknown version"
    write_remark(f"{PROGRAM}: {who}, {plural(report.lines, 'line')}, compared with the schemas of {report.range}: {differs}")


def _read(name: str, direction: WireDirection) -> tuple[str | None, list[Line]]:
    """Return the version that the file names, and the lines of a tape, or of a file with the lines of one direction."""
    if name == "-":
        data = sys.stdin.buffer.read()
    else:
        try:
            data = Path(name).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read {name}: {error.strerror or error}", option="tape") from error
    if _is_tape(data):
        version, lines = _read_tape(data, Path(name).name)
    else:
        plain: list[Line] = [(direction, line) for line in data.split(b"\n") if line.strip()]
        version, lines = None, plain
        if not any(isinstance(row := _object(line), dict) and "type" in row for _, line in lines):
            raise ConfigurationError(f"{name} is neither a tape nor lines of JSON with a type", option="tape")
    if (agent := agent_of(line for _, line in lines)).program != "claude":
        raise ConfigurationError(f"{name} is a conversation with {agent.program}; the schemas are those of claude", option="tape")
    return version, lines


def _read_tape(data: bytes, name: str) -> tuple[str | None, list[Line]]:
    tape = Tape.parse(data, name=name)
    records = [record for record in without_withdrawn(tape) if record.trimmed_from_chars is None]
    return tape.header.cli_version, [(way, record.line) for record in records for way in _DIRECTIONS if record.dir == way]


def _is_tape(data: bytes) -> bool:
    first = _object(next((line for line in data.split(b"\n") if line.strip()), b""))
    return isinstance(first, dict) and ("tape" in first or {"dir", "line"} <= first.keys())


def _object(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
