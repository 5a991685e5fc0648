# Written by docs/generate_names.py from the table in messages.py: do not edit.

from claude_transport.protocol.blocks import AdvisorToolResultBlock as AdvisorToolResultBlock
from claude_transport.protocol.blocks import Block as Block
from claude_transport.protocol.blocks import CodeExecutionToolResultBlock as CodeExecutionToolResultBlock
from claude_transport.protocol.blocks import ContainerUploadBlock as ContainerUploadBlock
from claude_transport.protocol.blocks import ContentBlock as ContentBlock
from claude_transport.protocol.blocks import DocumentBlock as DocumentBlock
from claude_transport.protocol.blocks import ImageBlock as ImageBlock
from claude_transport.protocol.blocks import MCPToolResultBlock as MCPToolResultBlock
from claude_transport.protocol.blocks import MCPToolUseBlock as MCPToolUseBlock
from claude_transport.protocol.blocks import RedactedThinkingBlock as RedactedThinkingBlock
from claude_transport.protocol.blocks import SearchResultBlock as SearchResultBlock
from claude_transport.protocol.blocks import ServerToolResultBlock as ServerToolResultBlock
from claude_transport.protocol.blocks import ServerToolUseBlock as ServerToolUseBlock
from claude_transport.protocol.blocks import TextBlock as TextBlock
from claude_transport.protocol.blocks import ThinkingBlock as ThinkingBlock
from claude_transport.protocol.blocks import ToolReferenceBlock as ToolReferenceBlock
from claude_transport.protocol.blocks import ToolResultBlock as ToolResultBlock
from claude_transport.protocol.blocks import ToolUseBlock as ToolUseBlock
from claude_transport.protocol.blocks import UnknownBlock as UnknownBlock
from claude_transport.protocol.blocks import WebFetchToolResultBlock as WebFetchToolResultBlock
from claude_transport.protocol.blocks import WebSearchToolResultBlock as WebSearchToolResultBlock
from claude_transport.protocol.codec import LineDecoder as LineDecoder
from claude_transport.protocol.codec import decode_message as decode_message
from claude_transport.protocol.control import encode_user_message as encode_user_message
from claude_transport.protocol.diagnosis import Outcome as Outcome
from claude_transport.protocol.envelope import DecodeFailure as DecodeFailure
from claude_transport.protocol.envelope import Message as Message
from claude_transport.protocol.envelope import ModelUsage as ModelUsage
from claude_transport.protocol.envelope import OversizedMessage as OversizedMessage
from claude_transport.protocol.envelope import UnknownMessage as UnknownMessage
from claude_transport.protocol.envelope import Usage as Usage
from claude_transport.protocol.envelope import encode_line as encode_line
from claude_transport.protocol.envelope import encode_message as encode_message
from claude_transport.protocol.messages import APIMessage as APIMessage
from claude_transport.protocol.messages import APIRetryMessage as APIRetryMessage
from claude_transport.protocol.messages import ActiveGoal as ActiveGoal
from claude_transport.protocol.messages import AssistantMessage as AssistantMessage
from claude_transport.protocol.messages import AuthStatus as AuthStatus
from claude_transport.protocol.messages import BackgroundTask as BackgroundTask
from claude_transport.protocol.messages import BackgroundTasksChanged as BackgroundTasksChanged
from claude_transport.protocol.messages import CommandLifecycle as CommandLifecycle
from claude_transport.protocol.messages import CommandsChanged as CommandsChanged
from claude_transport.protocol.messages import CompactBoundary as CompactBoundary
from claude_transport.protocol.messages import CompactMetadata as CompactMetadata
from claude_transport.protocol.messages import ControlRequestProgress as ControlRequestProgress
from claude_transport.protocol.messages import ConversationReset as ConversationReset
from claude_transport.protocol.messages import ElicitationComplete as ElicitationComplete
from claude_transport.protocol.messages import FilesPersisted as FilesPersisted
from claude_transport.protocol.messages import HookMessage as HookMessage
from claude_transport.protocol.messages import HookProgress as HookProgress
from claude_transport.protocol.messages import HookResponse as HookResponse
from claude_transport.protocol.messages import HookStarted as HookStarted
from claude_transport.protocol.messages import Informational as Informational
from claude_transport.protocol.messages import InitMessage as InitMessage
from claude_transport.protocol.messages import KeepAlive as KeepAlive
from claude_transport.protocol.messages import LocalCommandOutput as LocalCommandOutput
from claude_transport.protocol.messages import MCPServerState as MCPServerState
from claude_transport.protocol.messages import MemoryRecall as MemoryRecall
from claude_transport.protocol.messages import MirrorError as MirrorError
from claude_transport.protocol.messages import ModelFallback as ModelFallback
from claude_transport.protocol.messages import ModelRefusalFallback as ModelRefusalFallback
from claude_transport.protocol.messages import ModelRefusalNoFallback as ModelRefusalNoFallback
from claude_transport.protocol.messages import Notification as Notification
from claude_transport.protocol.messages import PermissionDenial as PermissionDenial
from claude_transport.protocol.messages import PermissionDeniedMessage as PermissionDeniedMessage
from claude_transport.protocol.messages import PluginInstall as PluginInstall
from claude_transport.protocol.messages import PluginState as PluginState
from claude_transport.protocol.messages import PromptSuggestion as PromptSuggestion
from claude_transport.protocol.messages import RateLimitEvent as RateLimitEvent
from claude_transport.protocol.messages import RateLimitInfo as RateLimitInfo
from claude_transport.protocol.messages import ResultMessage as ResultMessage
from claude_transport.protocol.messages import SessionForked as SessionForked
from claude_transport.protocol.messages import SessionStateChanged as SessionStateChanged
from claude_transport.protocol.messages import SessionTitleChanged as SessionTitleChanged
from claude_transport.protocol.messages import SessionWritesLost as SessionWritesLost
from claude_transport.protocol.messages import StatusMessage as StatusMessage
from claude_transport.protocol.messages import StreamEvent as StreamEvent
from claude_transport.protocol.messages import SystemMessage as SystemMessage
from claude_transport.protocol.messages import TaskNotification as TaskNotification
from claude_transport.protocol.messages import TaskPatch as TaskPatch
from claude_transport.protocol.messages import TaskProgress as TaskProgress
from claude_transport.protocol.messages import TaskStarted as TaskStarted
from claude_transport.protocol.messages import TaskUpdated as TaskUpdated
from claude_transport.protocol.messages import TaskUsage as TaskUsage
from claude_transport.protocol.messages import ThinkingTokens as ThinkingTokens
from claude_transport.protocol.messages import ToolProgress as ToolProgress
from claude_transport.protocol.messages import ToolUseSummary as ToolUseSummary
from claude_transport.protocol.messages import TranscriptMirror as TranscriptMirror
from claude_transport.protocol.messages import UpdateEnvironmentVariables as UpdateEnvironmentVariables
from claude_transport.protocol.messages import UserContent as UserContent
from claude_transport.protocol.messages import UserMessage as UserMessage
from claude_transport.protocol.messages import WorkerShuttingDown as WorkerShuttingDown
from claude_transport.protocol.peek import Peek as Peek
from claude_transport.protocol.peek import peek as peek
from claude_transport.protocol.synthetic import synthetic_turn as synthetic_turn

