"""`Comparison`: whether a line of a live host says the same as the recorded one, and a diff of what differs.

Ids, paths of this run and secrets differ between two runs that mean the same. They are replaced before two values are compared.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.envelope import encode_json
from claude_transport.protocol.redaction import Redactor

MATCHES: Final[Mapping[str, str]] = {
    "prompt": "what the host asks",
    "options": "the command line, the options, and the `initialize` request",
    "requests": "the fields of other control requests",
    "answers": "the answers to questions: permissions, hooks, tools of the host",
}
"""What can be compared, each with its meaning."""

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_TEMPORARY: Final = re.compile(r"(?:/private)?(?:/tmp|/var/tmp|/var/folders/\w+/\w+/T)/(?:pytest-of-[^/\s\"']+/pytest-\d+|[^/\s\"']+)")
_MOST_LINES: Final = 40
_MOST_CHARS: Final = 2000


def check_match(match: Iterable[str]) -> frozenset[str]:
    """Return `match` as a set. Raises `ConfigurationError` for a name that is not one of `MATCHES`."""
    wanted = [match] if isinstance(match, str) else list(match)
    for name in wanted:
        if name not in MATCHES:
            raise ConfigurationError(f"match cannot compare {name!r}; use some of {', '.join(MATCHES)}", option="match")
    return frozenset(wanted)


class Comparison:
    """Compares values of a tape with live ones.

    Args:
        redactor: removes from both what it has removed from the tape.
        folders: folders of the recorded and of the live run, which are the same place in both.
    """

    def __init__(self, *, redactor: Redactor | None = None, folders: Iterable[str] = ()) -> None:
        self._redactor = redactor or Redactor()
        found = sorted({folder.rstrip("/") for folder in folders if len(folder.rstrip("/")) > 1}, key=len, reverse=True)
        # a name may go on where a path does not
        self._folders = re.compile("(?:" + "|".join(map(re.escape, found)) + r")(?![\w-])") if found else None

    def differences(self, recorded: Any, live: Any, *, path: str) -> str:
        """Return a diff of the two values, with the name of each field that differs; an empty text when they say the same."""
        return "\n".join(_clipped(list(_differences(self._plain(recorded), self._plain(live), path))))

    def _plain(self, value: Any) -> Any:
        try:
            clean = msgspec.json.decode(self._redactor.line(encode_json(value)))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            return str(value)
        return self._without_places(clean)

    def _without_places(self, value: Any) -> Any:
        if isinstance(value, str):
            if self._folders is not None:
                value = self._folders.sub("<folder>", value)
            return _TEMPORARY.sub("<temporary>", _UUID.sub("<uuid>", value))
        if isinstance(value, dict):
            return {self._without_places(name): self._without_places(inner) for name, inner in value.items()}
        return [self._without_places(inner) for inner in value] if isinstance(value, list) else value


def _differences(recorded: Any, live: Any, path: str) -> Iterator[str]:
    if recorded == live:
        return
    if isinstance(recorded, dict) and isinstance(live, dict):
        for name in dict.fromkeys([*recorded, *live]):
            where = f"{path}.{name}"
            if name not in live:
                yield from (f"{where}:", f"- {_shown(recorded[name])}")
            elif name not in recorded:
                yield from (f"{where}:", f"+ {_shown(live[name])}")
            else:
                yield from _differences(recorded[name], live[name], where)
        return
    if isinstance(recorded, list) and isinstance(live, list) and len(recorded) == len(live) and not _are_words(recorded):
        for index, (one, other) in enumerate(zip(recorded, live, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
        return
    yield f"{path}:"
    before, after = _lines_of(recorded), _lines_of(live)
    if len(before) == len(after) == 1:
        yield from (f"- {before[0]}", f"+ {after[0]}")
    else:
        yield from (line for line in difflib.ndiff(before, after) if not line.startswith("?"))


def _are_words(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _lines_of(value: Any) -> list[str]:
    if isinstance(value, list) and _are_words(value):
        return [_shown(word) for word in value]
    return value.split("\n") if isinstance(value, str) and "\n" in value else [_shown(value)]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def _clipped(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"… {more} more lines"]
