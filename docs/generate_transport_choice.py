"""The pages about the two paths, from the tables that the library works by: `python docs/generate_transport_choice.py` writes both.

The pages are committed, so that they can be read without building anything; a test holds that they are what the tables say.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from claude_transport import errors
from claude_transport.agents.agent import RUN_ONLY
from claude_transport.backoff import RetryPolicy
from claude_transport.codex.asking import HONOURED
from claude_transport.codex.errors import error_of, interrupted
from claude_transport.codex.messages import CodexTurnError
from claude_transport.completion.api_path import NOT_CUSTOM
from claude_transport.completion.assembly import ADVICE
from claude_transport.completion.classification import (
    ERROR_TYPES,
    SENTENCES,
    classify_api_exception,
    classify_cli_exception,
    classify_result,
    timed_out,
)
from claude_transport.completion.resolution import AGENT_LAYERS, API_VARIABLES, CHOICES, LAYERS, MATRIX, Cell
from claude_transport.launch.credentials import PAYERS
from claude_transport.protocol.messages import ResultMessage

sys.path.insert(0, str(Path(__file__).parent))

from generate_met_errors import anchor, index

__all__ = ["CHOICE_PAGE", "ERRORS_PAGE", "main", "render_choice", "render_errors"]

REFERENCE = Path(__file__).parent / "reference"
CHOICE_PAGE = REFERENCE / "transport-choice.md"
ERRORS_PAGE = REFERENCE / "errors-and-codes.md"

MARK = (
    "<!-- Written by docs/generate_transport_choice.py from the tables in claude_transport/completion: change those, and run it again. -->"
)

CHOICE = f"""\
# Which path a call takes, and who pays

{MARK}

A call can take two paths: through the `claude` program of this machine, with its login, or to the Messages API, with a key.
`resolve_transport()` chooses the path, `preflight()` checks what would happen, and `claude-transport doctor` shows both.

