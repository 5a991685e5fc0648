"""`TapeSummary`: the figures of one tape, as plain data. `timeline.py` computes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from claude_transport.agents.scene import CallStats, Problem, TurnSummary
from claude_transport.protocol.token_counts import ModelCounts, TokenCounts


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
