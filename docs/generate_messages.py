"""Write the reference page of all messages and blocks from their classes: `python docs/generate_messages.py`.

The recordings that show a message are looked up in tests/recordings. The page is committed, so it can be read without building anything. A
test compares it with the classes and the recordings.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from claude_transport.protocol import blocks, control, envelope, messages
from claude_transport.protocol.blocks import Block
from claude_transport.protocol.envelope import FALLBACK_TAG, HIDDEN, HIDDEN_FIELDS, Message, Part
from claude_transport.protocol.messages import SYSTEM_SUBTYPES, SystemMessage

__all__ = ["PAGE", "main", "message_classes", "render", "sightings"]

PAGE = Path(__file__).parent / "reference" / "messages.md"
RECORDINGS = Path(__file__).parent.parent / "tests" / "recordings"
SHOWN_BY: Mapping[str, list[str]] = tomllib.loads(Path(__file__).with_name("recordings.toml").read_text("utf-8"))["messages"]
"""The recordings that show what the words on a class say."""

SPEECH = ("AssistantMessage", "UserMessage", "ResultMessage", "StreamEvent")
FRAMES = ("ControlRequest", "ControlResponse", "ControlCancelRequest")
HEAD = re.compile(r'\{"type": ?"(?P<type>\w+)"(?:, ?"subtype": ?"(?P<subtype>\w+)")?')
Sightings = Mapping[tuple[str, str], list[str]]

INTRODUCTION = """\
# Messages

<!-- Written by docs/generate_messages.py from the Structs in claude_transport/protocol, tests/recordings and
docs/recordings.toml: change those, and run it again. -->

All messages of a session, by their names on the wire. Each class is importable from `claude_transport` or from
`claude_transport.messages`; how a line becomes one is [the decoding ladder](../explanation/decoding.md).

