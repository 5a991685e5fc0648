"""The Claude Code harness of clauditor over claude_transport, and what clauditor itself reads out of a run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from clauditor.runner import _BACKGROUND_TASK_WARNING_PREFIX, _INTERACTIVE_HANG_WARNING_PREFIX, _SYNC_TASKS_ENV_VAR, InvokeResult

from claude_transport import AuthFailed, ClaudeOptions, ClaudeTransportError, CLINotFoundError, Completion, RateLimited, RetryPolicy
from claude_transport.completion import complete_sync, partial_completion
from claude_transport.messages import DecodeFailure, ResultMessage

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_RESULT_TEXT_MAX_CHARS = 4096
_WAITING = re.compile(r"\b(waiting on|still waiting|continuing|in progress|in the background)\b", re.IGNORECASE)
_INTERACTIVE_HANG_WARNING = (
    f"{_INTERACTIVE_HANG_WARNING_PREFIX} skill may have asked for input — ensure all parameters are in test_args (heuristic)"
)
_BACKGROUND_TASK_WARNING = (
    f"{_BACKGROUND_TASK_WARNING_PREFIX} skill launched Task(run_in_background=true) and exited without polling, so output is likely "
    "truncated (heuristic). See docs/skill-usage.md#skill-compatibility for refactoring recipes."
)


def env_without_api_key(base_env: dict[str, str] | None = None, *, harness_name: str | None = None) -> dict[str, str]:
    """Return a copy of the environment without the keys that pay; Codex keeps that of OpenAI."""
    stripped = _KEYS if harness_name == "codex" else (*_KEYS, "OPENAI_API_KEY")
    return {name: value for name, value in (os.environ if base_env is None else base_env).items() if name not in stripped}


class ClaudeCodeHarness:
    """Runs prompts on the `claude` CLI."""

    name: ClassVar[str] = "claude-code"

    def __init__(self, *, claude_bin: str = "claude", model: str | None = None, allow_hang_heuristic: bool = True) -> None:
        self.claude_bin = claude_bin
        self.model = model
        self.allow_hang_heuristic = allow_hang_heuristic

    def strip_auth_keys(self, env: dict[str, str]) -> dict[str, str]:
        """Return a copy of `env` without the keys that pay."""
        return env_without_api_key(env)

    def build_prompt(self, skill_name: str, args: str, *, system_prompt: str | None) -> str:
        """Return the slash command of a skill. The CLI has no system prompt beside it."""
        return f"/{skill_name} {args}" if args else f"/{skill_name}"

    def invoke(
        self,
        prompt: str,
        *,
        cwd: Path | None,
        env: dict[str, str] | None,
        timeout: int,
        model: str | None = None,
        subject: str | None = None,
    ) -> InvokeResult:
        """Run one prompt. A failure is in the result; nothing is raised for it."""
        model = self.model if model is None else model
        options = ClaudeOptions(
            cli_path=self.claude_bin,
            model=model,
            cwd=cwd,
            max_retries=10,  # as `claude -p` does; clauditor's own retries come on top
            **({} if env is None else {"env": env, "env_mode": "exact"}),
        )
        error = None
        try:
            run = complete_sync(
                prompt, transport="cli", options=options, timeout=timeout, retry=RetryPolicy.none(), heuristics=False, subject=subject
            )
        except ClaudeTransportError as exc:
            error, partial = exc, partial_completion(exc)
            if partial is None:
                raise
            run = partial
        result = _read(run, error)
        result.harness_metadata = {"model": model}
        if isinstance(error, CLINotFoundError):
            result.error = f"Claude CLI not found: {self.claude_bin}"
            result.warnings = []
        if run.api_key_source is not None:
            label = " ".join((subject or "").replace("\r", "\n").split("\n")).strip()[:200]
            _say(f"apiKeySource={run.api_key_source}" + (f" ({label})" if label else ""))
        if self.allow_hang_heuristic and result.error is None:
            _judge(result, forced_sync=(os.environ if env is None else env).get(_SYNC_TASKS_ENV_VAR) == "1")
        if run.stderr_tail and result.error_category is not None:
            result.warnings.append(run.stderr_tail)
        return result


def _read(run: Completion, error: ClaudeTransportError | None) -> InvokeResult:
    result = InvokeResult(output="", exit_code=run.exit_code, duration_seconds=run.duration, api_key_source=run.api_key_source)
    for event in run.events:
        if isinstance(event, DecodeFailure):
            result.warnings.append(f"malformed stream-json line skipped: {event.error}")
            _say(f"skipping malformed stream-json line: {event.error}")
        else:
            result.stream_events.append(event.to_dict())
    result.raw_messages = [*result.stream_events]
    result.output = "\n".join(str(block.get("text", "")) for block in _blocks(result.stream_events) if block.get("type") == "text")
    results = [event for event in run.events if isinstance(event, ResultMessage)]
    for ended in results:
        result.input_tokens, result.output_tokens = ended.usage.input_tokens, ended.usage.output_tokens
        if ended.is_error:
            result.error, result.error_category = _classify_result_message(ended.to_dict())
    if isinstance(error, AuthFailed | RateLimited):  # it knows the status, which the text need not name
        result.error_category = error.category
    if error is not None and error.category == "timeout":
        result.exit_code, result.error, result.error_category = -1, "timeout", "timeout"
        return result
    if not results:
        result.warnings.append("stream-json ended without a 'result' message; token usage unavailable")
        _say(result.warnings[-1])
    if result.error is None and (error is not None or run.exit_code):
        result.error = run.stderr_tail or (str(error) if error is not None else None)
    return result


def _say(line: str) -> None:
    print(f"clauditor.runner: {line}", file=sys.stderr)


def _judge(result: InvokeResult, *, forced_sync: bool) -> None:
    if _detect_interactive_hang(result.stream_events, result.output):
        result.error_category = "interactive"
        result.warnings.append(_INTERACTIVE_HANG_WARNING)
    elif not forced_sync and _detect_background_task_noncompletion(result.stream_events, result.output):
        result.error_category = "background-task"
        result.warnings.append(_BACKGROUND_TASK_WARNING)


def _messages(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if isinstance(event, dict) and event.get("type") == kind]


def _said(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["message"] for event in _messages(events, "assistant") if isinstance(event.get("message"), dict)]


def _blocks(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in _said(events):
        content = message.get("content")
        yield from (block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()


def _num_turns(events: list[dict[str, Any]]) -> int | None:
    turns = [event["num_turns"] for event in _messages(events, "result") if isinstance(event.get("num_turns"), int)]
    return turns[-1] if turns else None


def _tool_calls(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [block for block in _blocks(events) if block.get("type") == "tool_use" and block.get("name") == name]


def _count_background_task_launches(stream_events: list[dict[str, Any]]) -> int:
    inputs = [call.get("input") for name in ("Task", "Agent") for call in _tool_calls(stream_events, name)]
    return sum(isinstance(given, dict) and given.get("run_in_background") is True for given in inputs)


def _detect_background_task_noncompletion(stream_events: list[dict[str, Any]], final_text: str) -> bool:
    """Whether tasks were launched in the background, and the last words wait for them, or too few turns came after."""
    launches = _count_background_task_launches(stream_events)
    turns = _num_turns(stream_events)
    return launches > 0 and (bool(_WAITING.search(final_text)) or (turns is not None and turns < launches + 2))


def _detect_interactive_hang(stream_events: list[dict[str, Any]], final_text: str) -> bool:
    """Whether the only turn ended by itself with a question."""
    stops = [message["stop_reason"] for message in _said(stream_events) if isinstance(message.get("stop_reason"), str)]
    if _num_turns(stream_events) != 1 or not stops or stops[-1] != "end_turn":
        return False
    return final_text.strip().endswith("?") or bool(_tool_calls(stream_events, "AskUserQuestion"))


def _classify_result_message(msg: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the text of a result that reports an error, and its category; None twice for any other."""
    if msg.get("is_error") is not True:
        return None, None
    said = msg.get("result")
    text = said if isinstance(said, str) else "API error (no detail)"
    if len(text) > _RESULT_TEXT_MAX_CHARS:
        text = text[:_RESULT_TEXT_MAX_CHARS] + " ... (truncated)"
    if re.search("429|rate[ -]limit", text, re.IGNORECASE):
        return text, "rate_limit"
    if re.search("401|403|unauthorized|authentication|auth error|anthropic_api_key", text, re.IGNORECASE):
        return text, "auth"
    return text, "api"
