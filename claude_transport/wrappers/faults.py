"""Faults as data: what a `FaultyTransport` does wrong, and when. Each raises `ConfigurationError` for values out of range.

Bytes are counted from 0 over everything that is read, newlines included. Lines, writes and attempts to connect are counted from 1.

`Fault` is the type of any fault.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError

__all__ = ["Corrupt", "Cut", "Delay", "Drop", "Duplicate", "FailConnect", "FailWrite", "Fault", "Split"]


class _Fault(msgspec.Struct, frozen=True, kw_only=True, tag_field="fault", forbid_unknown_fields=True):
    """The base of all faults. A fault is checked when it is created, and is one JSON object in a file."""


class Cut(_Fault, frozen=True, kw_only=True):
    """Ends the stream after `after_bytes` bytes or `after_lines` lines, whichever comes first. Nothing can be written then.

    The stream ends like a broken connection (`ConnectionLost`), or with `clean=True` like that of a peer that closes. Half a line at a
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
    """Waits `seconds` before it hands line `line` on; without `line`, before every line with the probability `rate`."""

    seconds: float
    line: int | None = None
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigurationError(f"seconds must be at least 0, not {self.seconds}", option="seconds")
        _check(self.line, "line", at_least=1)
        _check_rate(self.rate)


class Split(_Fault, frozen=True, kw_only=True):
    """Lets the bytes arrive in chunks of these `sizes`, over and over; without sizes, in random chunks of 1 to `up_to` bytes."""

    sizes: tuple[int, ...] = ()
    up_to: int = 16

    def __post_init__(self) -> None:
        for size in self.sizes:
            _check(size, "sizes", at_least=1)
        _check(self.up_to, "up_to", at_least=1)


class Corrupt(_Fault, frozen=True, kw_only=True):
    """Changes byte number `at_byte` to `value` (0 to 255), or to a random other value. It may hit or create a newline."""

    at_byte: int
    value: int | None = None

    def __post_init__(self) -> None:
        _check(self.at_byte, "at_byte", at_least=0)
        if self.value is not None and not 0 <= self.value <= 255:
            raise ConfigurationError(f"value must be a byte from 0 to 255, not {self.value}", option="value")


class _LineFault(_Fault, frozen=True, kw_only=True):
    line: int | None = None
    rate: float = 0.0

    def __post_init__(self) -> None:
        if self.line is None and not self.rate:
            raise ConfigurationError(f"{type(self).__name__} needs a line or a rate", option="line")
        _check(self.line, "line", at_least=1)
        _check_rate(self.rate)


class Drop(_LineFault, frozen=True, kw_only=True):
    """Drops line `line`; without `line`, each line with the probability `rate`."""


class Duplicate(_LineFault, frozen=True, kw_only=True):
    """Repeats line `line` once; without `line`, each line with the probability `rate`."""


class FailWrite(_Fault, frozen=True, kw_only=True):
    """Makes call number `write` of `write()` raise `TransportClosed`: before anything is sent, or with `after=True` after all of it.

    From then on all writes fail, as on a broken connection; with `lasting=False` only this one fails.
    """

    write: int = 1
    after: bool = False
    lasting: bool = True

    def __post_init__(self) -> None:
        _check(self.write, "write", at_least=1)


class FailConnect(_Fault, frozen=True, kw_only=True):
    """Makes the first `times` attempts to connect raise `CLIConnectionError`. Nothing is opened."""

    times: int = 1

    def __post_init__(self) -> None:
        _check(self.times, "times", at_least=1)


Fault: TypeAlias = Cut | Delay | Split | Corrupt | Drop | Duplicate | FailWrite | FailConnect
"""Any fault. `msgspec.json.decode(data, type=list[Fault])` reads a list of faults from a file."""


def _check(value: int | None, option: str, *, at_least: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < at_least):
        raise ConfigurationError(f"{option} must be a whole number of at least {at_least}, not {value!r}", option=option)


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ConfigurationError(f"rate must be a probability from 0 to 1, not {rate}", option="rate")
