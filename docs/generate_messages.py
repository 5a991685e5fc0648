"""The reference page of all messages and blocks, from the Structs: `python docs/generate_messages.py` writes it.

Which recording shows a message is looked up in tests/recordings. The page is committed, so that it can be read without building anything;
a test holds that it is what the classes and the recordings say.
"""

from __future__ import annotations

import inspect
import json
import re
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

SPEECH = ("AssistantMessage", "UserMessage", "ResultMessage", "StreamEvent")
FRAMES = ("ControlRequest", "ControlResponse", "ControlCancelRequest")
HEAD = re.compile(r'\{"type": ?"(?P<type>\w+)"(?:, ?"subtype": ?"(?P<subtype>\w+)")?')
Sightings = Mapping[tuple[str, str], list[str]]

INTRODUCTION = """\
# Messages

<!-- Written by docs/generate_messages.py from the Structs in claude_transport/protocol and from tests/recordings: change those, and
run it again. -->

Everything that can come out of a session, by its name on the wire. Each class is importable from `claude_transport` or from
`claude_transport.messages`; how a line becomes one is [the decoding ladder](../explanation/decoding.md).

Every message is frozen and has `.type`, `.raw` (the line's bytes), `.to_dict()` (everything that was on the line), `.misfits` and
`.lossy`. Every field has a default, so a `claude` that leaves one out breaks nothing; *name* = `wire name` where the two differ.

*Seen in* is the first recording of CLI 2.1.329 that holds it, and how many do. `-` means that none of them has it. Names in brackets
like `[08a]` are recordings in which a fact was observed; *declared* is what was published and never seen.
"""

SYSTEM = """\
## System messages

`type` is `system`, and `subtype` decides the class; an unknown one is a plain `SystemMessage`, which has these fields, too: {common}.
"""

UNREADABLE = """\
## What stands in the place of a message

None of these ends a session. With `strict=True`, a transport raises an error instead of the last two.
"""

PARTS = """\
## Parts

What the fields above are made of.
"""


def cell(text: str) -> str:
    """`text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def kinds_in(frame: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Under which names a frame is found: (`type`, `subtype` or nothing), and (`block`, its type) for each of its blocks."""
    kind = str(frame.get("type"))
    yield kind, str(frame.get("subtype", "")) if kind == "system" else ""
    message = frame.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield "block", str(block.get("type"))


def read_frame(line: str) -> dict[str, Any]:
    """The frame on `line`; of one whose recording was trimmed, or that is no JSON, only what its first characters say."""
    try:
        frame = json.loads(line)
    except ValueError:
        head = HEAD.match(line)
        return {} if head is None else head.groupdict("")
    return frame if isinstance(frame, dict) else {}


@cache
def sightings() -> Sightings:
    """The recordings in which each kind of message or block was found, in the order of their names."""
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
    """The annotation of each field as it is written, inherited ones included: the same text on every Python."""
    return {name: str(note) for base in reversed(cls.__mro__) for name, note in inspect.get_annotations(base).items()}


def fields_of(cls: type[msgspec.Struct], *, without: frozenset[str] = frozenset()) -> str:
    """The fields with their types, in order; hidden ones are left out."""
    notes, shown = annotations_of(cls), []
    for name, wire in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        if name not in HIDDEN_FIELDS | without:
            alias = "" if wire == name or wire.startswith(HIDDEN) else f" = `{wire}`"
            shown.append(f"`{name}: {notes[name]}`{alias}")
    return cell(", ".join(shown)) or "-"


def meaning(cls: type) -> str:
    """The docstring's first paragraph."""
    return cell((inspect.getdoc(cls) or "").split("\n\n")[0])


def structs_of(module: Any, base: type) -> list[type[Any]]:
    """The classes that `module` defines below `base`, in the order in which they stand there."""
    return [cls for cls in vars(module).values() if inspect.isclass(cls) and issubclass(cls, base) and cls.__module__ == module.__name__]


def message_classes() -> list[type[Message]]:
    """Every message with a `type` of its own on the wire, except `system`, which has a section of its own."""
    found = [cls for module in (messages, control) for cls in structs_of(module, Message) if cls.__struct_config__.tag]
    return [cls for cls in found if cls is not SystemMessage]


def message_table(classes: Iterable[type[Message]]) -> str:
    rows = (
        [f"`{cls.__struct_config__.tag}`", f"`{cls.__name__}`", meaning(cls), fields_of(cls), seen_in((str(cls.__struct_config__.tag), ""))]
        for cls in classes
    )
    return table(("On the wire", "Class", "What it says", "Fields", "Seen in"), rows)


def system_table() -> str:
    common = frozenset(SystemMessage.__struct_fields__)
    rows = (
        [f"`{name}`", f"`{cls.__name__}`", meaning(cls), fields_of(cls, without=common), seen_in(("system", name))]
        for name, cls in sorted(SYSTEM_SUBTYPES.items())
    )
    return table(("`subtype`", "Class", "What it says", "Its own fields", "Seen in"), rows)


def block_table() -> str:
    rows = []
    for cls in structs_of(blocks, Block):
        tag = str(cls.__struct_config__.tag)
        if cls is not Block and tag != cls.__name__:  # a base that only shares fields has its own name for a tag
            name = "anything else" if tag == FALLBACK_TAG else f"`{tag}`"
            rows.append([name, f"`{cls.__name__}`", meaning(cls), fields_of(cls), seen_in(("block", tag))])
    return table(("`type`", "Class", "What it is", "Fields", "Seen in"), rows)


def part_table() -> str:
    classes = [cls for module in (messages, envelope) for cls in structs_of(module, Part)]
    return table(("Class", "What it is", "Fields"), ([f"`{cls.__name__}`", meaning(cls), fields_of(cls)] for cls in classes))


def render() -> str:
    """The whole page, as MyST Markdown."""
    by_name = {cls.__name__: cls for cls in message_classes()}
    rest = [cls for name, cls in sorted(by_name.items()) if name not in (*SPEECH, *FRAMES)]
    unread = [[f"`{cls.__name__}`", meaning(cls), fields_of(cls)] for cls in structs_of(envelope, Message)]
    return "\n".join(
        [
            INTRODUCTION,
            "## What is said\n",
            message_table(by_name[name] for name in SPEECH),
            "## Blocks\n",
            block_table(),
            SYSTEM.format(common=fields_of(SystemMessage)),
            system_table(),
            "## Events of the session\n",
            message_table(rest),
            "## Control frames\n\nWhat can be asked in them is on a page of its own: [control requests and hooks](control-requests.md).\n",
            message_table(by_name[name] for name in FRAMES),
            UNREADABLE,
            table(("Class", "What it says", "Fields"), unread),
            PARTS,
            part_table(),
        ]
    )


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
