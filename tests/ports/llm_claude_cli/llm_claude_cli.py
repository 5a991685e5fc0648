"""Claude models for LLM: the `claude` CLI and its login answer, over claude_transport."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import llm
from pydantic import Field

from claude_transport import ClaudeOptions, ClaudeTransportError, CLINotFoundError, split_rules
from claude_transport.completion import stream_sync

CLAUDE_MODELS = [
    {"model_id": "claude-cli", "aliases": ["ccli"], "name": "Claude CLI (default model)", "claude_model": None},
    {"model_id": "claude-cli-opus", "aliases": ["ccli-opus"], "name": "Claude Opus 4.5", "claude_model": "opus"},
    {"model_id": "claude-cli-sonnet", "aliases": ["ccli-sonnet"], "name": "Claude Sonnet 4.5", "claude_model": "sonnet"},
    {"model_id": "claude-cli-haiku", "aliases": ["ccli-haiku"], "name": "Claude Haiku 4.5", "claude_model": "haiku"},
]


class ClaudeCodeOptions(llm.Options):
    """The options that `llm -o` takes."""

    system_prompt: str | None = Field(None, description="System prompt, in place of that of Claude Code")
    use_default_system_prompt: bool | None = Field(None, description="Whether Claude Code keeps its own system prompt; unset, tools decide")
    append_system_prompt: bool = Field(False, description="Put system_prompt behind that of Claude Code")
    timeout: int = Field(300, description="Seconds for the answer")
    allowedTools: str | None = Field(None, description="Tools that need no permission, such as 'Read,Bash(git log:*)'")  # noqa: N815
    disallowedTools: str | None = Field(None, description="Tools that are forbidden")  # noqa: N815
    add_dir: str | None = Field(None, description="One more directory that Claude may access")
    permission_mode: str | None = Field(None, description="default, plan, acceptEdits, bypassPermissions or dontAsk")
    cwd: str | None = Field(None, description="Working directory")
    mcp_config: str | None = Field(None, description="Path of a file with MCP servers")
    verbose: bool = Field(False, description="Without effect: the output is always verbose")

    @property
    def is_agentic(self) -> bool:
        """Whether an option asks for more than an answer."""
        return any([self.permission_mode, self.add_dir, self.allowedTools, self.disallowedTools, self.mcp_config])


class ClaudeCode(llm.Model):
    """One model of the CLI."""

    can_stream = True
    needs_key = None
    key_env_var = None
    supports_schema = True

    class Options(ClaudeCodeOptions):
        """The options of this model."""

    def __init__(self, model_id: str, claude_model: str | None = None, aliases: tuple[str, ...] = ()) -> None:
        self.model_id = model_id
        self.claude_model = claude_model
        self.aliases = aliases

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None = None
    ) -> Iterator[str]:
        """Yield the answer: as it is written, or in one piece without `stream`, and always so with a schema."""
        given = prompt.options or self.Options()
        try:
            options = ClaudeOptions(
                model=self.claude_model,
                tools={"type": "preset", "preset": "claude_code"},
                allowed_tools=split_rules(given.allowedTools or "WebSearch"),
                disallowed_tools=split_rules(given.disallowedTools or ""),
                add_dirs=[given.add_dir] if given.add_dir else [],
                permission_mode=given.permission_mode,
                mcp_servers=given.mcp_config or {},
                cwd=given.cwd,
                output_format={"type": "json_schema", "schema": prompt.schema} if prompt.schema else None,
                **_system_prompt(prompt, given),
                **_session(conversation),
            )
            with stream_sync(prompt.prompt, transport="cli", options=options, timeout=given.timeout) as pieces:
                if stream and not prompt.schema:
                    yield from pieces
                else:
                    text, data = "".join(pieces), pieces.completion.structured_output
                    if answer := text if data is None else json.dumps(data):
                        yield answer
        except CLINotFoundError as error:
            raise llm.ModelError("Claude Code CLI not found. Please install it: https://docs.anthropic.com/en/docs/claude-code") from error
        except ClaudeTransportError as error:
            said = "timed out" if error.category == "timeout" else "error"
            raise llm.ModelError(f"Claude Code CLI {said}: {error.reason}") from error
        response.response_json = pieces.completion.structured_output
        usage = pieces.completion.usage
        response.set_usage(input=usage.input_tokens, output=usage.output_tokens)


def _system_prompt(prompt: llm.Prompt, given: ClaudeCodeOptions) -> dict[str, Any]:
    keep = given.use_default_system_prompt
    if given.is_agentic or prompt.schema if keep is None else keep:
        return {}
    text = prompt.system or given.system_prompt or ""
    return {"append_system_prompt" if text and given.append_system_prompt else "system_prompt": text}


def _session(conversation: llm.Conversation | None) -> dict[str, Any]:
    if conversation is None:
        return {"no_session_persistence": True}
    session = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"llm-claude-cli:{conversation.id}"))
    return {"resume" if conversation.responses else "session_id": session}


@llm.hookimpl
def register_models(register: Any) -> None:
    """Tell LLM which models there are."""
    for known in CLAUDE_MODELS:
        model = ClaudeCode(known["model_id"], known["claude_model"], tuple(known["aliases"]))
        register(model, aliases=model.aliases)
