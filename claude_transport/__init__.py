"""The transport layer between Python programs and Claude.

`Query` holds a conversation, a `Transport` carries it, and `query()` does both for one prompt. `complete()` is one call that uses the
CLI or the API. `claude_transport.testing` plays Claude in tests.

The names that most programs need are here. The others have doors of their own, such as `claude_transport.messages`, `.hooks`, `.control`,
`.errors` and `.testing`. Every name is loaded at its first use, so that importing the package is cheap.
"""

from __future__ import annotations

from typing import Any

from claude_transport.lazy import lazy_names

_DOORS = (
    "backoff",
    "bridge",
    "client",
    "completion",
    "control",
    "errors",
    "gateway",
    "hooks",
    "inspection",
    "interop",
    "launch",
    "messages",
    "pool",
    "testing",
    "transports",
    "wrappers",
)
_load, __dir__, __all__ = lazy_names(
    __name__,
    {
        "backoff": "RetryPolicy",
        "client.query": "Query",
        "client.questions": "Allow Deny HookMatcher",
        "client.reports": "CloseReport InterruptOutcome",
        "client.storage": "Turn",
        "completion.complete": "complete stream",
        "completion.completion": "Completion",
        "completion.preflight": "PreflightReport preflight",
        "completion.resolution": "Resolution resolve_transport",
        "errors": "AuthFailed AuthenticationError Busy CLIConnectionError CLIJSONDecodeError CLINotFoundError ClaudeTransportError "
        "ConfigurationError ConnectTimeout ConnectionLost ControlError ControlRequestFailed ControlTimeout InputClosed "
        "LineTooLong MissingResult NotConnected OutcomeUncertain Overloaded ProcessError ProtocolError RateLimited "
        "ReplayGap ResultError SpawnError StructuredOutputMissing TransportClosed TruncatedStream UsageError",
        "gateway.gateway": "Gateway",
        "gateway.serve": "serve",
        "launch.argv": "build_argv",
        "launch.discovery": "CLI find_cli",
        "launch.environ": "build_environment describe_environment",
        "launch.launcher": "Launcher",
        "launch.options": "BillingPolicy ClaudeOptions",
        "one_shot": "OneShot query",
        "pool.pool": "SessionPool",
        "protocol.blocks": "TextBlock ThinkingBlock ToolResultBlock ToolUseBlock UnknownBlock",
        "protocol.codec": "decode_message encode_message",
        "protocol.conversation": "TurnState",
        "protocol.diagnosis": "Outcome",
        "protocol.envelope": "DecodeFailure Message OversizedMessage UnknownMessage",
        "protocol.messages": "AssistantMessage CommandLifecycle ConversationReset RateLimitEvent ResultMessage StreamEvent SystemMessage "
        "ToolProgress UserMessage",
        "transport": "Transport TransportInfo TransportLike",
        "transports.mock": "MockTransport",
        "transports.network": "NetworkTransport",
        "transports.opening": "open_transport",
        "transports.replay": "ReplayTransport",
        "transports.stream": "StreamTransport",
        "transports.subprocess": "SubprocessTransport",
        "wrappers.base": "TransportWrapper",
        "wrappers.faulty": "FaultyTransport",
        "wrappers.logging": "LoggingTransport",
        "wrappers.metrics": "MetricsTransport",
        "wrappers.recording": "RecordingTransport",
        "wrappers.retrying": "RetryingTransport",
        "wrappers.stateful": "StatefulTransport TransportState",
        "wrappers.tracing": "TracingTransport",
    },
    modules=_DOORS,
)


def __getattr__(name: str) -> Any:
    return _version() if name == "__version__" else _load(name)


def _version() -> str:
    """Read the version from the installed distribution; late, because that costs more than the rest of the import."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("claude-transport")
    except PackageNotFoundError:
        return "0+unknown"  # run from a copy of the source that was never installed
