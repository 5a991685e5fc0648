# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.codex.argv import build_codex_argv as build_codex_argv
from claude_transport.codex.blocking import SyncCodexSession as SyncCodexSession
from claude_transport.codex.blocking import SyncCodexThread as SyncCodexThread
from claude_transport.codex.blocking import SyncCodexTurn as SyncCodexTurn
from claude_transport.codex.callbacks import ApprovalDecision as ApprovalDecision
from claude_transport.codex.callbacks import CodexTool as CodexTool
from claude_transport.codex.callbacks import CodexToolContext as CodexToolContext
from claude_transport.codex.callbacks import OnApproval as OnApproval
from claude_transport.codex.conversation import CodexTurnResult as CodexTurnResult
from claude_transport.codex.conversation import NewText as NewText
from claude_transport.codex.conversation import TurnStatus as TurnStatus
from claude_transport.codex.credentials import check_codex_payer as check_codex_payer
from claude_transport.codex.credentials import describe_codex_credentials as describe_codex_credentials
from claude_transport.codex.discovery import find_codex as find_codex
from claude_transport.codex.environ import build_codex_environment as build_codex_environment
from claude_transport.codex.environ import describe_codex_environment as describe_codex_environment
from claude_transport.codex.errors import error_of as error_of
from claude_transport.codex.items import AgentMessageItem as AgentMessageItem
from claude_transport.codex.items import AnyItem as AnyItem
from claude_transport.codex.items import CodexItem as CodexItem
from claude_transport.codex.items import CommandExecutionItem as CommandExecutionItem
from claude_transport.codex.items import ContextCompactionItem as ContextCompactionItem
from claude_transport.codex.items import DynamicToolCallItem as DynamicToolCallItem
from claude_transport.codex.items import FileChangeItem as FileChangeItem
from claude_transport.codex.items import FileUpdate as FileUpdate
from claude_transport.codex.items import McpToolCallItem as McpToolCallItem
from claude_transport.codex.items import PlanItem as PlanItem
from claude_transport.codex.items import ReasoningItem as ReasoningItem
from claude_transport.codex.items import UnknownItem as UnknownItem
from claude_transport.codex.items import UserMessageItem as UserMessageItem
from claude_transport.codex.items import WebSearchItem as WebSearchItem
from claude_transport.codex.messages import AgentMessageDelta as AgentMessageDelta
from claude_transport.codex.messages import AnswerError as AnswerError
from claude_transport.codex.messages import ApprovalRequest as ApprovalRequest
from claude_transport.codex.messages import CodexAnswer as CodexAnswer
from claude_transport.codex.messages import CodexMessage as CodexMessage
from claude_transport.codex.messages import CodexNotification as CodexNotification
from claude_transport.codex.messages import CodexRequest as CodexRequest
from claude_transport.codex.messages import CodexTokens as CodexTokens
from claude_transport.codex.messages import CodexTurnError as CodexTurnError
from claude_transport.codex.messages import CodexUsage as CodexUsage
from claude_transport.codex.messages import CommandApproval as CommandApproval
from claude_transport.codex.messages import CommandOutputDelta as CommandOutputDelta
from claude_transport.codex.messages import ConfigWarning as ConfigWarning
from claude_transport.codex.messages import DeprecationNotice as DeprecationNotice
from claude_transport.codex.messages import ErrorNotification as ErrorNotification
from claude_transport.codex.messages import ExecEvent as ExecEvent
from claude_transport.codex.messages import ExecItem as ExecItem
from claude_transport.codex.messages import ExecUsage as ExecUsage
from claude_transport.codex.messages import FileChangeApproval as FileChangeApproval
from claude_transport.codex.messages import FileChangeOutputDelta as FileChangeOutputDelta
from claude_transport.codex.messages import ItemCompleted as ItemCompleted
from claude_transport.codex.messages import ItemStarted as ItemStarted
from claude_transport.codex.messages import ModelRerouted as ModelRerouted
from claude_transport.codex.messages import PlanDelta as PlanDelta
from claude_transport.codex.messages import RateLimitsUpdated as RateLimitsUpdated
from claude_transport.codex.messages import ReasoningSummaryDelta as ReasoningSummaryDelta
from claude_transport.codex.messages import ReasoningTextDelta as ReasoningTextDelta
from claude_transport.codex.messages import RemoteControlStatusChanged as RemoteControlStatusChanged
from claude_transport.codex.messages import RequestId as RequestId
from claude_transport.codex.messages import RequestResolved as RequestResolved
from claude_transport.codex.messages import ThreadClosed as ThreadClosed
from claude_transport.codex.messages import ThreadData as ThreadData
from claude_transport.codex.messages import ThreadGoalCleared as ThreadGoalCleared
from claude_transport.codex.messages import ThreadNameUpdated as ThreadNameUpdated
from claude_transport.codex.messages import ThreadReadStateChanged as ThreadReadStateChanged
from claude_transport.codex.messages import ThreadStarted as ThreadStarted
from claude_transport.codex.messages import ThreadStatus as ThreadStatus
from claude_transport.codex.messages import ThreadStatusChanged as ThreadStatusChanged
from claude_transport.codex.messages import ThreadTokenUsageUpdated as ThreadTokenUsageUpdated
from claude_transport.codex.messages import ToolCallRequest as ToolCallRequest
from claude_transport.codex.messages import TurnCompleted as TurnCompleted
from claude_transport.codex.messages import TurnData as TurnData
from claude_transport.codex.messages import TurnDiffUpdated as TurnDiffUpdated
from claude_transport.codex.messages import TurnPlanUpdated as TurnPlanUpdated
from claude_transport.codex.messages import TurnStarted as TurnStarted
from claude_transport.codex.messages import UnknownNotification as UnknownNotification
from claude_transport.codex.messages import UnknownRequest as UnknownRequest
from claude_transport.codex.messages import WarningNotification as WarningNotification
from claude_transport.codex.messages import decode_message as decode_message
from claude_transport.codex.options import ApprovalPolicy as ApprovalPolicy
from claude_transport.codex.options import CodexOptions as CodexOptions
from claude_transport.codex.options import SandboxMode as SandboxMode
from claude_transport.codex.pool import CodexPool as CodexPool
from claude_transport.codex.session import CodexCloseReport as CodexCloseReport
from claude_transport.codex.session import CodexSession as CodexSession
from claude_transport.codex.session import CodexThread as CodexThread
from claude_transport.codex.session import CodexTurn as CodexTurn

