"""What the schemas are tried on: all recorded lines with what they answer, and mutants of these lines from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from claude_transport.protocol.tape import Tape
from claude_transport.wire.documents import WireDirection

RECORDINGS = Path(__file__).parent.parent / "recordings"
SEED = 32
STRANGE: tuple[Any, ...] = (None, True, 0, -1.5, 10**400, "", "\ud800", "text", [], [1], {}, {"a": [{}]}, [[]], 2.0, 1e300)


class Case(NamedTuple):
    """One line; for an answer, with the definition of what it carries."""

    direction: WireDirection
    text: str
    definition: str | None = None


@cache
def recorded_cases() -> list[Case]:
    """Every whole line of every recording, once."""
    return list(dict.fromkeys(case for path in sorted(RECORDINGS.glob("*.ndjson")) for case in _cases_of(Tape.read(path))))


def _cases_of(tape: Tape) -> Iterator[Case]:
    asked: dict[tuple[str, str], str] = {}
    directions: tuple[WireDirection, ...] = ("in", "out")
    for record in tape:
        for direction in directions:
            if record.dir != direction or record.trimmed_from_chars is not None or not record.line.strip():
                continue
            text = record.line.decode("utf-8", "replace")
            yield Case(direction, text, _definition(direction, _read(text), asked))


def _definition(direction: WireDirection, value: Any, asked: dict[tuple[str, str], str]) -> str | None:
    """Note a question; return the definition for the payload of an answer to one."""
    if not isinstance(value, dict):
        return None
    request, reply = value.get("request"), value.get("response")
    if value.get("type") == "control_request" and isinstance(request, dict):
        asked[direction, str(value.get("request_id"))] = str(request.get("subtype"))
    if value.get("type") == "control_response" and isinstance(reply, dict):
        subtype = asked.get(("in" if direction == "out" else "out", str(reply.get("request_id"))))
        return None if subtype is None else f"answer.{subtype}"
    return None


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def mutants(cases: list[Case], count: int) -> list[Case]:
    """`count` lines with one to three faults each: of their values, their names or their text."""
    chance = random.Random(SEED)
    objects = [case for case in cases if isinstance(_read(case.text), dict) and len(case.text) < 20_000]
    return [_mutant(chance.choice(objects), chance) for _ in range(count)]


def _mutant(case: Case, chance: random.Random) -> Case:
    if chance.random() < 0.05:
        return case._replace(text=chance.choice(TEXTS)(case.text, chance))
    value = json.loads(case.text)
    for _ in range(chance.choice((1, 1, 2, 3))):
        holder, key = _place(value, chance)
        chance.choice(FAULTS)(holder, key, chance)
    return case._replace(text=json.dumps(value))


def _place(value: Any, chance: random.Random) -> tuple[Any, Any]:
    """A container somewhere in the value, and one of its keys."""
    holder = value
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = chance.choice(keys)
        if not isinstance(holder[key], dict | list) or not holder[key] or chance.random() < 0.3:
            return holder, key
        holder = holder[key]


def _strange(chance: random.Random) -> Any:
    return deepcopy(chance.choice(STRANGE))


def _replace(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = _strange(chance)


def _remove(holder: Any, key: Any, chance: random.Random) -> None:
    if len(holder) > 1:
        del holder[key]


def _rename(holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)


def _add(holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, dict):
        holder[chance.choice(("new_field", "__proto__", "constructor", "*", ""))] = _strange(chance)
    else:
        holder.append(_strange(chance))


def _retag(holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, dict):
        tags = [name for name in ("type", "subtype", "hook_event_name") if name in holder]
        if tags:
            holder[chance.choice(tags)] = chance.choice(("text", "result", "init", "can_use_tool", "user", "Stop", "brand_new", 7))


def _wrap(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(([holder[key]], {"value": holder[key]}))


def _nudge(holder: Any, key: Any, chance: random.Random) -> None:
    """Put a near miss in place of a number or a truth value: of the one here, or of another one of this object."""
    keys = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
    near = [each for each in keys if isinstance(holder[each], int | float) and abs(holder[each]) < 1e15]
    if not near:
        return
    key = key if key in near else chance.choice(near)
    value = holder[key]
    holder[key] = int(value) if isinstance(value, bool) else chance.choice((value + 0.5, float(value), str(value), True, None))


FAULTS: tuple[Callable[[Any, Any, random.Random], None], ...] = (_replace, _replace, _nudge, _remove, _rename, _add, _retag, _wrap)


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(1, len(text))]


def _not_a_number(text: str, chance: random.Random) -> str:
    return text[:-1] + ',"x":NaN}'


def _control_character(text: str, chance: random.Random) -> str:
    return text[:-1] + ',"x":"\x01"}'


def _trailing(text: str, chance: random.Random) -> str:
    return text + chance.choice(("}", " {}", "x", ","))


def _twice(text: str, chance: random.Random) -> str:
    return text[:-1] + ',"type":"brand_new"}'


def _infinite(text: str, chance: random.Random) -> str:
    return text[:-1] + ',"uuid":1e999,"total_cost_usd":1e999}'


TEXTS: tuple[Callable[[str, random.Random], str], ...] = (_cut, _not_a_number, _control_character, _trailing, _twice, _infinite)