__all__ = [
    "APIMessage",
    "APIRetryMessage",
    "ActiveGoal",
    "AdvisorToolResultBlock",
    "AssistantMessage",
    "AuthStatus",
    "BackgroundTask",
    "BackgroundTasksChanged",
    "Block",
    "CodeExecutionToolResultBlock",
    "CommandLifecycle",
    "CommandsChanged",
    "CompactBoundary",
    "CompactMetadata",
    "ContainerUploadBlock",
    "ContentBlock",
    "ControlRequestProgress",
    "ConversationReset",
    "DecodeFailure",
    "DocumentBlock",
    "ElicitationComplete",
    "FilesPersisted",
    "HookMessage",
    "HookProgress",
    "HookResponse",
    "HookStarted",
    "ImageBlock",
    "Informational",
    "InitMessage",
    "KeepAlive",
    "LineDecoder",
    "LocalCommandOutput",
    "MCPServerState",
    "MCPToolResultBlock",
    "MCPToolUseBlock",
    "MemoryRecall",
    "Message",
    "MirrorError",
    "ModelFallback",
    "ModelRefusalFallback",
    "ModelRefusalNoFallback",
    "ModelUsage",
    "Notification",
    "Outcome",
    "OversizedMessage",
    "Peek",
    "PermissionDenial",
    "PermissionDeniedMessage",
    "PluginInstall",
    "PluginState",
    "PromptSuggestion",
    "RateLimitEvent",
    "RateLimitInfo",
    "RedactedThinkingBlock",
    "ResultMessage",
    "SearchResultBlock",
    "ServerToolResultBlock",
    "ServerToolUseBlock",
    "SessionForked",
    "SessionStateChanged",
    "SessionTitleChanged",
    "SessionWritesLost",
    "StatusMessage",
    "StreamEvent",
    "SystemMessage",
    "TaskNotification",
    "TaskPatch",
    "TaskProgress",
    "TaskStarted",
    "TaskUpdated",
    "TaskUsage",
    "TextBlock",
    "ThinkingBlock",
    "ThinkingTokens",
    "ToolProgress",
    "ToolReferenceBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "ToolUseSummary",
    "TranscriptMirror",
    "UnknownBlock",
    "UnknownMessage",
    "UpdateEnvironmentVariables",
    "Usage",
    "UserContent",
    "UserMessage",
    "WebFetchToolResultBlock",
    "WebSearchToolResultBlock",
    "WorkerShuttingDown",
    "decode_message",
    "encode_line",
    "encode_message",
    "encode_user_message",
    "peek",
    "synthetic_turn",
]
