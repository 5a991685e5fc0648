"""Write the reference page of all control requests from the methods that send them: `python docs/generate_controls.py`.

The page is committed, so it can be read without building anything. A test compares it with the classes.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from claude_transport.client.controls import DEFAULT_CONTROL_TIMEOUT, MODEL_TIMEOUT, Asking, Controls
from claude_transport.launch.features import find_feature
from claude_transport.protocol import answers, hooks
from claude_transport.protocol.control import (
    CanUseTool,
    ControlBody,
    Elicitation,
    HookCallback,
    InboundBody,
    McpMessage,
    RequestUserDialog,
    UnknownControl,
)
from claude_transport.protocol.envelope import HIDDEN, Part
from claude_transport.protocol.hooks import (
    INPUTS,
    AdditionalContext,
    HookEvent,
    HookInput,
    HookOutput,
    SpecificOutput,
    denial_of,
)

__all__ = ["PAGE", "main", "render", "subtype_of"]

S = TypeVar("S", bound=msgspec.Struct)

PAGE = Path(__file__).parent / "reference" / "control-requests.md"
SHOWN_BY: Mapping[str, list[str]] = {
    name: recordings
    for table in tomllib.loads(Path(__file__).with_name("recordings.toml").read_text("utf-8")).values()
    for name, recordings in table.items()
}
"""The recordings that show what the words on a class or a method say."""

INTRODUCTION = f"""\
# Control requests and hooks

<!-- Written by docs/generate_controls.py from claude_transport/client/controls.py, protocol/control, protocol/answers and protocol/hooks:
change those or docs/recordings.toml, and run it again. -->

`Query` has a method for each request that CLI 2.1.329 was seen to answer. `query.request(subtype, **fields)` sends any other request, and
returns the payload as it is. Names in brackets like `[08a]` are recordings of the CLI in which a fact was observed. *Declared* means
published, but never seen.

The CLI also answers while a turn is running, and not in the order of the requests. Every method takes `timeout=` in
seconds ({DEFAULT_CONTROL_TIMEOUT:g} by default, {MODEL_TIMEOUT:g} where a model is asked, `math.inf` for no limit) and raises

* `ControlRequestFailed` when the CLI refuses; `error_code` is its reason for programs, if it gives one,
* `ControlTimeout` when no answer came in time; a late answer is counted in `late_responses`,
* `TransportClosed`, `ConnectionLost` or `ProcessError` when the CLI has ended or the connection broke.
"""

QUESTIONS = """\
## What the CLI asks the host

From `claude_transport.control`. The CLI waits for an answer. When it withdraws a question by a `control_cancel_request`, the callback
that works on it is cancelled. The last column names the argument of `Query` that answers; `on_request` gets every question without a
handler of its own. A question without any handler is answered, too, so that the CLI never waits in vain: a tool is denied, anything else is
refused with the code `unsupported_request`.
"""

ANSWERED_BY: Mapping[type[InboundBody], str] = {
    CanUseTool: "`can_use_tool`",
    HookCallback: "`hooks`",
    McpMessage: "`mcp_servers`",
    Elicitation: "`on_request`",
    RequestUserDialog: "`on_request`",
    UnknownControl: "`on_request`",
}
"""The argument of `Query` that answers each question."""

ANSWERS = """\
## Answers

From `claude_transport.control`. A value that does not fit leaves its field at the default and is named in `misfits`; `raw` is the whole
payload. Sizes of context are in tokens.
"""

HOOKS = f"""\
## Hook events

From `claude_transport.hooks`. A callback gets the class of its event, or a plain `HookInput` when a field that the class requires is
missing. Every input has {{common}}. It can also be read like the dict on the wire, and `to_dict()` returns that dict.

A callback returns None, a `HookOutput`, one of the classes in the fourth column, or a dict in wire spelling, which is checked
as strictly. `HookOutput` has {{output}}.
`AsyncHookOutput(timeout=…)` lets the CLI go on at once. The {len(AdditionalContext.events)} events with + accept `AdditionalContext`, too.
"When it fails" is the answer for a hook that raises, is late, or returns something invalid, unless `on_callback_error="allow"`; and the
first CLI that was seen to follow it, if it is newer than 2.1.92.
"""


def cell(text: str) -> str:
    """Return `text` for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def paragraphs(item: Any) -> str:
    """Return the docstring on one line, and the recordings that show it."""
    recorded = SHOWN_BY.get(item.__name__)
    return cell(inspect.getdoc(item) or "") + (f" [{', '.join(recorded)}]" if recorded else "")