Another agent can answer in place of Claude: Codex, through its own program. [Below](#which-agent-answers) is what chooses it.
"""

LAYER_TEXT = """\
## What decides

The first of these layers that makes a choice decides. `Resolution.layer` and `.reason` name it. An unknown value is refused, and the
error names its layer.
"""

MATRIX_TEXT = f"""\
## The result

"A key" is {" or ".join(f"`{name}`" for name in API_VARIABLES)} in the environment; "claude" is a binary that
`find_cli()` finds. `auto` takes the CLI when there is one, so that the subscription pays. An explicit choice is never replaced.

* *fails at once*: neither path works. `preflight()` reports it, `auto` raises it, and the program exits with 2. Nothing is tried.
* *fails in the call*: the check before the call passes, because the other path works. The chosen path fails when it is used.
"""

PAYER_TEXT = """\
## Which credential wins, and who pays

The CLI takes the first of these that it finds; with `ANTHROPIC_AUTH_TOKEN` and a key it sends both, and the server decides. The API path
takes `ANTHROPIC_API_KEY`, then `ANTHROPIC_AUTH_TOKEN`, and sends one. So **a key in the environment makes the API account pay on the CLI
path, too**, unless `billing="subscription"` removes it for the child. The API path cannot use a subscription, so it is refused with that
policy.
A credential among `ANTHROPIC_CUSTOM_HEADERS` (`x-api-key`, `authorization`, `proxy-authorization`) is sent beside the one that was found:
each policy except `inherit` removes the whole variable for the child, or refuses to start, as it does with a key. At the other end of a
launcher, one of these names anywhere in the variable is enough.

The API path sends one credential, in the header that the SDK uses for it. It leaves out {not_custom} of
`ANTHROPIC_CUSTOM_HEADERS`, and user and password of `ANTHROPIC_BASE_URL`. The logger `claude_transport.completion.api_path` warns of it.
Headers with other names are sent, such as the one that a gateway asks for. Errors and logs show the origin alone of that address: scheme,
host and port.
"""

ADVICE_TEXT = """\
## A success that looks unfinished

A run may report success although it did not finish. With `heuristics=True`, two suspicions become a warning with a fixed prefix and a
category, never an error. The answer is not changed. A run that reports a failure gets neither.
"""

ANNOUNCED = """\
## Announced once

The first time that `auto` chooses the CLI in a process, the logger `claude_transport.completion` writes a warning that names the account
that pays. The program writes it as one line on stderr. An explicit choice is not announced. It is the same when `auto` chooses the agent.
"""

AGENT_TEXT = """\
## Which agent answers

`agent="claude-code"`, `"codex"` or `"auto"`: `resolve_agent()` chooses. The first of these layers that makes a choice decides.
`AgentResolution.layer` and `.reason` name it. An unknown value is refused, and the error names its layer.
"""

AUTO_AGENT_TEXT = """\
`auto` takes Claude Code when it is there, else Codex. In a call, Claude is also there when the call must go to the Messages API
(`transport="api"`), and when there is neither program but a key. Without any of them the code is `config.no_agent`.

Codex has no API path: with `transport="api"`, from whichever layer, a call to it is refused. So is a model of Claude. A model of Codex is
refused where a layer chose `claude-code`, also by `auto`; a call that chose no agent may name any model, because a proxy may serve it.
"""

OPTIONS_TEXT = """\
### What Codex honours of `ClaudeOptions`

Options for Codex itself are `CodexOptions`, in the argument `codex`. Where both say something, an argument of the call counts first, then
`CodexOptions`, then `ClaudeOptions`. An option that has no row is refused with a `ConfigurationError` that names it, before a process
starts: it would change the answer, or what the run may do.
"""

ERRORS = f"""\
# Errors and their codes

{MARK}

Both paths report a failure in the same way: one class, one `code`, one `category`, and one sentence with the suffix
`(transport=…, category=…)` for programs that read logs. `error.reason` is what the other side said, without secrets and cut at 500
characters; `str()` has it once, before the suffix. `__cause__` has up to 4,096 characters of it, and the events have all. Structured fields
decide first (`is_error`, `api_error_status`, `error`, `terminal_reason`), words only without them.
"""

RESULT_TEXT = """\
## What a run reports

*Again* names the field of `RetryPolicy` that counts the retries, and its default. *no* means that a call is never repeated.
"""

LATE_TEXT = """\
## When the time is over

The error is a `MissingResult` with the code `exec.cli.timeout`. Three things may be known then:

* Nothing: the model was slow. The category is `timeout`, and the error is not retryable. Allow more time.
* The agent was trying again, because the API had failed each time since its last answer. Then `category` and `retryable` are those of this
  failure, which is the `__cause__` (`AuthFailed`, `RateLimited`, `Overloaded`, …). `reason` says how often the API failed, and how.
* The call itself was trying again (`RetryPolicy`). Then the failure of the attempt before is the `__cause__`, and gives the
  `reason`.
"""

CLI_TEXT = """\
## What happens to the program

The first class that fits counts. *Again* holds for a call that certainly had no side effects.
"""

CODEX_TEXT = """\
## What Codex reports

`codexErrorInfo` of the failed turn decides, with its `httpStatusCode` where it has one; words only when it says `other`. Before that, Codex
asks again by itself: such a retry (`willRetry`) is an event and no failure. So the retries of this table come on top of its own.
A turn that had called a tool is never repeated.
"""

CODEX_CAUSES: tuple[Any, ...] = (
    "rateLimitExceeded",
    "usageLimitExceeded",
    {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
    "serverOverloaded",
    "flexUnavailable",
    "policyCapacityUnavailable",
    "unauthorized",
    {"httpConnectionFailed": {"httpStatusCode": 401}},
    {"httpConnectionFailed": {"httpStatusCode": 402}},
    "badRequest",
    "modelNotFound",
    "contextWindowExceeded",
    "internalServerError",
    {"responseStreamConnectionFailed": {"httpStatusCode": None}},
    {"responseStreamDisconnected": {"httpStatusCode": None}},
    "sessionBudgetExceeded",
    "cyberPolicy",
    "misalignmentPolicyViolation",
    "inferenceHookDenied",
    "other",
)
"""What `codexErrorInfo` may be. One with a status stands for every status."""

API_TEXT = """\
## What the API calls it

The `type` of the error object decides before the status: an error in the middle of a stream arrives with the status 200. Any other 4xx is
an invalid request, any other 5xx a failure of the server.
"""

CODES_TEXT = """\
## Every class

`code`, `category` and `retryable` are attributes of the class; the tables above say where an instance has others. *Again* is what
`complete()` does with the error on the CLI path, in a call that certainly had no side effects: the field of `RetryPolicy` that counts the
retries, and its default. *as* and a class means that `complete()` raises that class instead.
"""

TROUBLE_TEXT = """\
## Troubleshooting by code

[The errors that users meet most](met-errors.md), as they are printed, with what provokes them and what to do.
"""

CAUSES: dict[str, dict[str, Any]] = {
    "429": {"api_error_status": 429},
    "529": {"api_error_status": 529},
    "401, 403, not logged in": {"api_error_status": 401},
    "402, or 400 with `credit balance`": {"api_error_status": 402},
    "400": {"api_error_status": 400},
    "404": {"api_error_status": 404},
    "413, or a prompt over the context window": {"api_error_status": 413},
    "500 to 504": {"api_error_status": 500},
    "the API was not reached": {"api_error": "connection_failed"},
    "the answer was over `max_tokens`, again and again": {"api_error": "max_output_tokens"},
    "the model refused": {"stop_reason": "refusal"},
    "`max_turns`": {"subtype": "error_max_turns"},
    "`max_budget_usd`": {"subtype": "error_max_budget_usd"},
    "interrupted": {"terminal_reason": "aborted_streaming"},
    "output that does not fit the schema": {"subtype": "error_max_structured_output_retries"},
    "stopped after a tool was not allowed": {"terminal_reason": "aborted_tools", "permission_denials": ({"tool_name": "Bash"},)},
    "root with `bypassPermissions`": {"startup_failure_reason": "bypass_root"},
    "the session could not be started": {"startup_failure_reason": "config_file_invalid"},
    "no reason was given": {},
}
"""What a result says, for each cause that has a row."""


def cell(text: str) -> str:
    """`text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown_cell(found: Cell) -> str:
    """A cell of the matrix in words."""
    what = {"cli": "CLI", "api": "API", None: ""}[found.kind]
    how = {"preflight": "**fails at once**", "call": f"{what} **fails in the call**", None: what}[found.failure]
    code = f" `{found.code}`" if found.code else ""
    return f"{how}{code}: {found.note}" if found.note else f"{how}{code}"


def matrix_rows() -> Iterator[list[str]]:
    for row, cells in MATRIX.items():
        yield ["yes" if row.api_key else "no", "yes" if row.cli else "no", *(shown_cell(cells[choice]) for choice in CHOICES)]


def codex_rows() -> Iterator[list[str]]:
    for info in CODEX_CAUSES:
        shown = info
        if isinstance(info, dict):
            ((name, facts),) = info.items()
            shown = name if facts["httpStatusCode"] is None else f"{name} {facts['httpStatusCode']}"
        yield [f"`{shown}`", *told(error_of(CodexTurnError(codex_error_info=info)))]
    yield ["interrupted", *told(interrupted())]


def render_choice() -> str:
    """The page about the choice, as MyST Markdown."""
    agent_layers = ([str(rank), f"`{layer}`", cell(text)] for rank, (layer, text) in enumerate(AGENT_LAYERS.items(), 1))
    honoured = [*([f"`{name}`", "used"] for name in HONOURED), *([f"`{name}`", "means nothing"] for name in RUN_ONLY)]
    layers = ([str(rank), f"`{layer}`", cell(text)] for rank, (layer, text) in enumerate(LAYERS.items(), 1))
    payers = ([f"`{kind}`", cell(payer)] for kind, payer in PAYERS.items())
    advice = ([f"`{category}`", f"`{prefix}: `"] for category, prefix in ADVICE.items())
    parts = [
        CHOICE,
        LAYER_TEXT,
        table(("Rank", "`layer`", "What it is"), layers),
        MATRIX_TEXT,
        table(("A key", "claude", *(f"`{choice}`" for choice in CHOICES)), matrix_rows()),
        PAYER_TEXT.format(not_custom=", ".join(f"`{name}`" for name in sorted(NOT_CUSTOM))),
        table(("Credential", "Who pays"), payers),
        AGENT_TEXT,
        table(("Rank", "`layer`", "What it is"), agent_layers),
        AUTO_AGENT_TEXT,
        OPTIONS_TEXT,
        table(("Option", "With Codex"), honoured),
        ANNOUNCED,
        ADVICE_TEXT,
        table(("`category`", "The warning begins with"), advice),
    ]
    return "\n".join(parts)


def told(error: errors.ClaudeTransportError, *, side_effects: bool | None = None) -> list[str]:
    """Class, code, category, whether it is tried again, and the sentence of an error."""
    kind = RetryPolicy.kind_of(error, side_effects=side_effects)
    again = "no" if kind is None else f"`{kind}`, {getattr(RetryPolicy(), kind)}"
    sentence = str(error).partition(" (transport=")[0]
    return [f"`{type(error).__name__}`", f"`{error.code}`", f"`{error.category}`", again, cell(sentence)]


def result_rows() -> Iterator[list[str]]:
    for cause, fields in CAUSES.items():
        result = ResultMessage(**{"subtype": "success", "is_error": True, "num_turns": 1, **fields})
        error = classify_result(result)
        if error is None:
            raise ValueError(f"{cause}: no failure")
        yield [cause, *told(error)]
    yield ["it took too long", *told(timed_out("cli"))]


def cli_rows() -> Iterator[list[str]]:
    for kind, sentence in SENTENCES:
        if kind is not errors.TransportClosed:  # told as a ProcessError
            yield told(classify_cli_exception(kind(sentence)), side_effects=False)


class StandIn(Exception):
    """What an exception of the anthropic SDK looks like from here."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__()
        self.status_code = status
        self.body = {"error": {"type": kind, "message": ""}}


def api_rows() -> Iterator[list[str]]:
    for kind, status in ERROR_TYPES.items():
        yield [f"`{kind}`", str(status), *told(classify_api_exception(StandIn(status, kind)))[:4]]


def class_rows() -> Iterator[list[str]]:
    for name in errors.__all__:
        if name.endswith("Warning"):
            continue
        cls = getattr(errors, name)
        raised = classify_cli_exception(cls(name))
        again = told(raised, side_effects=False)[3] if type(raised) is cls else f"as `{type(raised).__name__}`"
        meaning = cell((inspect.getdoc(cls) or "").split("\n\n")[0])
        yield [f"`{name}`", f"`{cls.code}`", f"`{cls.category}`", "yes" if cls.retryable else "no", again, meaning]


def trouble_rows() -> Iterator[list[str]]:
    for code, titles in index().items():
        yield [f"`{code}`", ", ".join(f"[{title}](met-errors.md#{anchor(title)})" for title in titles)]


def render_errors() -> str:
    """The page about errors, as MyST Markdown."""
    columns = ("Class", "`code`", "`category`", "Again", "Sentence")
    parts = [
        ERRORS,
        RESULT_TEXT,
        table(("Cause", *columns), result_rows()),
        API_TEXT,
        table(("`type`", "Status", *columns[:4]), api_rows()),
        CODEX_TEXT,
        table(("`codexErrorInfo`", *columns), codex_rows()),
        LATE_TEXT,
        CLI_TEXT,
        table(columns, cli_rows()),
        CODES_TEXT,
        table(("Class", "`code`", "`category`", "`retryable`", "Again", "Meaning"), class_rows()),
        TROUBLE_TEXT,
        table(("`code`", "As it is printed, with what to do"), trouble_rows()),
    ]
    return "\n".join(parts)


def main() -> None:
    """Write both pages to their places."""
    CHOICE_PAGE.write_text(render_choice(), "utf-8")
    ERRORS_PAGE.write_text(render_errors(), "utf-8")


if __name__ == "__main__":
    main()
