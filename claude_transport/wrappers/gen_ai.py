"""Attributes of spans and metrics, under the names of OpenTelemetry's conventions for generative AI.

The names are written here, because the package of the conventions changes with each of its releases.
"""

from __future__ import annotations

import re
from typing import Final

from claude_transport.agents.registry import provider_of
from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.redaction import Redactor
from claude_transport.text.printable import redacted_head

OTHER_MODEL: Final = "other"
"""Replaces what is not the name of a model."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
"""The shape of names of models: `claude-opus-5-5[1m]`, or on Bedrock `arn:aws:bedrock:us-east-1:…:inference-profile/…`."""

_redact: Final = Redactor().text


def model_label(name: str) -> str:
    """Return `name` for use as a label; `OTHER_MODEL` if it does not look like the name of a model, or looks like a secret."""
    return name if _NAME.fullmatch(name) and _redact(name) == name else OTHER_MODEL


Attributes = dict[str, str | bool | int | float | tuple[str, ...]]

_MAX_VALUE = 200
"""The most characters of a name that the peer chooses. Real names are far shorter."""


def limited(value: str) -> str:
    """Return `value` cut to `_MAX_VALUE` characters, encodable as UTF-8, and without what looks like a secret."""
    return redacted_head(value, _redact, at_most=2 * _MAX_VALUE)[:_MAX_VALUE].encode("utf-8", "replace").decode("utf-8")


def _of_provider(agent: str) -> Attributes:
    """Return who runs the models of this agent. `gen_ai.system` was the name until 1.36; many dashboards still use it."""
    provider = provider_of(agent)
    return {"gen_ai.provider.name": provider, "gen_ai.system": provider} if provider else {}


def of_turn(*, session_id: str | None, model: str | None, agent: str = "claude") -> Attributes:
    """Return what is known about a turn at its beginning."""
    attributes: Attributes = {**_of_provider(agent), "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
    if session_id:
        attributes["gen_ai.conversation.id"] = limited(session_id)
    if model:
        attributes["gen_ai.request.model"] = limited(model)
    return attributes


def of_result(result: ResultMessage) -> Attributes:
    """Return what is known about a turn at its end. By the conventions, input tokens include those read from and written to the cache."""
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
    """Return what is known about a tool call."""
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": limited(name),
        "gen_ai.tool.call.id": limited(call_id),
    }
    if session_id:
        attributes["gen_ai.conversation.id"] = limited(session_id)
    return attributes


def measured(result: ResultMessage) -> Attributes:
    """Return the attributes of a duration. They have few values, so that many sessions make few time series."""
    agent = getattr(result, "agent", "claude")
    attributes: Attributes = {**_of_provider(agent), "gen_ai.operation.name": "invoke_agent"}
    models = list(result.model_usage_since_last_result or result.model_usage)
    if len(models) == 1:
        attributes["gen_ai.request.model"] = model_label(models[0])
    if not result.outcome.ok:
        attributes["error.type"] = result.outcome.code
    return attributes


def measured_loss(code: str, *, agent: str) -> Attributes:
    """Return the attributes of the duration of a prompt that was lost; `code` says why."""
    return {**_of_provider(agent), "gen_ai.operation.name": "invoke_agent", "error.type": code}


def error_type(error: BaseException) -> str:
    """Return the value of `error.type` for `error`: its code, or its class if it is not an error of this library."""
    return error.code if isinstance(error, ClaudeTransportError) else type(error).__name__
