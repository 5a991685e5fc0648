"""The names that OpenTelemetry's conventions give to what a model does, and what of ours goes under them.

These are constants of our own: the conventions' own package changes with every release of theirs.
"""

from __future__ import annotations

import re
from typing import Final

from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.redaction import Redactor

# --- `model_label`: the name of a model as a label of a metric, where a peer must not put whatever it likes.


OTHER_MODEL: Final = "other"
"""In place of what is no name."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
"""What models are called: `claude-opus-5-5[1m]`, and by Bedrock `arn:aws:bedrock:us-east-1:…:inference-profile/…`."""

_redact: Final = Redactor().text


def model_label(name: str) -> str:
    """`name`, or `OTHER_MODEL` for what does not look like the name of a model, or looks like a secret."""
    return name if _NAME.fullmatch(name) and _redact(name) == name else OTHER_MODEL


Attributes = dict[str, str | bool | int | float | tuple[str, ...]]

# `gen_ai.system` is what `gen_ai.provider.name` was called until 1.36; many dashboards still ask for it
PROVIDER: Attributes = {"gen_ai.provider.name": "anthropic", "gen_ai.system": "anthropic"}

_MAX_VALUE = 200
"""Characters of a name that comes from the peer; real ones are far shorter."""


def limited(value: str) -> str:
    """`value`, cut to a length that is still a name, writable as UTF-8, and without what looks like a secret."""
    return _redact(value[: 2 * _MAX_VALUE])[:_MAX_VALUE].encode("utf-8", "replace").decode("utf-8")


def of_turn(*, session_id: str | None, model: str | None) -> Attributes:
    """What is known of a turn when it begins."""
    attributes: Attributes = {**PROVIDER, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "claude"}
    if session_id:
        attributes["gen_ai.conversation.id"] = limited(session_id)
    if model:
        attributes["gen_ai.request.model"] = limited(model)
    return attributes


def of_result(result: ResultMessage) -> Attributes:
    """What is known of a turn when it is over. As the conventions want it, the input includes what was read from and put into the cache."""
    usage = result.usage
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.total_input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "claude_transport.num_turns": result.num_turns,
    }
    if result.stop_reason:
        attributes["gen_ai.response.finish_reasons"] = (limited(result.stop_reason),)
    if result.session_id:
        attributes["gen_ai.conversation.id"] = limited(result.session_id)
    if not result.outcome.ok:
        attributes["error.type"] = result.outcome.code
    return attributes


def of_tool(*, name: str, call_id: str, session_id: str | None) -> Attributes:
    """What is known of a tool call."""
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": limited(name),
        "gen_ai.tool.call.id": limited(call_id),
    }
    if session_id:
        attributes["gen_ai.conversation.id"] = limited(session_id)
    return attributes


def measured(result: ResultMessage) -> Attributes:
    """What a time is told apart by: few values, so that many sessions make few series."""
    attributes: Attributes = {**PROVIDER, "gen_ai.operation.name": "invoke_agent"}
    models = list(result.model_usage_since_last_result or result.model_usage)
    if len(models) == 1:
        attributes["gen_ai.request.model"] = model_label(models[0])
    if not result.outcome.ok:
        attributes["error.type"] = result.outcome.code
    return attributes
