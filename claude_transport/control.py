"""Control requests and their answers: what `Query` and the CLI ask each other beside the conversation.

Every method of `Query` that asks the CLI for something returns one of these answers. `docs/reference/control-requests.md` lists all
requests with their fields.

Answers of the CLI: `Answer` is the base class. `InitializationInfo` answers `initialize`, with `CommandInfo`, `AgentInfo`, `ModelInfo`
    and `AccountInfo`. `ContextUsage` says what fills the context window, `UsageInfo` what was spent, `SettingsInfo` which settings apply,
    `McpServerStatuses` which MCP servers run, `PermissionRules` what is allowed, `WorkspaceDiff` what has changed. The other answers are
    named after their requests. Classes that end in nothing of these kinds are parts of an answer.
Requests of the CLI: `ControlRequest` holds an `InboundBody`: `CanUseTool`, `HookCallback`, `McpMessage`, `Elicitation`,
    `RequestUserDialog`, or `UnknownControl` for a request that this version does not know.
Envelopes: `ControlRequest`, `ControlResponse` (with `ControlReply`) and `ControlCancelRequest`.
Permissions: `PermissionUpdate` and `PermissionRule` change what is allowed; `Allow(updated_permissions=[…])` takes them.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "protocol.answers": "AppliedSettings BinaryVersion CacheImpact ChangedFile ContextAgent ContextCategory ContextCell "
        "ContextMemoryFile ContextSkill ContextSkills ContextSlashCommands ContextTool ContextUsage ConversationRewind "
        "CwdChange DiffFile DiffHunk DiffStats ExportedConversation FileContents FileSuggestions ForkResult HookListing "
        "HookListingEvent InterruptReceipt McpCallResult McpResourceContents McpServerInfo McpServerStatus "
        "McpServerStatuses McpServerTool McpServersChange MemoryFile MemoryFolder MemoryInfo MessageBreakdown "
        "MessageCancellation ModelListing ModelSpending OutputStyles PermissionRuleInfo PermissionRuleState "
        "PermissionRules PlanInfo PluginInfo ReloadedPlugins RewindResult SandboxInfo SessionSpending SessionTitle "
        "SettingsInfo SettingsSource SideAnswer SkillListing SkillsInfo StatusInfo StatusRow StatusSection TaskOutput "
        "TokenShare UsageInfo WorkspaceDiff WorkspaceDiffAnswer",
        "protocol.control": "AccountInfo AgentInfo Answer CanUseTool CommandInfo ControlCancelRequest ControlReply ControlRequest "
        "ControlResponse Elicitation HookCallback InboundBody InitializationInfo McpMessage ModelInfo PermissionRule PermissionUpdate "
        "RequestUserDialog UnknownControl",
    },
)
