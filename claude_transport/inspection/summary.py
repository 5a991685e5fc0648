"""`TapeSummary`: the figures of one tape: plain data, to be shown, compared and asserted on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Literal

import msgspec

from claude_transport.wrappers.metrics_snapshot import ModelCounts, TokenCounts


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """From a prompt to its result. `t` is when it began, in seconds after the start of the tape: with its prompt, or with the result before
    when the prompt was waiting already.

    `outcome` is `ok`, the code of the failure (`result.overloaded`), or `result.missing` when the tape ends first. `prompts` is how many
    prompts share it: several were merged or folded into one turn; none for a turn that a background task woke the session for.
    `first_output` is seconds from the beginning to the model's first words. `tokens` are those that the result says, or where it says
    none (an interrupted turn [07a]) those of the API messages seen. `cost_usd` is what was paid since the result before.
    """

    number: int
    t: float
    seconds: float
    prompts: int
    prompt: str = ""
    outcome: str = "ok"
    detail: str = ""
    first_output: float | None = None
    api_messages: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tokens: TokenCounts = TokenCounts()
    cost_usd: float = 0.0


class CallStats(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one tool, or all control requests of one subtype from one side.

    `errors` failed, `denied` were not allowed, `cancelled` were withdrawn by whoever had asked, `open` have no answer on the tape.
    `seconds` is the sum over those that ended.
    """

    name: str
    asked_by: Literal["model", "host", "claude"]
    calls: int = 0
    errors: int = 0
    denied: int = 0
    cancelled: int = 0
    open: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class Problem(msgspec.Struct, frozen=True):
    """Something that went wrong, or may have: `event` is the id of the event that tells more; None for a fault of the tape itself."""

    t: float
    level: Literal["warning", "error"]
    text: str
    event: int | None = None


class TapeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is on a tape, counted. Times are seconds, sizes bytes, costs US dollars.

    `tokens` is the sum over the turns, each API message once, however many lines repeat it; `models` and `cost_usd` are everything that
    was paid for, subagents and interrupted turns too. `messages_in` (host to CLI) and `messages_out` count lines by their wire type.
    `unreadable_lines` hold no message. `problems` lists the first hundred; `problem_count` counts all of them, `error_count` the
    serious ones. `is_torn` says that the recording
    was interrupted in the middle of a line. `exit_code` and `signal` are those of the process, where the tape says so.
    """

    cli_version: str | None = None
    created_at: dt.datetime | None = None
    scrubbed: bool = False
    is_torn: bool = False
    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    session_ids: tuple[str, ...] = ()
    turns: tuple[TurnSummary, ...] = ()
    tools: tuple[CallStats, ...] = ()
    requests: tuple[CallStats, ...] = ()
    tokens: TokenCounts = TokenCounts()
    models: Mapping[str, ModelCounts] = {}
    cost_usd: float = 0.0
    api_messages: int = 0
    retries: int = 0
    messages_in: Mapping[str, int] = {}
    messages_out: Mapping[str, int] = {}
    unreadable_lines: int = 0
    stderr_lines: int = 0
    exit_code: int | None = None
    signal: int | None = None
    problems: tuple[Problem, ...] = ()
    problem_count: int = 0
    error_count: int = 0

    @property
    def ok(self) -> bool:
        """Whether there were turns, all of them ended well, and the process did not fail."""
        return bool(self.turns) and all(turn.outcome == "ok" for turn in self.turns) and not self.exit_code and self.signal is None

    @property
    def tool_calls(self) -> int:
        """Calls of all tools."""
        return sum(tool.calls for tool in self.tools)

    @property
    def tool_errors(self) -> int:
        """Calls of tools that failed or were denied."""
        return sum(tool.errors + tool.denied for tool in self.tools)

    @property
    def control_requests(self) -> int:
        """Control requests of both sides."""
        return sum(request.calls for request in self.requests)
