"""Faults as data: what a `FaultyTransport` does wrong, and when.

Bytes are counted from 0 over everything that is read, newlines included; lines, writes and attempts to connect from 1.

`Fault` is the type of any fault.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError

__all__ = ["Corrupt", "Cut", "Delay", "Drop", "Duplicate", "FailConnect", "FailWrite", "Fault", "Split"]


class _Fault(msgspec.Struct, frozen=True, kw_only=True, tag_field="fault", forbid_unknown_fields=True):
    """What all faults share: they are checked when they are made, and one JSON object each in a file."""


class Cut(_Fault, frozen=True, kw_only=True):
    """The stream ends after `after_bytes` bytes, or `after_lines` lines, whichever comes first; nothing can be written then.

    It ends like a broken connection (`ConnectionLost`), or with `clean=True` like a peer that leaves without a word. Half a line at a
    clean end is reported as `TruncatedStream`.
    """

    after_bytes: int | None = None
    after_lines: int | None = None
    clean: bool = False

    def __post_init__(self) -> None:
        if self.after_bytes is None and self.after_lines is None:
            raise ConfigurationError("Cut needs after_bytes or after_lines", option="after_bytes")
        _check(self.after_bytes, "after_bytes", at_least=0)
        _check(self.after_lines, "after_lines", at_least=0)


class Delay(_Fault, frozen=True, kw_only=True):
    """`seconds` pass before line `line` is handed on; without `line`, before every line with the probability `rate`."""

    seconds: float
    line: int | None = None
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigurationError(f"seconds must be at least 0, not {self.seconds}", option="seconds")
        _check(self.line, "line", at_least=1)
        _check_rate(self.rate)


class Split(_Fault, frozen=True, kw_only=True):
    """The bytes arrive in chunks of these `sizes`, over and over; without sizes, in chunks of 1 to `up_to` bytes, by the seed."""

    sizes: tuple[int, ...] = ()
    up_to: int = 16

    def __post_init__(self) -> None:
        for size in self.sizes:
            _check(size, "sizes", at_least=1)
        _check(self.up_to, "up_to", at_least=1)


class Corrupt(_Fault, frozen=True, kw_only=True):
    """Byte number `at_byte` becomes `value` (0 to 255), or by the seed another one than it was. A newline may be hit, or made."""

    at_byte: int
    value: int | None = None

    def __post_init__(self) -> None:
        _check(self.at_byte, "at_byte", at_least=0)
        if self.value is not None and not 0 <= self.value <= 255:
            raise ConfigurationError(f"value is a byte from 0 to 255, not {self.value}", option="value")


class _LineFault(_Fault, frozen=True, kw_only=True):
    line: int | None = None
    rate: float = 0.0

    def __post_init__(self) -> None:
        if self.line is None and not self.rate:
            raise ConfigurationError(f"{type(self).__name__} needs a line or a rate", option="line")
        _check(self.line, "line", at_least=1)
        _check_rate(self.rate)


class Drop(_LineFault, frozen=True, kw_only=True):
    """Line `line` never arrives; without `line`, each one is lost with the probability `rate`."""


class Duplicate(_LineFault, frozen=True, kw_only=True):
    """Line `line` arrives twice; without `line`, each one does with the probability `rate`."""


class FailWrite(_Fault, frozen=True, kw_only=True):
    """The `write`-th call of `write()` raises `TransportClosed`: before anything was handed over, or after all of it was.

    From then on all writes fail, as on a connection that broke; with `lasting=False` only this one does.
    """

    write: int = 1
    after: bool = False
    lasting: bool = True

    def __post_init__(self) -> None:
        _check(self.write, "write", at_least=1)


class FailConnect(_Fault, frozen=True, kw_only=True):
    """The first `times` attempts to connect raise `CLIConnectionError`; nothing is opened."""

    times: int = 1

    def __post_init__(self) -> None:
        _check(self.times, "times", at_least=1)


Fault: TypeAlias = Cut | Delay | Split | Corrupt | Drop | Duplicate | FailWrite | FailConnect
"""Any of them: `msgspec.json.decode(data, type=list[Fault])` reads a list of faults from a file."""


def _check(value: int | None, option: str, *, at_least: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < at_least):
        raise ConfigurationError(f"{option} is a whole number, at least {at_least}, not {value!r}", option=option)


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ConfigurationError(f"rate is a probability from 0 to 1, not {rate}", option="rate")
