# Written by docs/generate_names.py from the table in control.py: do not edit.

from claude_transport.protocol.answers import AppliedSettings as AppliedSettings
from claude_transport.protocol.answers import BinaryVersion as BinaryVersion
from claude_transport.protocol.answers import CacheImpact as CacheImpact
from claude_transport.protocol.answers import ChangedFile as ChangedFile
from claude_transport.protocol.answers import ContextAgent as ContextAgent
from claude_transport.protocol.answers import ContextCategory as ContextCategory
from claude_transport.protocol.answers import ContextCell as ContextCell
from claude_transport.protocol.answers import ContextMemoryFile as ContextMemoryFile
from claude_transport.protocol.answers import ContextSkill as ContextSkill
from claude_transport.protocol.answers import ContextSkills as ContextSkills
from claude_transport.protocol.answers import ContextSlashCommands as ContextSlashCommands
from claude_transport.protocol.answers import ContextTool as ContextTool
from claude_transport.protocol.answers import ContextUsage as ContextUsage
from claude_transport.protocol.answers import ConversationRewind as ConversationRewind
from claude_transport.protocol.answers import CwdChange as CwdChange
from claude_transport.protocol.answers import DiffFile as DiffFile
from claude_transport.protocol.answers import DiffHunk as DiffHunk
from claude_transport.protocol.answers import DiffStats as DiffStats
from claude_transport.protocol.answers import ExportedConversation as ExportedConversation
from claude_transport.protocol.answers import FileContents as FileContents
from claude_transport.protocol.answers import FileSuggestions as FileSuggestions
from claude_transport.protocol.answers import ForkResult as ForkResult
from claude_transport.protocol.answers import HookListing as HookListing
from claude_transport.protocol.answers import HookListingEvent as HookListingEvent
from claude_transport.protocol.answers import InterruptReceipt as InterruptReceipt
from claude_transport.protocol.answers import McpCallResult as McpCallResult
from claude_transport.protocol.answers import McpResourceContents as McpResourceContents
from claude_transport.protocol.answers import McpServerInfo as McpServerInfo
from claude_transport.protocol.answers import McpServerStatus as McpServerStatus
from claude_transport.protocol.answers import McpServerStatuses as McpServerStatuses
from claude_transport.protocol.answers import McpServerTool as McpServerTool
from claude_transport.protocol.answers import McpServersChange as McpServersChange
from claude_transport.protocol.answers import MemoryFile as MemoryFile
from claude_transport.protocol.answers import MemoryFolder as MemoryFolder
from claude_transport.protocol.answers import MemoryInfo as MemoryInfo
from claude_transport.protocol.answers import MessageBreakdown as MessageBreakdown
from claude_transport.protocol.answers import MessageCancellation as MessageCancellation
from claude_transport.protocol.answers import ModelListing as ModelListing
from claude_transport.protocol.answers import ModelSpending as ModelSpending
from claude_transport.protocol.answers import OutputStyles as OutputStyles
from claude_transport.protocol.answers import PermissionRuleInfo as PermissionRuleInfo
from claude_transport.protocol.answers import PermissionRuleState as PermissionRuleState
from claude_transport.protocol.answers import PermissionRules as PermissionRules
from claude_transport.protocol.answers import PlanInfo as PlanInfo
from claude_transport.protocol.answers import PluginInfo as PluginInfo
from claude_transport.protocol.answers import ReloadedPlugins as ReloadedPlugins
from claude_transport.protocol.answers import RewindResult as RewindResult
from claude_transport.protocol.answers import SandboxInfo as SandboxInfo
from claude_transport.protocol.answers import SessionSpending as SessionSpending
from claude_transport.protocol.answers import SessionTitle as SessionTitle
from claude_transport.protocol.answers import SettingsInfo as SettingsInfo
from claude_transport.protocol.answers import SettingsSource as SettingsSource
from claude_transport.protocol.answers import SideAnswer as SideAnswer
from claude_transport.protocol.answers import SkillListing as SkillListing
from claude_transport.protocol.answers import SkillsInfo as SkillsInfo
from claude_transport.protocol.answers import StatusInfo as StatusInfo
from claude_transport.protocol.answers import StatusRow as StatusRow
from claude_transport.protocol.answers import StatusSection as StatusSection
from claude_transport.protocol.answers import TaskOutput as TaskOutput
from claude_transport.protocol.answers import TokenShare as TokenShare
from claude_transport.protocol.answers import UsageInfo as UsageInfo
from claude_transport.protocol.answers import WorkspaceDiff as WorkspaceDiff
from claude_transport.protocol.answers import WorkspaceDiffAnswer as WorkspaceDiffAnswer
from claude_transport.protocol.control import AccountInfo as AccountInfo
from claude_transport.protocol.control import AgentInfo as AgentInfo
from claude_transport.protocol.control import Answer as Answer
from claude_transport.protocol.control import CanUseTool as CanUseTool
from claude_transport.protocol.control import CommandInfo as CommandInfo
from claude_transport.protocol.control import ControlCancelRequest as ControlCancelRequest
from claude_transport.protocol.control import ControlReply as ControlReply
from claude_transport.protocol.control import ControlRequest as ControlRequest
from claude_transport.protocol.control import ControlResponse as ControlResponse
from claude_transport.protocol.control import Elicitation as Elicitation
from claude_transport.protocol.control import HookCallback as HookCallback
from claude_transport.protocol.control import InboundBody as InboundBody
from claude_transport.protocol.control import InitializationInfo as InitializationInfo
from claude_transport.protocol.control import McpMessage as McpMessage
from claude_transport.protocol.control import ModelInfo as ModelInfo
from claude_transport.protocol.control import PermissionRule as PermissionRule
from claude_transport.protocol.control import PermissionUpdate as PermissionUpdate
from claude_transport.protocol.control import RequestUserDialog as RequestUserDialog
from claude_transport.protocol.control import UnknownControl as UnknownControl

