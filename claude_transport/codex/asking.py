"""What a call to Codex may ask for, and how it is asked: options, prompt and schema. Loaded only where Codex is asked about.

`CodexCall` refuses what Codex cannot do, before any process is started, and translates the rest. `input_of` translates the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from claude_transport.agents.agent import AskedCall, refuse_more
from claude_transport.agents.output_schema import check_schema
from claude_transport.codex.credentials import check_codex_payer, describe_codex_credentials
from claude_transport.codex.errors import check_sendable
from claude_transport.codex.options import PLAIN_CODEX, CodexOptions, check_options
from claude_transport.errors import ConfigurationError
from claude_transport.launch.credentials import CredentialReport
from claude_transport.launch.options import default_of, fields_of
from claude_transport.launch.rules import refuse

HONOURED: Final = (
    *("model", "system_prompt", "output_format", "cwd", "resume", "no_session_persistence"),
    *("env", "env_mode", "env_allow", "billing"),
)
"""Options of `ClaudeOptions` that Codex honours."""


class CodexCall:
    """What one call asks of Codex, with the options of Claude and those of Codex merged."""

    def __init__(self, call: AskedCall) -> None:
        self._call = call
        self._given = call.options
        self.options: CodexOptions = self._merged(PLAIN_CODEX if call.agent_options is None else call.agent_options)

    def check(self) -> None:
        """Check that Codex can do all of it. Raises `ConfigurationError` that names the option which it cannot honour."""
        refuse_more(self._call, HONOURED, title="Codex")
        if not isinstance(self._given.system_prompt, str | None):
            refuse("system_prompt", "Codex takes text only; a preset needs claude")
        check_options(self.options)
        check_sendable("system_prompt", self._given.system_prompt)
        check_sendable("resume", self._given.resume)
        check_sendable("output_format", self._given.output_format)
        if self.schema is not None:
            check_schema(self.schema)

    def credential(self, env: Mapping[str, str]) -> CredentialReport:
        """Find the credential that Codex would use in this environment, and who would pay. It reads files of Codex, and holds no secret.

        Raises `ConfigurationError` for a billing policy that cannot be kept.
        """
        return check_codex_payer(self.options, env) or describe_codex_credentials(self.options, env)

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of the answer, or None. Raises `ConfigurationError` for an `output_format` that holds none."""
        output = self._given.output_format
        if output is None:
            return None
        schema = output.get("schema") if isinstance(output, Mapping) and output.get("type") == "json_schema" else None
        if not isinstance(schema, Mapping):
            refuse("output_format", 'must be {"type": "json_schema", "schema": {...}}')
        return schema

    @property
    def thread_settings(self) -> dict[str, Any]:
        """What the thread is started with, besides what the process was started with."""
        settings: dict[str, Any] = {}
        if self._given.system_prompt is not None and ("system_prompt" in self._call.arguments or not self._call.plain):
            settings["baseInstructions"] = self._given.system_prompt
        if self._given.no_session_persistence and self._given.resume is None:
            settings["ephemeral"] = True
        return settings

    def _merged(self, given: CodexOptions) -> CodexOptions:
        """Return the options to run Codex with. An argument of the call counts first, then those of Codex, then those of Claude."""
        changes: dict[str, Any] = {}
        for field in fields_of(CodexOptions):
            if field.name not in ("model", "cwd", "env_mode", "env_allow", "billing"):
                continue
            value, default = getattr(self._given, field.name), default_of(field)
            if value != default and (field.name in self._call.arguments or getattr(given, field.name) == default):
                changes[field.name] = value
        if self._given.env:
            changes["env"] = {**self._given.env, **given.env}
        return given.replace(**changes)


def input_of(prompt: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the prompt as Codex takes it. Raises `ConfigurationError` for a block that is neither text nor an image."""
    return [_text(prompt)] if isinstance(prompt, str) else [_block(block) for block in prompt]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "text_elements": []}


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return {"type": "image", "url": f"data:{kind};base64,{data}"}
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return {"type": "image", "url": url}
        case _:
            raise ConfigurationError(f"prompt: Codex takes text and images, not this block of type {block['type']!r}", option="prompt")
