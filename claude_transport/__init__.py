"""The transport layer between Python programs and Claude.

`Query` talks, a `Transport` carries, `query()` does both for one prompt; `claude_transport.testing` stands in for Claude in tests.

Every name is loaded when it is first used: importing the package costs nothing that is not needed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claude_transport.backoff import Backoff, RetryPolicy
    from claude_transport.bridge.configuration import bridge_config
    from claude_transport.bridge.host import BridgeHost
    from claude_transport.bridge.tools import HostTool, ToolContext
    from claude_transport.completion.complete import complete
    from claude_transport.completion.completion import Completion, partial_completion
    from claude_transport.completion.login_status import LoginStatus, read_login_status
    from claude_transport.completion.preflight import PreflightReport, preflight
    from claude_transport.completion.resolution import Resolution, resolve_transport
    from claude_transport.completion.stream import CompletionStream, stream
    from claude_transport.errors import (
        APIFailed,
        AuthenticationError,
        AuthFailed,
        BillingFailed,
        BudgetExceeded,
        Busy,
        ClaudeTransportError,
        CLIConnectionError,
        CLIJSONDecodeError,
        CLINotFoundError,
        CLIVersionMismatch,
        ConfigurationError,
        ConnectionLost,
        ConnectTimeout,
        ControlError,
        ControlRequestFailed,
        ControlTimeout,
        InputClosed,
        LineTooLong,
        MaxTurnsReached,
        MissingResult,
        ModelNotFound,
        NotConnected,
        NotExecutableError,
        OutcomeUncertain,
        Overloaded,
        ProcessError,
        PromptTooLong,
        ProtocolError,
        RateLimited,
        Refused,
        ReplayGap,
        ResultError,
        RunInterrupted,
        SpawnError,
        StructuredOutputMissing,
        TransportClosed,
        TruncatedStream,
        UsageError,
        WorkingDirectoryError,
        WrongLibcError,
    )
    from claude_transport.gateway.asgi import GatewayApplication
    from claude_transport.gateway.gateway import Gateway
    from claude_transport.gateway.limits import GatewayLimits
    from claude_transport.gateway.serve import GatewaySettings, serve
    from claude_transport.gateway.tokens import GatewayTokens
    from claude_transport.launch.argv import build_argv
    from claude_transport.launch.credentials import CredentialReport, describe_credentials
    from claude_transport.launch.discovery import CLI, find_cli
    from claude_transport.launch.environ import build_environment, describe_environment
    from claude_transport.launch.launch import Launch, build_launch
    from claude_transport.launch.launcher import Launcher
    from claude_transport.launch.options import BillingPolicy, ClaudeOptions, EnvironmentMode, PermissionMode
    from claude_transport.launch.pin import CLIChange, on_cli_change
    from claude_transport.one_shot import OneShot, query
    from claude_transport.pool.limits import Retirement
    from claude_transport.pool.pool import SessionPool
    from claude_transport.pool.snapshot import PoolSnapshot
    from claude_transport.protocol.blocks import (
        AdvisorToolResultBlock,
        Block,
        CodeExecutionToolResultBlock,
        ContainerUploadBlock,
        ContentBlock,
        DocumentBlock,
        ImageBlock,
        MCPToolResultBlock,
        MCPToolUseBlock,
        RedactedThinkingBlock,
        SearchResultBlock,
        ServerToolResultBlock,
        ServerToolUseBlock,
        TextBlock,
        ThinkingBlock,
        ToolReferenceBlock,
        ToolResultBlock,
        ToolUseBlock,
        UnknownBlock,
        WebFetchToolResultBlock,
        WebSearchToolResultBlock,
    )
    from claude_transport.protocol.codec import LineDecoder, decode_message, encode_line, encode_message
    from claude_transport.protocol.control import (
        CanUseTool,
        ControlCancelRequest,
        ControlRequest,
        ControlResponse,
        HookCallback,
        McpMessage,
        PermissionRule,
        PermissionUpdate,
        encode_user_message,
    )
    from claude_transport.protocol.conversation import TurnState
    from claude_transport.protocol.diagnosis import Outcome
    from claude_transport.protocol.envelope import Message
    from claude_transport.protocol.events import (
        ActiveGoal,
        AuthStatus,
        CommandLifecycle,
        ConversationReset,
        KeepAlive,
        PromptSuggestion,
        RateLimitEvent,
        RateLimitInfo,
        ToolProgress,
        ToolUseSummary,
        TranscriptMirror,
        UpdateEnvironmentVariables,
    )
    from claude_transport.protocol.hooks import (
        AdditionalContext,
        AsyncHookOutput,
        BackgroundTaskInfo,
        ConfigChangeInput,
        CwdChangedInput,
        DirectoryAddedInput,
        ElicitationInput,
        ElicitationReply,
        ElicitationResultInput,
        FileChangedInput,
        HookEffort,
        HookEvent,
        HookInput,
        HookMcpServer,
        HookOutput,
        InstructionsLoadedInput,
        MessageDisplayInput,
        MessageDisplayOutput,
        ModelSwitchInput,
        NotificationInput,
        PermissionDeniedInput,
        PermissionDeniedOutput,
        PermissionRequestDecision,
        PermissionRequestInput,
        PostCompactInput,
        PostModelSwitchInput,
        PostToolBatchInput,
        PostToolUseFailureInput,
        PostToolUseInput,
        PostToolUseOutput,
        PreCompactInput,
        PreModelSwitchDecision,
        PreModelSwitchInput,
        PreToolUseDecision,
        PreToolUseInput,
        SessionCron,
        SessionEndInput,
        SessionStartInput,
        SessionStartOutput,
        SetupInput,
        SpecificOutput,
        StopFailureInput,
        StopInput,
        SubagentStartInput,
        SubagentStopInput,
        TaskCompletedInput,
        TaskCreatedInput,
        TaskInput,
        TeammateIdleInput,
        ToolCallRecord,
        ToolHookInput,
        TurnEndInput,
        UserPromptExpansionInput,
        UserPromptExpansionOutput,
        UserPromptSubmitInput,
        UserPromptSubmitOutput,
        WatchPaths,
        WorktreeCreateInput,
        WorktreeCreateOutput,
        WorktreeRemoveInput,
    )
    from claude_transport.protocol.initialization import InitializationInfo
    from claude_transport.protocol.messages import (
        APIMessage,
        AssistantMessage,
        PermissionDenial,
        ResultMessage,
        StreamEvent,
        UserContent,
        UserMessage,
    )
    from claude_transport.protocol.session import SessionForked
    from claude_transport.protocol.system import (
        APIRetryMessage,
        CommandsChanged,
        CompactBoundary,
        CompactMetadata,
        FilesPersisted,
        Informational,
        InitMessage,
        LocalCommandOutput,
        MCPServerState,
        MemoryRecall,
        MirrorError,
        ModelFallback,
        ModelRefusalFallback,
        ModelRefusalNoFallback,
        Notification,
        PluginState,
        SessionStateChanged,
        SessionTitleChanged,
        SessionWritesLost,
        StatusMessage,
        SystemMessage,
        ThinkingTokens,
        WorkerShuttingDown,
    )
    from claude_transport.protocol.tasks import (
        BackgroundTask,
        BackgroundTasksChanged,
        ControlRequestProgress,
        ElicitationComplete,
        HookMessage,
        HookProgress,
        HookResponse,
        HookStarted,
        PermissionDeniedMessage,
        PluginInstall,
        TaskNotification,
        TaskPatch,
        TaskProgress,
        TaskStarted,
        TaskUpdated,
        TaskUsage,
    )
    from claude_transport.protocol.unreadable import DecodeFailure, OversizedMessage, UnknownMessage
    from claude_transport.protocol.usage import ModelUsage, Usage
    from claude_transport.query.handlers import Allow, CallbackContext, Deny, HookMatcher
    from claude_transport.query.lanes import Lane, Lanes, split_by_parent
    from claude_transport.query.query import Query
    from claude_transport.query.query_options import QueryOptions
    from claude_transport.query.reports import CloseReport, InterruptOutcome, ResumePoint
    from claude_transport.query.turns import Turn
    from claude_transport.query.watchdog import StallEvent, Watchdog
    from claude_transport.transport import PermissionSetting, SessionTerms, Transport, TransportInfo, TransportLike
    from claude_transport.transports.mock import MockTransport
    from claude_transport.transports.network import NetworkTransport
    from claude_transport.transports.opening import open_transport
    from claude_transport.transports.replay import ReplayTransport
    from claude_transport.transports.start_gate import StartGate
    from claude_transport.transports.stream import Connectable, StreamTransport
    from claude_transport.transports.subprocess import SubprocessTransport
    from claude_transport.transports.terms import session_terms
    from claude_transport.wrappers.base import TransportWrapper
    from claude_transport.wrappers.faulty import FaultyTransport
    from claude_transport.wrappers.lines import LineWrapper
    from claude_transport.wrappers.logging import LoggingTransport
    from claude_transport.wrappers.metrics import Metrics, MetricsTransport
    from claude_transport.wrappers.metrics_registry import MetricsRegistry
    from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, ModelCounts, Timing, TokenCounts
    from claude_transport.wrappers.observing import ObservingWrapper
    from claude_transport.wrappers.prometheus_text import prometheus_text
    from claude_transport.wrappers.recording import RecordingTransport
    from claude_transport.wrappers.retrying import RetryAttempt, RetryingTransport, WriteUncertain
    from claude_transport.wrappers.stateful import StatefulTransport, TransportState
    from claude_transport.wrappers.tracing import TracingTransport

__version__: str

__all__ = [
    "CLI",
    "APIFailed",
    "APIMessage",
    "APIRetryMessage",
    "ActiveGoal",
    "AdditionalContext",
    "AdvisorToolResultBlock",
    "Allow",
    "AssistantMessage",
    "AsyncHookOutput",
    "AuthFailed",
    "AuthStatus",
    "AuthenticationError",
    "BackgroundTask",
    "BackgroundTaskInfo",
    "BackgroundTasksChanged",
    "Backoff",
    "BillingFailed",
    "BillingPolicy",
    "Block",
    "BridgeHost",
    "BudgetExceeded",
    "Busy",
    "CLIChange",
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "CLIVersionMismatch",
    "CallbackContext",
    "CanUseTool",
    "ClaudeOptions",
    "ClaudeTransportError",
    "CloseReport",
    "CodeExecutionToolResultBlock",
    "CommandLifecycle",
    "CommandsChanged",
    "CompactBoundary",
    "CompactMetadata",
    "Completion",
    "CompletionStream",
    "ConfigChangeInput",
    "ConfigurationError",
    "ConnectTimeout",
    "Connectable",
    "ConnectionLost",
    "ContainerUploadBlock",
    "ContentBlock",
    "ControlCancelRequest",
    "ControlError",
    "ControlRequest",
    "ControlRequestFailed",
    "ControlRequestProgress",
    "ControlResponse",
    "ControlTimeout",
    "ConversationReset",
    "CredentialReport",
    "CwdChangedInput",
    "DecodeFailure",
    "Deny",
    "DirectoryAddedInput",
    "DocumentBlock",
    "ElicitationComplete",
    "ElicitationInput",
    "ElicitationReply",
    "ElicitationResultInput",
    "EnvironmentMode",
    "FaultyTransport",
    "FileChangedInput",
    "FilesPersisted",
    "Gateway",
    "GatewayApplication",
    "GatewayLimits",
    "GatewaySettings",
    "GatewayTokens",
    "HookCallback",
    "HookEffort",
    "HookEvent",
    "HookInput",
    "HookMatcher",
    "HookMcpServer",
    "HookMessage",
    "HookOutput",
    "HookProgress",
    "HookResponse",
    "HookStarted",
    "HostTool",
    "ImageBlock",
    "Informational",
    "InitMessage",
    "InitializationInfo",
    "InputClosed",
    "InstructionsLoadedInput",
    "InterruptOutcome",
    "KeepAlive",
    "Lane",
    "Lanes",
    "Launch",
    "Launcher",
    "LineDecoder",
    "LineTooLong",
    "LineWrapper",
    "LocalCommandOutput",
    "LoggingTransport",
    "LoginStatus",
    "MCPServerState",
    "MCPToolResultBlock",
    "MCPToolUseBlock",
    "MaxTurnsReached",
    "McpMessage",
    "MemoryRecall",
    "Message",
    "MessageDisplayInput",
    "MessageDisplayOutput",
    "Metrics",
    "MetricsRegistry",
    "MetricsSnapshot",
    "MetricsTransport",
    "MirrorError",
    "MissingResult",
    "MockTransport",
    "ModelCounts",
    "ModelFallback",
    "ModelNotFound",
    "ModelRefusalFallback",
    "ModelRefusalNoFallback",
    "ModelSwitchInput",
    "ModelUsage",
    "NetworkTransport",
    "NotConnected",
    "NotExecutableError",
    "Notification",
    "NotificationInput",
    "ObservingWrapper",
    "OneShot",
    "Outcome",
    "OutcomeUncertain",
    "Overloaded",
    "OversizedMessage",
    "PermissionDenial",
    "PermissionDeniedInput",
    "PermissionDeniedMessage",
    "PermissionDeniedOutput",
    "PermissionMode",
    "PermissionRequestDecision",
    "PermissionRequestInput",
    "PermissionRule",
    "PermissionSetting",
    "PermissionUpdate",
    "PluginInstall",
    "PluginState",
    "PoolSnapshot",
    "PostCompactInput",
    "PostModelSwitchInput",
    "PostToolBatchInput",
    "PostToolUseFailureInput",
    "PostToolUseInput",
    "PostToolUseOutput",
    "PreCompactInput",
    "PreModelSwitchDecision",
    "PreModelSwitchInput",
    "PreToolUseDecision",
    "PreToolUseInput",
    "PreflightReport",
    "ProcessError",
    "PromptSuggestion",
    "PromptTooLong",
    "ProtocolError",
    "Query",
    "QueryOptions",
    "RateLimitEvent",
    "RateLimitInfo",
    "RateLimited",
    "RecordingTransport",
    "RedactedThinkingBlock",
    "Refused",
    "ReplayGap",
    "ReplayTransport",
    "Resolution",
    "ResultError",
    "ResultMessage",
    "ResumePoint",
    "Retirement",
    "RetryAttempt",
    "RetryPolicy",
    "RetryingTransport",
    "RunInterrupted",
    "SearchResultBlock",
    "ServerToolResultBlock",
    "ServerToolUseBlock",
    "SessionCron",
    "SessionEndInput",
    "SessionForked",
    "SessionPool",
    "SessionStartInput",
    "SessionStartOutput",
    "SessionStateChanged",
    "SessionTerms",
    "SessionTitleChanged",
    "SessionWritesLost",
    "SetupInput",
    "SpawnError",
    "SpecificOutput",
    "StallEvent",
    "StartGate",
    "StatefulTransport",
    "StatusMessage",
    "StopFailureInput",
    "StopInput",
    "StreamEvent",
    "StreamTransport",
    "StructuredOutputMissing",
    "SubagentStartInput",
    "SubagentStopInput",
    "SubprocessTransport",
    "SystemMessage",
    "TaskCompletedInput",
    "TaskCreatedInput",
    "TaskInput",
    "TaskNotification",
    "TaskPatch",
    "TaskProgress",
    "TaskStarted",
    "TaskUpdated",
    "TaskUsage",
    "TeammateIdleInput",
    "TextBlock",
    "ThinkingBlock",
    "ThinkingTokens",
    "Timing",
    "TokenCounts",
    "ToolCallRecord",
    "ToolContext",
    "ToolHookInput",
    "ToolProgress",
    "ToolReferenceBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "ToolUseSummary",
    "TracingTransport",
    "TranscriptMirror",
    "Transport",
    "TransportClosed",
    "TransportInfo",
    "TransportLike",
    "TransportState",
    "TransportWrapper",
    "TruncatedStream",
    "Turn",
    "TurnEndInput",
    "TurnState",
    "UnknownBlock",
    "UnknownMessage",
    "UpdateEnvironmentVariables",
    "Usage",
    "UsageError",
    "UserContent",
    "UserMessage",
    "UserPromptExpansionInput",
    "UserPromptExpansionOutput",
    "UserPromptSubmitInput",
    "UserPromptSubmitOutput",
    "WatchPaths",
    "Watchdog",
    "WebFetchToolResultBlock",
    "WebSearchToolResultBlock",
    "WorkerShuttingDown",
    "WorkingDirectoryError",
    "WorktreeCreateInput",
    "WorktreeCreateOutput",
    "WorktreeRemoveInput",
    "WriteUncertain",
    "WrongLibcError",
    "bridge_config",
    "build_argv",
    "build_environment",
    "build_launch",
    "complete",
    "decode_message",
    "describe_credentials",
    "describe_environment",
    "encode_line",
    "encode_message",
    "encode_user_message",
    "find_cli",
    "on_cli_change",
    "open_transport",
    "partial_completion",
    "preflight",
    "prometheus_text",
    "query",
    "read_login_status",
    "resolve_transport",
    "serve",
    "session_terms",
    "split_by_parent",
    "stream",
]

# Where each name lives; a test holds that this says the same as the imports above.
_HOMES = {
    "backoff": "Backoff RetryPolicy",
    "bridge.configuration": "bridge_config",
    "bridge.host": "BridgeHost",
    "bridge.tools": "HostTool ToolContext",
    "completion.complete": "complete",
    "completion.completion": "Completion partial_completion",
    "completion.login_status": "LoginStatus read_login_status",
    "completion.preflight": "PreflightReport preflight",
    "completion.resolution": "Resolution resolve_transport",
    "completion.stream": "CompletionStream stream",
    "errors": (
        "APIFailed AuthFailed AuthenticationError BillingFailed BudgetExceeded Busy CLIConnectionError CLIJSONDecodeError "
        "CLINotFoundError CLIVersionMismatch ClaudeTransportError ConfigurationError ConnectTimeout ConnectionLost ControlError "
        "ControlRequestFailed ControlTimeout InputClosed LineTooLong MaxTurnsReached MissingResult ModelNotFound NotConnected "
        "NotExecutableError OutcomeUncertain Overloaded ProcessError PromptTooLong ProtocolError RateLimited Refused ReplayGap "
        "ResultError RunInterrupted SpawnError StructuredOutputMissing TransportClosed TruncatedStream UsageError WorkingDirectoryError "
        "WrongLibcError"
    ),
    "gateway.asgi": "GatewayApplication",
    "gateway.gateway": "Gateway",
    "gateway.limits": "GatewayLimits",
    "gateway.serve": "GatewaySettings serve",
    "gateway.tokens": "GatewayTokens",
    "launch.argv": "build_argv",
    "launch.credentials": "CredentialReport describe_credentials",
    "launch.discovery": "CLI find_cli",
    "launch.environ": "build_environment describe_environment",
    "launch.launch": "Launch build_launch",
    "launch.launcher": "Launcher",
    "launch.pin": "CLIChange on_cli_change",
    "launch.options": "BillingPolicy ClaudeOptions EnvironmentMode PermissionMode",
    "one_shot": "OneShot query",
    "pool.limits": "Retirement",
    "pool.pool": "SessionPool",
    "pool.snapshot": "PoolSnapshot",
    "protocol.blocks": (
        "AdvisorToolResultBlock Block CodeExecutionToolResultBlock ContainerUploadBlock ContentBlock DocumentBlock ImageBlock "
        "MCPToolResultBlock MCPToolUseBlock RedactedThinkingBlock SearchResultBlock ServerToolResultBlock ServerToolUseBlock "
        "TextBlock ThinkingBlock ToolReferenceBlock ToolResultBlock ToolUseBlock UnknownBlock WebFetchToolResultBlock "
        "WebSearchToolResultBlock"
    ),
    "protocol.codec": "LineDecoder decode_message encode_line encode_message",
    "protocol.control": (
        "CanUseTool ControlCancelRequest ControlRequest ControlResponse HookCallback McpMessage PermissionRule PermissionUpdate "
        "encode_user_message"
    ),
    "protocol.conversation": "TurnState",
    "protocol.diagnosis": "Outcome",
    "protocol.envelope": "Message",
    "protocol.events": (
        "ActiveGoal AuthStatus CommandLifecycle ConversationReset KeepAlive PromptSuggestion RateLimitEvent RateLimitInfo ToolProgress "
        "ToolUseSummary TranscriptMirror UpdateEnvironmentVariables"
    ),
    "protocol.hooks": (
        "AdditionalContext AsyncHookOutput BackgroundTaskInfo ConfigChangeInput CwdChangedInput DirectoryAddedInput ElicitationInput "
        "ElicitationReply ElicitationResultInput FileChangedInput HookEffort HookEvent HookInput HookMcpServer HookOutput "
        "InstructionsLoadedInput MessageDisplayInput MessageDisplayOutput ModelSwitchInput NotificationInput PermissionDeniedInput "
        "PermissionDeniedOutput PermissionRequestDecision PermissionRequestInput PostCompactInput PostModelSwitchInput "
        "PostToolBatchInput PostToolUseFailureInput PostToolUseInput PostToolUseOutput PreCompactInput PreModelSwitchDecision "
        "PreModelSwitchInput PreToolUseDecision PreToolUseInput SessionCron SessionEndInput SessionStartInput SessionStartOutput "
        "SetupInput SpecificOutput StopFailureInput StopInput SubagentStartInput SubagentStopInput TaskCompletedInput TaskCreatedInput "
        "TaskInput TeammateIdleInput ToolCallRecord ToolHookInput TurnEndInput UserPromptExpansionInput UserPromptExpansionOutput "
        "UserPromptSubmitInput UserPromptSubmitOutput WatchPaths WorktreeCreateInput WorktreeCreateOutput WorktreeRemoveInput"
    ),
    "protocol.initialization": "InitializationInfo",
    "protocol.messages": "APIMessage AssistantMessage PermissionDenial ResultMessage StreamEvent UserContent UserMessage",
    "protocol.session": "SessionForked",
    "protocol.system": (
        "APIRetryMessage CommandsChanged CompactBoundary CompactMetadata FilesPersisted Informational InitMessage LocalCommandOutput "
        "MCPServerState MemoryRecall MirrorError ModelFallback ModelRefusalFallback ModelRefusalNoFallback Notification PluginState "
        "SessionStateChanged SessionTitleChanged SessionWritesLost StatusMessage SystemMessage ThinkingTokens WorkerShuttingDown"
    ),
    "protocol.tasks": (
        "BackgroundTask BackgroundTasksChanged ControlRequestProgress ElicitationComplete HookMessage HookProgress HookResponse "
        "HookStarted PermissionDeniedMessage PluginInstall TaskNotification TaskPatch TaskProgress TaskStarted TaskUpdated TaskUsage"
    ),
    "protocol.unreadable": "DecodeFailure OversizedMessage UnknownMessage",
    "protocol.usage": "ModelUsage Usage",
    "query.handlers": "Allow CallbackContext Deny HookMatcher",
    "query.lanes": "Lane Lanes split_by_parent",
    "query.query": "Query",
    "query.query_options": "QueryOptions",
    "query.reports": "CloseReport InterruptOutcome ResumePoint",
    "query.turns": "Turn",
    "query.watchdog": "StallEvent Watchdog",
    "transport": "PermissionSetting SessionTerms Transport TransportInfo TransportLike",
    "transports.mock": "MockTransport",
    "transports.network": "NetworkTransport",
    "transports.opening": "open_transport",
    "transports.replay": "ReplayTransport",
    "transports.start_gate": "StartGate",
    "transports.stream": "Connectable StreamTransport",
    "transports.subprocess": "SubprocessTransport",
    "transports.terms": "session_terms",
    "wrappers.base": "TransportWrapper",
    "wrappers.faulty": "FaultyTransport",
    "wrappers.lines": "LineWrapper",
    "wrappers.logging": "LoggingTransport",
    "wrappers.metrics": "Metrics MetricsTransport",
    "wrappers.metrics_registry": "MetricsRegistry",
    "wrappers.metrics_snapshot": "MetricsSnapshot ModelCounts Timing TokenCounts",
    "wrappers.prometheus_text": "prometheus_text",
    "wrappers.tracing": "TracingTransport",
    "wrappers.observing": "ObservingWrapper",
    "wrappers.recording": "RecordingTransport",
    "wrappers.retrying": "RetryAttempt RetryingTransport WriteUncertain",
    "wrappers.stateful": "StatefulTransport TransportState",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(_load(home), name)
    globals()[name] = value
    return value


def _load(home: str) -> ModuleType:
    """Import a module of this package at the first use of its names. Raises `CLIConnectionError` when it cannot be read."""
    try:
        return import_module(f"{__name__}.{home}")
    except OSError as exc:
        from claude_transport.errors import CLIConnectionError

        raise CLIConnectionError(
            f"{__name__}.{home} cannot be loaded: {exc.strerror or exc}; use its names once while file descriptors are free"
        ) from exc


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    # asked for when somebody wants to know: reading it costs more than the rest of the import
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("claude-transport")
    except PackageNotFoundError:
        return "0+unknown"  # run from a copy of the source that was never installed


class _Face(ModuleType):
    # `query` is a function here and a subpackage in the house. The import system binds the subpackage to the name whenever
    # it is first imported; a property is what it cannot overwrite.

    @property
    def query(self) -> Any:
        return _load("one_shot").query

    @query.setter
    def query(self, _subpackage: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Face