__all__ = [
    "AccountInfo",
    "AgentInfo",
    "Answer",
    "AppliedSettings",
    "BinaryVersion",
    "CacheImpact",
    "CanUseTool",
    "ChangedFile",
    "CommandInfo",
    "ContextAgent",
    "ContextCategory",
    "ContextCell",
    "ContextMemoryFile",
    "ContextSkill",
    "ContextSkills",
    "ContextSlashCommands",
    "ContextTool",
    "ContextUsage",
    "ControlCancelRequest",
    "ControlReply",
    "ControlRequest",
    "ControlResponse",
    "ConversationRewind",
    "CwdChange",
    "DiffFile",
    "DiffHunk",
    "DiffStats",
    "Elicitation",
    "ExportedConversation",
    "FileContents",
    "FileSuggestions",
    "ForkResult",
    "HookCallback",
    "HookListing",
    "HookListingEvent",
    "InboundBody",
    "InitializationInfo",
    "InterruptReceipt",
    "McpCallResult",
    "McpMessage",
    "McpResourceContents",
    "McpServerInfo",
    "McpServerStatus",
    "McpServerStatuses",
    "McpServerTool",
    "McpServersChange",
    "MemoryFile",
    "MemoryFolder",
    "MemoryInfo",
    "MessageBreakdown",
    "MessageCancellation",
    "ModelInfo",
    "ModelListing",
    "ModelSpending",
    "OutputStyles",
    "PermissionRule",
    "PermissionRuleInfo",
    "PermissionRuleState",
    "PermissionRules",
    "PermissionUpdate",
    "PlanInfo",
    "PluginInfo",
    "ReloadedPlugins",
    "RequestUserDialog",
    "RewindResult",
    "SandboxInfo",
    "SessionSpending",
    "SessionTitle",
    "SettingsInfo",
    "SettingsSource",
    "SideAnswer",
    "SkillListing",
    "SkillsInfo",
    "StatusInfo",
    "StatusRow",
    "StatusSection",
    "TaskOutput",
    "TokenShare",
    "UnknownControl",
    "UsageInfo",
    "WorkspaceDiff",
    "WorkspaceDiffAnswer",
]
