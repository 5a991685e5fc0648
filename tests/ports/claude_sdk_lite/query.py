"""The one-shot queries of claude-sdk-lite over claude_transport: blocking and not, as messages and as text."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

from claude_sdk_lite.exceptions import CLIExecutionError, CLINotFoundError, QueryError
from claude_sdk_lite.message_parser import parse_message
from claude_sdk_lite.options import ClaudeOptions
from claude_sdk_lite.types import AssistantMessage, Message, TextBlock

import claude_transport as ct
from claude_transport import SubprocessTransport
from claude_transport.client import SyncQuery
from claude_transport.messages import InitMessage

_PRINTED = (InitMessage, ct.AssistantMessage, ct.UserMessage, ct.ResultMessage, ct.StreamEvent)  # as `claude -p` does
_SAME = (
    *("model", "agent", "agents", "system_prompt", "append_system_prompt", "tools", "allowed_tools", "disallowed_tools"),
    *("continue_conversation", "resume", "fork_session", "session_id", "no_session_persistence", "replay_user_messages"),
    *("permission_mode", "dangerously_skip_permissions", "include_partial_messages", "max_budget_usd", "max_turns", "fallback_model"),
    *("max_thinking_tokens", "add_dirs", "settings", "strict_mcp_config", "disable_slash_commands", "betas", "debug_file", "files", "env"),
)


def query(*, prompt: str, options: ClaudeOptions | None = None) -> Generator[Message, None, None]:
    """Yield the messages that answer a prompt. Raises `QueryError` when the CLI cannot be run or fails."""
    try:
        with SyncQuery(SubprocessTransport(_translated(options or ClaudeOptions()))) as conversation:
            for event in conversation.send(prompt):
                if isinstance(event, _PRINTED):
                    yield parse_message(event.to_dict())
    except ct.MissingResult:  # the caller sees that the last message is no result
        return
    except ct.ClaudeTransportError as error:
        raise _as_query_error(error) from error


async def async_query(*, prompt: str, options: ClaudeOptions | None = None) -> AsyncGenerator[Message, None]:
    """Do what `query()` does, in an event loop."""
    try:
        async with ct.Query(SubprocessTransport(_translated(options or ClaudeOptions()))) as conversation:
            async for event in await conversation.send(prompt):
                if isinstance(event, _PRINTED):
                    yield parse_message(event.to_dict())
    except ct.MissingResult:
        return
    except ct.ClaudeTransportError as error:
        raise _as_query_error(error) from error


def query_text(*, prompt: str, options: ClaudeOptions | None = None) -> str:
    """Return the text of the answer."""
    return "".join(map(_text, query(prompt=prompt, options=options)))


async def async_query_text(*, prompt: str, options: ClaudeOptions | None = None) -> str:
    """Do what `query_text()` does, in an event loop."""
    return "".join([_text(message) async for message in async_query(prompt=prompt, options=options)])


def _text(message: Message) -> str:
    blocks = message.content if isinstance(message, AssistantMessage) else []
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def _translated(given: ClaudeOptions) -> ct.ClaudeOptions:
    schema = json.loads(given.json_schema) if isinstance(given.json_schema, str) else given.json_schema
    flags = {"ide": given.ide, "mcp-debug": given.mcp_debug}
    return ct.ClaudeOptions(
        **{name: getattr(given, name) for name in _SAME},
        cli_path=given._find_cli_path(),
        cwd=given.working_dir,
        output_format={"type": "json_schema", "schema": schema} if schema else None,
        setting_sources=given.setting_sources or None,
        mcp_servers=_servers(given.mcp_config),
        plugins=[{"type": "local", "path": str(path)} for path in given.plugin_dir],
        debug=(given.debug_filter or True) if given.debug else False,
        chrome=True if given.chrome else False if given.no_chrome else None,
        extra_args={
            **given.extra_args,
            **{name: None for name, is_set in flags.items() if is_set},
            **({"from-pr": given.from_pr} if given.from_pr else {}),
        },
    )


def _servers(given: Any) -> Any:
    """Return the servers as the CLI is told about them: one of this process without its object."""
    if not isinstance(given, dict):
        return given or {}
    return {
        name: {key: value for key, value in server.items() if key != "instance"} for name, server in given.get("mcpServers", given).items()
    }


def _as_query_error(error: ct.ClaudeTransportError) -> QueryError:
    if isinstance(error, ct.CLINotFoundError):
        return CLINotFoundError(f"Claude Code CLI not found. {error}")
    if isinstance(error, ct.ProcessError):
        return CLIExecutionError(f"CLI exited with code {error.exit_code}", exit_code=error.exit_code, stderr=error.stderr_tail)
    return QueryError(str(error))
