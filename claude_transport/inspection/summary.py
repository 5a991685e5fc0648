"""`TapeSummary`: the figures of one tape, as plain data. `timeline.py` computes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Literal

import msgspec

from claude_transport.wrappers.metrics_snapshot import ModelCounts, TokenCounts


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, from its prompt to its result. Times are seconds.

    * `number`: from 1. `t`: its beginning, after the start of the tape: the time of its prompt, or of the result before it when the prompt
      was waiting already. `seconds`: its duration.
    * `prompts`: prompts that share the turn: several were merged, none when a background task woke the session. `prompt`: the first one.
    * `outcome`: `ok`, the code of the failure (`result.overloaded`), or `result.missing` when the tape ends first. `detail`: more about it.
    * `first_output`: from the beginning to the first words of the model.
    * `tokens`: as the result says, or those of the API messages where it says none (an interrupted turn [07a]).
    * `cost_usd`: paid since the result before.
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
    """The calls of one tool, or the control requests of one subtype from one side.

    * `calls`: all of them. `errors`: failed. `denied`: not allowed. `cancelled`: withdrawn by the side that asked. `open`: without an
      answer on the tape.
    * `seconds`: the sum of the durations of those that ended. `longest`: the longest of them.
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
    """A fault, or a possible one, at `t` seconds. `event` is the id of the event that tells more; None for a fault of the tape itself."""

    t: float
    level: Literal["warning", "error"]
    text: str
    event: int | None = None


class TapeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a tape. Times are seconds, sizes bytes, costs US dollars.

    * `tokens`: the sum over the turns, each API message once. `models`, `cost_usd`: everything that was paid for, with subagents and
      interrupted turns.
    * `messages_in` (host to CLI), `messages_out`: lines by their wire type. `unreadable_lines`: lines without a message.
    * `problems`: the first hundred. `problem_count`: all of them. `error_count`: those of level error.
    * `is_torn`: the recording was interrupted in the middle of a line. `scrubbed`: secrets were removed while recording.
    * `exit_code`, `signal`: of the process, where the tape says so.
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
        """True when there was at least one turn, every turn succeeded, and the process did not fail."""
        return bool(self.turns) and all(turn.outcome == "ok" for turn in self.turns) and not self.exit_code and self.signal is None

    @property
    def tool_calls(self) -> int:
        """The number of calls of all tools."""
        return sum(tool.calls for tool in self.tools)

    @property
    def tool_errors(self) -> int:
        """The number of calls of tools that failed or were denied."""
        return sum(tool.errors + tool.denied for tool in self.tools)

    @property
    def control_requests(self) -> int:
        """The number of control requests of both sides."""
        return sum(request.calls for request in self.requests)
