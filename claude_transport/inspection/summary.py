"""`TapeSummary`: the figures of one tape, as plain data. `timeline.py` computes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Literal

import msgspec

from claude_transport.wrappers.metrics_snapshot import ModelCounts, TokenCounts


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a tape, from its prompt to its result. Times are seconds.

    * `number`: from 1. `t`: its beginning, after the start of the tape: the time of its prompt, or of the result before it when the prompt
      was waiting already. `seconds`: its duration.
    * `prompts`: how many prompts share the turn: several were merged, none when a background task woke the session. `prompt`: the beginning
      of the first one.
    * `outcome`: `ok`, the code of the failure (`result.overloaded`), or `result.missing` when the tape ends first. `detail`: more about a
      failure.
    * `first_output`: seconds from the beginning to the first words of the model; None when it said nothing in this turn.
    * `api_messages`: answers of the API. `tool_calls`, `tool_errors`: calls of tools, and those that failed.
    * `tokens`: as the result says, or those of the API messages where it says none (an interrupted turn).
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
    """Counts on a tape: all calls of one tool, or all control requests of one subtype from one side.

    * `name`: the tool, the subtype, or the method of a request. `asked_by`: `model` for a tool; for a request, the side that sent
      it: `host`, or the program of the agent, such as `claude`.
    * `calls`: all of them. `errors`: failed. `denied`: not allowed. `cancelled`: withdrawn by the side that asked. `open`: without an
      answer on the tape.
    * `seconds`: the sum of the durations of those that ended. `longest`: the longest of them.
    """

    name: str
    asked_by: str
    calls: int = 0
    errors: int = 0
    denied: int = 0
    cancelled: int = 0
    open: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class Problem(msgspec.Struct, frozen=True):
    """A fault on a tape, or a possible one. `t` is its time in seconds after the start of the tape, `text` says what is wrong.

    `level` is `error` or `warning`. `event` is the id of the `Event` that tells more; None for a fault of the tape itself.
    """

    t: float
    level: Literal["warning", "error"]
    text: str
    event: int | None = None


class TapeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a tape, from `summarize()` or `read_timeline()`. Times are seconds, sizes bytes, costs US dollars.

    * `agent`: whose lines they are: its program, such as `claude`. `session_ids` are threads for an agent that has them.
    * `turns`, `tools`, `requests`: one entry for each turn, for each tool, and for each subtype of control requests from one side.
    * `tokens`: the sum over the turns, each API message once. `models`, `cost_usd`: everything that was paid for, with subagents and
      interrupted turns.
    * `messages_in` (host to CLI), `messages_out`: number of lines by their wire type. `unreadable_lines`: lines without a message.
      `records`: records of the tape. `retries`: API requests that the CLI repeated.
    * `problems`: the first hundred. `problem_count`: all of them. `error_count`: those of level error.
    * `is_torn`: the recording was interrupted in the middle of a line. `scrubbed`: secrets were removed while recording.
    * `exit_code`, `signal`: how the process ended, where the tape says so; else None.
    """

    agent: str = "claude"
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
        """True when the tape has at least one turn, every turn succeeded, and no failed exit or signal of the process is on the tape."""
        return bool(self.turns) and all(turn.outcome == "ok" for turn in self.turns) and not self.exit_code and self.signal is None

    @property
    def tool_calls(self) -> int:
        """The number of calls of all tools on the tape, also of those that failed."""
        return sum(tool.calls for tool in self.tools)

    @property
    def tool_errors(self) -> int:
        """The number of tool calls on the tape that failed or were denied."""
        return sum(tool.errors + tool.denied for tool in self.tools)

    @property
    def control_requests(self) -> int:
        """The number of control requests on the tape, of the host and of the CLI together."""
        return sum(request.calls for request in self.requests)
