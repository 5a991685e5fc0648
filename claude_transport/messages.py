"""Messages and content blocks as typed classes, and the functions that read and write them.

`Query` and `Transport.read_messages` give these. Every message has `.type`, `.raw` (the line as it was received) and `.to_dict()` (all
fields, also those that this version does not know). `docs/reference/messages.md` shows each message as it looks on the wire.

The conversation: `AssistantMessage` (its content is an `APIMessage`), `UserMessage` (`UserContent`), `ResultMessage` (with `Usage`,
    `ModelUsage`, `PermissionDenial`), and `StreamEvent` for partial messages. `Outcome` says in one value how a turn ended.
Blocks: `Block` is the base class of content blocks, `TextBlock` and `ToolUseBlock` among them. `ContentBlock` is the type of one entry of
    a `content` list: any block class, `UnknownBlock` included.
System messages: `SystemMessage` is the base class. `InitMessage` starts a turn, `StatusMessage` and `SessionStateChanged` follow it,
    `Task…` messages report background tasks, `Hook…` messages report hooks, `Model…` messages report another model.
Events beside the conversation: `RateLimitEvent`, `ToolProgress`, `CommandLifecycle`, `ConversationReset`, `TranscriptMirror` and others.
Lines that could not be read: `DecodeFailure`, `OversizedMessage`, and `UnknownMessage` for a type that this version does not know.
Reading and writing: `decode_message`, `LineDecoder`, `encode_message`, `encode_line`, `encode_user_message`. `synthetic_turn` makes the
    lines of a turn that no CLI has run, and `peek` says what a line is without decoding it.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "protocol.blocks": "AdvisorToolResultBlock Block CodeExecutionToolResultBlock ContainerUploadBlock ContentBlock DocumentBlock "
        "ImageBlock MCPToolResultBlock MCPToolUseBlock RedactedThinkingBlock SearchResultBlock ServerToolResultBlock "
        "ServerToolUseBlock TextBlock ThinkingBlock ToolReferenceBlock ToolResultBlock ToolUseBlock UnknownBlock "
        "WebFetchToolResultBlock WebSearchToolResultBlock",
        "protocol.codec": "LineDecoder decode_message",
        "protocol.control": "encode_user_message",
        "protocol.diagnosis": "Outcome",
        "protocol.envelope": "DecodeFailure Message ModelUsage OversizedMessage UnknownMessage Usage encode_line encode_message",
        "protocol.peek": "Peek peek",
        "protocol.synthetic": "synthetic_turn",
        "protocol.messages": "APIMessage APIRetryMessage ActiveGoal AssistantMessage AuthStatus BackgroundTask BackgroundTasksChanged "
        "CommandLifecycle CommandsChanged CompactBoundary CompactMetadata ControlRequestProgress ConversationReset "
        "ElicitationComplete FilesPersisted HookMessage HookProgress HookResponse HookStarted Informational InitMessage "
        "KeepAlive LocalCommandOutput MCPServerState MemoryRecall MirrorError ModelFallback ModelRefusalFallback "
        "ModelRefusalNoFallback Notification PermissionDenial PermissionDeniedMessage PluginInstall PluginState "
        "PromptSuggestion RateLimitEvent RateLimitInfo ResultMessage SessionForked SessionStateChanged SessionTitleChanged "
        "SessionWritesLost StatusMessage StreamEvent SystemMessage TaskNotification TaskPatch TaskProgress TaskStarted "
        "TaskUpdated TaskUsage ThinkingTokens ToolProgress ToolUseSummary TranscriptMirror UpdateEnvironmentVariables "
        "UserContent UserMessage WorkerShuttingDown",
    },
)
