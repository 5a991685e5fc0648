"""Write the reference page of Codex from the classes and tables in the code: `python docs/generate_codex.py`.

The first sentence of a class is its line in a table. The page is committed, and a test compares it with the code.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from claude_transport import errors
from claude_transport.codex import CodexTurnError, error_of, items, messages
from claude_transport.codex.errors import BY_API_CODE, BY_NAME, BY_STATUS

__all__ = ["PAGE", "main", "render"]

DOCS = Path(__file__).parent
PAGE = DOCS / "reference" / "codex.md"
STATUSES = (400, 401, 402, 403, 404, 413, 418, 429, 500, 503, 529)

ANSWERS = {
    "item/commandExecution/requestApproval": "`on_approval` decides; otherwise it is declined",
    "item/fileChange/requestApproval": "`on_approval` decides; otherwise it is declined",
    "item/tool/call": "the tool in `tools` runs; without tools it is refused",
}

INTRODUCTION = """\
# Codex: messages, items and errors

<!-- Written by docs/generate_codex.py from claude_transport/codex: change that, and run it again. -->

[Use Codex](../how-to/use-codex.md) shows a session at work. All names are in `claude_transport.codex`.

`codex app-server` speaks JSON-RPC 2.0 without the member `jsonrpc`, one object in a line. `decode_message()` makes a typed message of each
line. The members of `params` are attributes, in snake case. Nothing is lost: an unknown method becomes an `UnknownNotification` or
`UnknownRequest`, an unknown item an `UnknownItem`, and `to_dict()` returns everything that was on the line.

Both sides number their own requests, so an `id` may mean two requests at once: the `method` tells a request from an answer. Ids of items
repeat: only thread, turn and item together name one.
"""

RULES = """\
## The end of a turn

* Only `turn/completed` of the same turn ends a turn. Its `status` is `completed`, `interrupted` or `failed`.
* An `error` notification with `will_retry` is no failure: Codex asks the model again. `CodexTurnResult.retries` counts them.
* If the API cannot be reached (connection refused, no such name, no TLS), Codex says `Reconnecting... waiting for network`, counts no
  attempts, and asks again without an end. The session then interrupts the turn, which ends with the status `failed` and
  `result.connection_failed`. The session goes on.
* After a cut stream, Codex says a message again from the start, under a second `item/started` with the same id. `text` holds it once;
  `new_text()` does not repeat it.
* A prompt during a turn becomes a part of that turn. Both handles have the same `turn_id`, and one result.
* An interrupt leaves a running command alone, unless it had only just begun. The command ends with the process.
* Codex drops the running turn when its input ends. `aclose()` interrupts it first, and reports it in `CodexCloseReport.interrupted_turns`.
* The exit code of the process says nothing about the last turn, and its standard error is busy when all is well.
"""

ERRORS = """\
## Errors

`CodexTurnResult.error` of a failed turn is an error of this library, with the class and the `code` that the same failure of `claude` has
([errors and codes](errors-and-codes.md)). `codexErrorInfo` decides. Only where it names no cause do the words of the message: a status in
it, a body of the API, or sentences that Codex is known to write. What Codex wrote is a note of the error, without secrets.
"""

OTHERS = """\
### Other errors of a session

