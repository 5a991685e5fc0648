"""Codex, a second agent on the same transports: the messages of `codex app-server`, and a conversation with it.

The conversation: `CodexSession` starts it over any transport, sends prompts, answers what Codex asks, and closes it. `CodexThread` is one
    of its threads, `CodexTurn` one prompt, `CodexTurnResult` how its turn ended (`TurnStatus`), `CodexCloseReport` how the session did.
    `SyncCodexSession`, `SyncCodexThread` and `SyncCodexTurn` do the same for programs without an event loop.
    `CodexPool` starts such sessions ahead of use.
Callbacks: `on_approval` (`OnApproval`) gets a `CommandApproval` or a `FileChangeApproval`, and returns an `ApprovalDecision`. A tool is a
    `CodexTool`, such as `claude_transport.bridge.HostTool`; its function gets a `CodexToolContext`.
Running it: `CodexOptions` says how; `SubprocessTransport(CodexOptions(...))` starts it. `SandboxMode` and `ApprovalPolicy` are the types
    of two options. `find_codex` finds the binary. `build_codex_argv`, `build_codex_environment` and `describe_codex_environment` show
    what would be run. `describe_codex_credentials` says which account pays, `check_codex_payer` whether the option `billing` allows it.
Messages: `decode_message()` reads a line, and returns a `CodexMessage`. `CodexNotification` is the base class of what Codex tells,
    `CodexRequest` of what it asks (`ApprovalRequest`, `ToolCallRequest`), `CodexAnswer` an answer of either side (`AnswerError`) to the
    request with a `RequestId`. `ExecEvent` is a line of `codex exec --json`, with an `ExecItem` or `ExecUsage`. `UnknownNotification` and
    `UnknownRequest` keep what is unknown.
Turns: `TurnStarted`, `TurnCompleted` (with `TurnData`), `TurnDiffUpdated`, `TurnPlanUpdated`, `ItemStarted`, `ItemCompleted`. Pieces of
    text: `AgentMessageDelta`, `PlanDelta`, `ReasoningTextDelta`, `ReasoningSummaryDelta`, `CommandOutputDelta`, `FileChangeOutputDelta`.
    `NewText` finds what was not said before.
Threads: `ThreadStarted` (with `ThreadData`), `ThreadStatusChanged` (with `ThreadStatus`), `ThreadTokenUsageUpdated` (with `CodexUsage`,
    made of `CodexTokens`), `ThreadNameUpdated`, `ThreadGoalCleared`, `ThreadReadStateChanged`, `ThreadClosed`.
Others: `RequestResolved`, `RateLimitsUpdated`, `ModelRerouted`, `RemoteControlStatusChanged`, `WarningNotification`, `ConfigWarning`,
    `DeprecationNotice`.
Failures: `ErrorNotification` tells of one, `CodexTurnError` says why; `error_of()` makes the error of this library for it.
Items: `CodexItem` is the base class of what a turn consists of, `AnyItem` the union of all. `UserMessageItem`, `AgentMessageItem`,
    `ReasoningItem`, `PlanItem`, `CommandExecutionItem`, `FileChangeItem` (with `FileUpdate`), `DynamicToolCallItem`, `McpToolCallItem`,
    `WebSearchItem`, `ContextCompactionItem`, `UnknownItem`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "codex.argv": "build_codex_argv",
        "codex.credentials": "check_codex_payer describe_codex_credentials",
        "codex.discovery": "find_codex",
        "codex.environ": "build_codex_environment describe_codex_environment",
        "codex.options": "ApprovalPolicy CodexOptions SandboxMode",
        "codex.blocking": "SyncCodexSession SyncCodexThread SyncCodexTurn",
        "codex.callbacks": "ApprovalDecision CodexTool CodexToolContext OnApproval",
        "codex.conversation": "CodexTurnResult NewText TurnStatus",
        "codex.errors": "error_of",
        "codex.pool": "CodexPool",
        "codex.session": "CodexCloseReport CodexSession CodexThread CodexTurn",
        "codex.items": "AgentMessageItem AnyItem CodexItem CommandExecutionItem ContextCompactionItem DynamicToolCallItem "
        "FileChangeItem FileUpdate McpToolCallItem PlanItem ReasoningItem UnknownItem UserMessageItem WebSearchItem",
        "codex.messages": "AgentMessageDelta AnswerError ApprovalRequest CodexAnswer CodexMessage CodexNotification CodexRequest "
        "CodexTokens CodexTurnError CodexUsage CommandApproval CommandOutputDelta ConfigWarning DeprecationNotice "
        "ErrorNotification ExecEvent ExecItem ExecUsage FileChangeApproval FileChangeOutputDelta ItemCompleted "
        "ItemStarted ModelRerouted PlanDelta RateLimitsUpdated ReasoningSummaryDelta ReasoningTextDelta "
        "RemoteControlStatusChanged RequestId RequestResolved ThreadClosed ThreadData ThreadGoalCleared ThreadNameUpdated "
        "ThreadReadStateChanged ThreadStarted ThreadStatus ThreadStatusChanged ThreadTokenUsageUpdated ToolCallRequest "
        "TurnCompleted TurnData TurnDiffUpdated TurnPlanUpdated TurnStarted UnknownNotification UnknownRequest "
        "WarningNotification decode_message",
    },
)
