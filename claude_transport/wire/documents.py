"""The schema documents of the package: which there are, and how they are read. `docs/generate_schema.py` writes them."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias

import msgspec

from claude_transport.errors import UsageError
from claude_transport.launch.features import parse_version

WireDirection: TypeAlias = Literal["in", "out"]
"""`in` is what a host says to the CLI, `out` what the CLI says to its host, as on tapes."""

WIRE_RANGES: Final[tuple[str, ...]] = ("2.1.92", "2.1.191", "2.1.257", "2.1.275", "2.1.330")
"""The first version of each range of the CLI that has schemas of its own. A range ends before the next one; the last one is open."""


def wire_range(cli_version: str | None) -> str:
    """Return the first version of the range in which this CLI is: the newest range for None, the oldest one for older versions.

    Raises:
        UsageError: `cli_version` is no version.
    """
    if cli_version is None:
        return WIRE_RANGES[-1]
    numbers = parse_version(cli_version)
    if numbers is None:
        raise UsageError(f"{cli_version!r} is not a version of claude; write three numbers, such as {WIRE_RANGES[-1]}")
    starts = [start for start in WIRE_RANGES if (parse_version(start) or numbers) <= numbers]
    return starts[-1] if starts else WIRE_RANGES[0]


def schema(direction: Literal["received", "sent"] = "received", *, cli_version: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the lines of one direction, as a new dict.

    Args:
        direction: `received` for what a host gets from the CLI, `sent` for what it says to the CLI.
        cli_version: the version of the CLI; None means the newest.

    Raises:
        UsageError: `direction` or `cli_version` is not valid.
    """
    if direction not in ("received", "sent"):
        raise UsageError(f"direction is 'received' or 'sent', not {direction!r}")
    return schema_on_tape("out" if direction == "received" else "in", cli_version=cli_version)


def schema_on_tape(direction: WireDirection, *, cli_version: str | None = None) -> dict[str, Any]:
    """Return the same for a direction as tapes name it."""
    document: dict[str, Any] = msgspec.json.decode(read_document(wire_range(cli_version), direction))
    return document


@cache
def read_document(start: str, direction: WireDirection) -> bytes:
    """Return the text of one document of the package."""
    return resources.files("claude_transport.wire").joinpath("schemas", start, f"{direction}.json").read_bytes()