def subtype_of(method: Callable[..., Any]) -> str:
    """Return the wire name of the request that `method` sends: the first text that it passes to `request`, `_ask` or `_tell`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"request", "_ask", "_tell"}:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    return argument.value
    raise ValueError(f"{method.__name__} asks for nothing")


def methods_of(group: type[Asking]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(group).items():
        if inspect.iscoroutinefunction(member) and not name.startswith("_"):
            yield name, member


def signature_of(name: str, method: Callable[..., Any]) -> str:
    """Return the call as a user writes it, without `self` and `timeout`. Annotations are text, the same on every Python."""
    signature = inspect.signature(method)
    shown: list[str] = []
    for key, parameter in signature.parameters.items():
        if key in {"self", "timeout"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        annotation = str(parameter.annotation).replace("os.PathLike[str]", "PathLike[str]")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{key}: {annotation}{default}")
    return cell(f"{name}({', '.join(shown)}) -> {signature.return_annotation}")


def groups() -> Iterator[str]:
    for group in Controls.__bases__:
        rows = ([f"`{signature_of(name, method)}`", f"`{subtype_of(method)}`", paragraphs(method)] for name, method in methods_of(group))
        yield f"## {inspect.getdoc(group)}\n".replace(".\n", "\n") + "\n" + table(("Method", "On the wire", "What it does"), rows)


def fields_of(cls: type[msgspec.Struct]) -> str:
    names = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
    return ", ".join(f"`{name}`" for name, wire in names if not wire.startswith(HIDDEN))


def question_rows() -> Iterator[list[str]]:
    for cls in get_args(ControlBody):
        subtype = "any other" if cls is UnknownControl else f"`{cls.__struct_config__.tag}`"
        yield [subtype, f"`{cls.__name__}`", fields_of(cls), paragraphs(cls), ANSWERED_BY[cls]]


def structs_of(module: Any, base: type[S]) -> list[type[S]]:
    """Return the classes that `module` defines below `base`, by name."""
    found = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, base) and cls.__module__ == module.__name__]
    return sorted(found, key=lambda cls: cls.__name__)


def answer_rows() -> Iterator[list[str]]:
    for cls in structs_of(answers, Part):
        yield [f"`{cls.__name__}`", fields_of(cls), paragraphs(cls)]


def output_classes() -> Iterator[type[SpecificOutput]]:
    for cls in structs_of(hooks, SpecificOutput):
        if cls.events and cls is not AdditionalContext:
            yield cls


def hook_rows() -> Iterator[list[str]]:
    common = set(HookInput.__struct_fields__)
    for event in HookEvent:
        cls = INPUTS[event]
        own = ", ".join(f"`{name}`" for name in cls.__struct_fields__ if name not in common)
        said = [f"`{output.__name__}`" for output in output_classes() if event in output.events]
        if event in AdditionalContext.events:
            said.append("+")
        yield [f"`{event}`", paragraphs(cls), own or "-", " ".join(said) or "-", when_it_fails(event)]


def when_it_fails(event: HookEvent) -> str:
    """Return what the CLI is answered for a hook of `event` that failed."""
    denial = denial_of(event, "…")
    if denial is None:
        return "an error: there is nothing to deny"
    said = {"decision": "it blocks", "continue": "the turn ends", "hookSpecificOutput": "it denies"}[next(iter(denial))]
    feature = find_feature(f"hook.{event}.denial")
    return said if feature is None else f"{said} ({feature.since})"


def output_rows() -> Iterator[list[str]]:
    classes: list[type[SpecificOutput]] = [*output_classes(), AdditionalContext]
    for cls in classes:
        yield [f"`{cls.__name__}`", fields_of(cls), paragraphs(cls)]


def render() -> str:
    """Return the whole page as MyST Markdown."""
    events = HOOKS.format(common=fields_of(HookInput), output=fields_of(HookOutput))
    return "\n".join(
        [
            INTRODUCTION,
            *groups(),
            QUESTIONS,
            table(("On the wire", "Class", "Fields", "Meaning", "Answered by"), question_rows()),
            ANSWERS,
            table(("Class", "Fields", "Meaning"), answer_rows()),
            events,
            table(("Event", "Its input", "Its own fields", "What it may return", "When it fails"), hook_rows()),
            "### Outputs of hooks\n",
            table(("Class", "Fields", "What it does"), output_rows()),
        ]
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