Every message is frozen and has `.type`, `.raw` (the line's bytes), `.to_dict()` (everything that was on the line), `.misfits` and
`.lossy`. Every field has a default, so a `claude` that leaves one out breaks nothing. *name* = `wire name` is given where they differ.

*Seen in* names the first recording of CLI 2.1.329 that contains it, and the number of all of them; `-` means none. Names in brackets
like `[08a]` are recordings in which a fact was observed. *Declared* means published, but never seen.
"""

SYSTEM = """\
## System messages

`type` is `system`, and `subtype` decides the class; an unknown one gives a plain `SystemMessage`. All have the fields
{common}.
"""

UNREADABLE = """\
## In place of a message

Lines that are not a known message give one of these. None of them ends a session. With `strict=True`, a transport raises an error
instead of the last two.
"""

PARTS = """\
## Parts

Classes of the fields above.
"""


def cell(text: str) -> str:
    """Return `text` for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def kinds_in(frame: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the kinds in a frame: (`type`, `subtype` or an empty text), and (`block`, its type) for each of its blocks."""
    kind = str(frame.get("type"))
    yield kind, str(frame.get("subtype", "")) if kind == "system" else ""
    message = frame.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield "block", str(block.get("type"))


def read_frame(line: str) -> dict[str, Any]:
    """Read the frame on `line`; of a trimmed or invalid one, only what its beginning shows."""
    try:
        frame = json.loads(line)
    except ValueError:
        head = HEAD.match(line)
        return {} if head is None else head.groupdict("")
    return frame if isinstance(frame, dict) else {}


@cache
def sightings() -> Sightings:
    """Return the recordings that contain each kind of message or block, by name."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(RECORDINGS.glob("*.ndjson")):
        name = path.name.split("_")[0]
        kinds: set[tuple[str, str]] = set()
        for line in path.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["dir"] in {"in", "out"}:
                kinds.update(kinds_in(read_frame(entry["line"])))
        for kind in kinds:
            found.setdefault(kind, []).append(name)
    return found


def seen_in(kind: tuple[str, str]) -> str:
    names = sightings().get(kind, [])
    return f"`[{names[0]}]`, {len(names)}" if names else "-"


def annotations_of(cls: type) -> dict[str, str]:
    """Return the annotation of each field as written, inherited ones included: the same text on every Python."""
    return {name: str(note) for base in reversed(cls.__mro__) for name, note in inspect.get_annotations(base).items()}


def fields_of(cls: type[msgspec.Struct], *, without: frozenset[str] = frozenset()) -> str:
    """Return the fields with their types, in order, without hidden ones."""
    notes, shown = annotations_of(cls), []
    for name, wire in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        if name not in HIDDEN_FIELDS | without:
            alias = "" if wire == name or wire.startswith(HIDDEN) else f" = `{wire}`"
            shown.append(f"`{name}: {notes[name]}`{alias}")
    return cell(", ".join(shown)) or "-"


def meaning(cls: type) -> str:
    """Return the first paragraph of the docstring, and the recordings that show it."""
    recorded = SHOWN_BY.get(cls.__name__)
    return cell((inspect.getdoc(cls) or "").split("\n\n")[0]) + (f" [{', '.join(recorded)}]" if recorded else "")


def structs_of(module: Any, base: type) -> list[type[Any]]:
    """Return the classes that `module` defines below `base`, in the order of definition."""
    return [cls for cls in vars(module).values() if inspect.isclass(cls) and issubclass(cls, base) and cls.__module__ == module.__name__]


def message_classes() -> list[type[Message]]:
    """Return all messages with a `type` of their own on the wire, except `system`, which has a section of its own."""
    found = [cls for module in (messages, control) for cls in structs_of(module, Message) if cls.__struct_config__.tag]
    return [cls for cls in found if not issubclass(cls, SystemMessage)]


def message_table(classes: Iterable[type[Message]]) -> str:
    rows = (
        [f"`{cls.__struct_config__.tag}`", f"`{cls.__name__}`", meaning(cls), fields_of(cls), seen_in((str(cls.__struct_config__.tag), ""))]
        for cls in classes
    )
    return table(("On the wire", "Class", "Meaning", "Fields", "Seen in"), rows)


def system_table() -> str:
    common = frozenset(SystemMessage.__struct_fields__)
    rows = (
        [f"`{name}`", f"`{cls.__name__}`", meaning(cls), fields_of(cls, without=common), seen_in(("system", name))]
        for name, cls in sorted(SYSTEM_SUBTYPES.items())
    )
    return table(("`subtype`", "Class", "Meaning", "Its own fields", "Seen in"), rows)


def block_table() -> str:
    rows = []
    for cls in structs_of(blocks, Block):
        tag = str(cls.__struct_config__.tag)
        if cls is not Block and tag != cls.__name__:  # a base that only shares fields has its own name for a tag
            name = "anything else" if tag == FALLBACK_TAG else f"`{tag}`"
            rows.append([name, f"`{cls.__name__}`", meaning(cls), fields_of(cls), seen_in(("block", tag))])
    return table(("`type`", "Class", "Meaning", "Fields", "Seen in"), rows)


def part_table() -> str:
    classes = [cls for module in (messages, envelope) for cls in structs_of(module, Part)]
    return table(("Class", "Meaning", "Fields"), ([f"`{cls.__name__}`", meaning(cls), fields_of(cls)] for cls in classes))


def render() -> str:
    """Return the whole page as MyST Markdown."""
    by_name = {cls.__name__: cls for cls in message_classes()}
    rest = [cls for name, cls in sorted(by_name.items()) if name not in (*SPEECH, *FRAMES)]
    unread = [[f"`{cls.__name__}`", meaning(cls), fields_of(cls)] for cls in structs_of(envelope, Message)]
    return "\n".join(
        [
            INTRODUCTION,
            "## Conversation\n",
            message_table(by_name[name] for name in SPEECH),
            "## Blocks\n",
            block_table(),
            SYSTEM.format(common=fields_of(SystemMessage)),
            system_table(),
            "## Events of the session\n",
            message_table(rest),
            "## Control frames\n\nThe requests are on a page of their own: [control requests and hooks](control-requests.md).\n",
            message_table(by_name[name] for name in FRAMES),
            UNREADABLE,
            table(("Class", "Meaning", "Fields"), unread),
            PARTS,
            part_table(),
        ]
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
