"""Codex, a second agent on the same transports: the messages of `codex app-server`, and a conversation with it.

The conversation: `CodexSession` starts it over any transport, sends prompts, answers what Codex asks, and closes it.
The messages: `decode_message()` reads a line. `CodexNotification`, `CodexRequest` and `CodexAnswer` are its kinds; `ExecEvent` is a line of
    `codex exec --json`. Whatever is unknown is kept.
Running it: `CodexOptions` says how; `SubprocessTransport(CodexOptions(...))` starts it. `SandboxMode` and `ApprovalPolicy` are the types of
    two options. `find_codex` finds the binary. `build_codex_argv`, `build_codex_environment` and `describe_codex_environment` show what
    would be run.
Items: `CodexItem` is the base class of what a turn consists of, such as `AgentMessageItem` and `CommandExecutionItem`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "codex.argv": "build_codex_argv",
        "codex.discovery": "find_codex",
        "codex.environ": "build_codex_environment describe_codex_environment",
        "codex.options": "ApprovalPolicy CodexOptions SandboxMode",
        "codex.callbacks": "ApprovalDecision CodexTool CodexToolContext OnApproval",
        "codex.conversation": "CodexTurnResult TurnStatus",
        "codex.errors": "error_of",
        "codex.session": "CodexCloseReport CodexSession CodexThread CodexTurn",
        "codex.items": "AgentMessageItem AnyItem CodexItem CommandExecutionItem ContextCompactionItem DynamicToolCallItem "
        "FileChangeItem FileUpdate McpToolCallItem PlanItem ReasoningItem UnknownItem UserMessageItem WebSearchItem",
        "codex.messages": "AgentMessageDelta ApprovalRequest CodexAnswer CodexMessage CodexNotification CodexRequest CodexTokens "
        "CodexTurnError CodexUsage CommandApproval CommandOutputDelta ConfigWarning DeprecationNotice ErrorNotification ExecEvent "
        "ExecItem ExecUsage FileChangeApproval FileChangeOutputDelta ItemCompleted ItemStarted ModelRerouted PlanDelta "
        "RateLimitsUpdated ReasoningSummaryDelta ReasoningTextDelta RemoteControlStatusChanged RequestId RequestResolved RPCError "
        "ThreadClosed ThreadData ThreadGoalCleared ThreadNameUpdated ThreadReadStateChanged ThreadStarted ThreadStatus "
        "ThreadStatusChanged ThreadTokenUsageUpdated ToolCallRequest TurnCompleted TurnData TurnDiffUpdated TurnPlanUpdated "
        "TurnStarted UnknownNotification UnknownRequest WarningNotification decode_message",
    },
)
