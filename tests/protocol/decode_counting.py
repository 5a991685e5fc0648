"""Counts what it costs to read a line beyond its first decode: the values that are decoded to save it, and the bytes that are parsed again.

Both are counted at the libraries' doors, so that no way of reading can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_transport.protocol import codec
from claude_transport.protocol.envelope import JSONTextError

__all__ = ["Cost", "counted"]


@dataclass
class Cost:
    """What was counted so far."""

    decodes: int = 0
    """Calls of `msgspec.convert`."""
    parses: int = 0
    """Calls of `parse_json` by the codec."""
    parsed_bytes: int = 0
    """Bytes up to which those have read."""


@contextmanager
def counted() -> Iterator[Cost]:
    """Count everything that is read in this block."""
    cost = Cost()
    convert, parse = msgspec.convert, codec.parse_json
    msgspec.convert, codec.parse_json = _counting_decodes(cost, convert), _counting_parses(cost, parse)  # no pytest: the fuzzer has none
    try:
        yield cost
    finally:
        msgspec.convert, codec.parse_json = convert, parse


def _counting_decodes(cost: Cost, convert: Callable[..., Any]) -> Callable[..., Any]:
    def counting(*arguments: Any, **options: Any) -> Any:
        cost.decodes += 1
        return convert(*arguments, **options)

    return counting


def _counting_parses(cost: Cost, parse: Callable[[bytes], tuple[Any, bool]]) -> Callable[[bytes], tuple[Any, bool]]:
    def counting(data: bytes) -> tuple[Any, bool]:
        cost.parses += 1
        try:
            result = parse(data)
        except JSONTextError as error:
            cost.parsed_bytes += len(data) if error.position is None else error.position
            raise
        cost.parsed_bytes += len(data)
        return result

    return counting