__all__ = [
    "AgentMessageDelta",
    "AgentMessageItem",
    "AnswerError",
    "AnyItem",
    "ApprovalDecision",
    "ApprovalPolicy",
    "ApprovalRequest",
    "CodexAnswer",
    "CodexCloseReport",
    "CodexItem",
    "CodexMessage",
    "CodexNotification",
    "CodexOptions",
    "CodexPool",
    "CodexRequest",
    "CodexSession",
    "CodexThread",
    "CodexTokens",
    "CodexTool",
    "CodexToolContext",
    "CodexTurn",
    "CodexTurnError",
    "CodexTurnResult",
    "CodexUsage",
    "CommandApproval",
    "CommandExecutionItem",
    "CommandOutputDelta",
    "ConfigWarning",
    "ContextCompactionItem",
    "DeprecationNotice",
    "DynamicToolCallItem",
    "ErrorNotification",
    "ExecEvent",
    "ExecItem",
    "ExecUsage",
    "FileChangeApproval",
    "FileChangeItem",
    "FileChangeOutputDelta",
    "FileUpdate",
    "ItemCompleted",
    "ItemStarted",
    "McpToolCallItem",
    "ModelRerouted",
    "NewText",
    "OnApproval",
    "PlanDelta",
    "PlanItem",
    "RateLimitsUpdated",
    "ReasoningItem",
    "ReasoningSummaryDelta",
    "ReasoningTextDelta",
    "RemoteControlStatusChanged",
    "RequestId",
    "RequestResolved",
    "SandboxMode",
    "SyncCodexSession",
    "SyncCodexThread",
    "SyncCodexTurn",
    "ThreadClosed",
    "ThreadData",
    "ThreadGoalCleared",
    "ThreadNameUpdated",
    "ThreadReadStateChanged",
    "ThreadStarted",
    "ThreadStatus",
    "ThreadStatusChanged",
    "ThreadTokenUsageUpdated",
    "ToolCallRequest",
    "TurnCompleted",
    "TurnData",
    "TurnDiffUpdated",
    "TurnPlanUpdated",
    "TurnStarted",
    "TurnStatus",
    "UnknownItem",
    "UnknownNotification",
    "UnknownRequest",
    "UserMessageItem",
    "WarningNotification",
    "WebSearchItem",
    "build_codex_argv",
    "build_codex_environment",
    "check_codex_payer",
    "decode_message",
    "describe_codex_credentials",
    "describe_codex_environment",
    "error_of",
    "find_codex",
]
