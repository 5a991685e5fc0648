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


def wire_schema(direction: WireDirection, *, cli_version: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the lines of one direction, as a new dict.

    Args:
        direction: `out` for what the CLI says, `in` for what a host says.
        cli_version: the version of the CLI; None means the newest.

    Raises:
        UsageError: `direction` or `cli_version` is not valid.
    """
    if direction not in ("in", "out"):
        raise UsageError(f"direction is 'in' or 'out', not {direction!r}")
    document: dict[str, Any] = msgspec.json.decode(read_document(wire_range(cli_version), direction))
    return document


@cache
def read_document(start: str, direction: WireDirection) -> bytes:
    """Return the text of one document of the package."""
    return resources.files("claude_transport.schema").joinpath("wire", start, f"{direction}.json").read_bytes()
