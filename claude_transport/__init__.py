"""The transport layer between Python programs and Claude.

Talk: `Query` holds a conversation with a `claude` process, `query` does so for one prompt, `complete` and `stream` make one call through
    the CLI or the API. `client.SyncQuery` is `Query` for programs without an event loop. `SessionPool` keeps sessions warm.
Carry: a `Transport` carries the lines: `SubprocessTransport` to a process here, `NetworkTransport` to one elsewhere. Wrappers such as
    `RetryingTransport` add to it. `Gateway` and `serve` are the other end of a network. `observe` watches a session that runs.
Configure: `ClaudeOptions` says how `claude` runs; `BillingPolicy` is the type of its field `billing`. `Launcher` says where it runs.
Match: the messages and blocks that most programs match on, such as `AssistantMessage` and `TextBlock`, and all errors, which are
    `ClaudeTransportError`s.

The names that most programs need are here. Other names are in modules by topic: `claude_transport.messages`, `.hooks`, `.control`,
`.errors`, `.testing`, `.client`, `.transports`, `.wrappers`, `.gateway`, `.pool`, `.launch`, `.completion`, `.bridge`, `.backoff`,
`.observing`, `.inspection` and `.interop.agent_sdk`. Each name is loaded at its first use, so importing the package is fast.
"""

from __future__ import annotations

from typing import Any

from claude_transport.lazy import lazy_names

_load, __dir__, __all__ = lazy_names(
    __name__,
    {
        "backoff": "RetryPolicy",
        "client.query": "Query",
        "client.questions": "Allow Deny HookMatcher",
        "client.reports": "CloseReport",
        "client.storage": "Turn",
        "completion.call": "complete stream",
        "completion.completion": "Completion",
        "completion.readiness": "PreflightReport preflight",
        "completion.resolution": "Resolution resolve_agent resolve_transport",
        "errors": "AuthFailed AuthenticationError Busy CLIConnectionError CLIJSONDecodeError CLINotFoundError ClaudeTransportError "
        "ConfigurationError ConnectTimeout ConnectionLost ControlError ControlRequestFailed ControlTimeout InputClosed "
        "JSONRPCError LineTooLong MissingResult NotConnected OutcomeUncertain Overloaded ProcessError ProtocolError RateLimited "
        "ReplayGap ResultError SpawnError StructuredOutputMissing TransportClosed TruncatedStream UsageError",
        "exchange.outcomes": "InterruptOutcome",
        "gateway.gateway": "Gateway",
        "gateway.service": "serve",
        "jsonrpc": "JSONRPCPeer",
        "launch.argv": "build_argv",
        "launch.discovery": "CLI find_cli",
        "launch.environ": "build_environment describe_environment",
        "launch.launcher": "Launcher",
        "launch.options": "BillingPolicy ClaudeOptions",
        "launch.rules": "split_rules",
        "observing.observers": "observe",
        "completion.one_shot": "query",
        "pool.pool": "SessionPool",
        "protocol.blocks": "TextBlock ThinkingBlock ToolResultBlock ToolUseBlock UnknownBlock",
        "protocol.codec": "decode_message",
        "protocol.conversation": "TurnState",
        "protocol.diagnosis": "Outcome",
        "protocol.envelope": "DecodeFailure Message OversizedMessage UnknownMessage encode_message",
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
    modules=(
        "backoff",
        "bridge",
        "client",
        "codex",
        "completion",
        "control",
        "errors",
        "gateway",
        "hooks",
        "inspection",
        "interop",
        "jsonrpc",
        "launch",
        "messages",
        "observing",
        "pool",
        "testing",
        "transports",
        "wire",
        "wrappers",
    ),
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