| what happened | raised |
|---|---|
| the prompt has more than 1,048,576 characters | `PromptTooLong`, before it is sent; also for Codex's own refusal (`input_too_large`) |
| Codex answers a request with an error | `JSONRPCError`, with `rpc_code`, `message` and `data` |
| Codex does not answer a request in time | `ControlTimeout`; while the session starts, `ConnectTimeout` |
| the thread to resume does not exist | `ConfigurationError` with the option `resume` |
| `steer()` without a running turn | `ControlRequestFailed` |
| the process ends in a turn, whatever its exit code | `ProcessError`, with `exit_code`, `signal` and `stderr_tail` |
| the connection breaks, or ends, and there is no process | `ConnectionLost`; in the middle of a line `TruncatedStream` |
| the session is closed before Codex says how the turn ended | `MissingResult` |
| `on_approval` raises, is cancelled, is not async, or returns another value | nothing: it is logged, and the answer is `decline` |
"""


def first_sentence(cls: type) -> str:
    """Return the first sentence of the docstring of a class, for a cell of a table."""
    words = " ".join((inspect.getdoc(cls) or "").split())
    return re.split(r"(?<=[.])\s", words, maxsplit=1)[0].replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head), *rows]
    text = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([text[0], "|" + "---|" * len(lines[0]), *text[1:], ""])


def error_row(name: str, info: Any) -> list[str]:
    """Return the line of a failure with this `codexErrorInfo`."""
    found = error_of(CodexTurnError(codex_error_info=info))
    return [name, f"`{type(found).__name__}`", f"`{found.code}`", "yes" if found.retryable else "no"]


def error_tables() -> str:
    """Return the tables of causes."""
    head = ["`codexErrorInfo`", "class", "`code`", "retryable"]
    plain = [error_row(f"`{name}`", name) for name in BY_NAME]
    rest = error_row("`other`, anything new, nothing", None)
    objects = ", ".join(f"`{name}`" for name in sorted(BY_STATUS))
    by_status = [error_row(str(status), {"httpConnectionFailed": {"httpStatusCode": status}}) for status in STATUSES]
    unreached = error_row("none: the API was not reached", {"httpConnectionFailed": {}})
    codes = [
        [f"`{code}`", f"`{type(found).__name__}`", f"`{found.code}`"]
        for code in BY_API_CODE
        if (found := error_of(f'{{"error": {{"code": "{code}"}}}}'))
    ]
    return "\n".join(
        [
            table(head, [*plain, rest]),
            f"{objects} hold a status of the API in `httpStatusCode`. Another status counts as 400 below 500, and as 500 above.\n",
            table(["`httpStatusCode`", *head[1:]], [*by_status, unreached]),
            "A body of the API in the message, as for a status of 400, is read for its `code` and `type`:\n",
            table(["in the body", "class", "`code`"], codes),
        ]
    )


def message_tables() -> str:
    """Return the tables of notifications, requests and items."""
    told = [[f"`{method}`", f"`{cls.__name__}`", first_sentence(cls)] for method, cls in sorted(messages.NOTIFICATIONS.items())]
    asked = [[f"`{method}`", f"`{cls.__name__}`", ANSWERS[method]] for method, cls in sorted(messages.REQUESTS.items())]
    asked.append(["any other", "`UnknownRequest`", "it is refused with a JSON-RPC error, and logged once"])
    parts = [cls for cls in get_args(items.AnyItem) if cls is not items.UnknownItem]
    listed = [[f"`{cls.__struct_config__.tag}`", f"`{cls.__name__}`", first_sentence(cls)] for cls in parts]
    listed.append(["any other", "`UnknownItem`", first_sentence(items.UnknownItem)])
    return "\n".join(
        [
            "## What Codex tells\n",
            table(
                ["method", "class", "meaning"],
                [*told, ["any other", "`UnknownNotification`", first_sentence(messages.UnknownNotification)]],
            ),
            "## What Codex asks\n",
            table(["method", "class", "what the session answers"], asked),
            "## Items of a turn\n",
            table(["`type`", "class", "meaning"], listed),
        ]
    )


OWN = ("session", "blocking", "callbacks", "conversation", "messages", "items", "errors")
KINDS = {"error_of": "function", "decode_message": "function"}
TITLES = {
    "session": "The session",
    "blocking": "The session without an event loop",
    "callbacks": "Callbacks",
    "conversation": "Results",
    "messages": "Messages",
    "items": "Items",
    "errors": "Failures",
}


def names_of_door() -> Mapping[str, str]:
    """Return the table of the door: module to names."""
    spec = importlib.util.spec_from_file_location("generate_names", DOCS / "generate_names.py")
    if spec is None or spec.loader is None:
        raise ImportError("docs/generate_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    homes: Mapping[str, str] = module.read_table((module.PACKAGE / "codex" / "__init__.py").read_text("utf-8"))[0]
    return homes


def entries() -> str:
    """Return the entry of every name of the door that this page is about."""
    from claude_transport import codex

    homes, parts = names_of_door(), ["## Every class and function\n"]
    for module in OWN:
        names = sorted(homes[f"codex.{module}"].split())
        classes = [f"   claude_transport.codex.{name}" for name in names if isinstance(getattr(codex, name), type)]
        others = [
            f".. auto{KINDS.get(name, 'data')}:: claude_transport.codex.{name}"
            for name in names
            if not isinstance(getattr(codex, name), type)
        ]
        lines = [*([".. classes::", "", *classes] if classes else []), *([""] if classes and others else []), *others]
        parts.append(f"### {TITLES[module]}\n\n```{{eval-rst}}\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


def render() -> str:
    """Return the whole page."""
    known = {name for name in dir(errors) if isinstance(getattr(errors, name), type)}
    named = set(re.findall(r"`([A-Z]\w+)`", OTHERS)) - {"CodexCloseReport"}
    if named - known:
        raise ValueError(f"no errors of this library: {sorted(named - known)}")
    parts = [INTRODUCTION, message_tables(), RULES, ERRORS, error_tables(), OTHERS, entries()]
    return "\n".join(parts).rstrip() + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
