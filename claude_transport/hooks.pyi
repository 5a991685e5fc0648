# Written by docs/generate_names.py from the table in hooks.py: do not edit.

from claude_transport.protocol.hooks import AdditionalContext as AdditionalContext
from claude_transport.protocol.hooks import AsyncHookOutput as AsyncHookOutput
from claude_transport.protocol.hooks import BackgroundTaskInfo as BackgroundTaskInfo
from claude_transport.protocol.hooks import ConfigChangeInput as ConfigChangeInput
from claude_transport.protocol.hooks import CwdChangedInput as CwdChangedInput
from claude_transport.protocol.hooks import DirectoryAddedInput as DirectoryAddedInput
from claude_transport.protocol.hooks import ElicitationInput as ElicitationInput
from claude_transport.protocol.hooks import ElicitationReply as ElicitationReply
from claude_transport.protocol.hooks import ElicitationResultInput as ElicitationResultInput
from claude_transport.protocol.hooks import FileChangedInput as FileChangedInput
from claude_transport.protocol.hooks import HookEffort as HookEffort
from claude_transport.protocol.hooks import HookEvent as HookEvent
from claude_transport.protocol.hooks import HookInput as HookInput
from claude_transport.protocol.hooks import HookMcpServer as HookMcpServer
from claude_transport.protocol.hooks import HookOutput as HookOutput
from claude_transport.protocol.hooks import InstructionsLoadedInput as InstructionsLoadedInput
from claude_transport.protocol.hooks import MessageDisplayInput as MessageDisplayInput
from claude_transport.protocol.hooks import MessageDisplayOutput as MessageDisplayOutput
from claude_transport.protocol.hooks import ModelSwitchInput as ModelSwitchInput
from claude_transport.protocol.hooks import NotificationInput as NotificationInput
from claude_transport.protocol.hooks import PermissionDeniedInput as PermissionDeniedInput
from claude_transport.protocol.hooks import PermissionDeniedOutput as PermissionDeniedOutput
from claude_transport.protocol.hooks import PermissionRequestDecision as PermissionRequestDecision
from claude_transport.protocol.hooks import PermissionRequestInput as PermissionRequestInput
from claude_transport.protocol.hooks import PostCompactInput as PostCompactInput
from claude_transport.protocol.hooks import PostModelSwitchInput as PostModelSwitchInput
from claude_transport.protocol.hooks import PostToolBatchInput as PostToolBatchInput
from claude_transport.protocol.hooks import PostToolUseFailureInput as PostToolUseFailureInput
from claude_transport.protocol.hooks import PostToolUseInput as PostToolUseInput
from claude_transport.protocol.hooks import PostToolUseOutput as PostToolUseOutput
from claude_transport.protocol.hooks import PreCompactInput as PreCompactInput
from claude_transport.protocol.hooks import PreModelSwitchDecision as PreModelSwitchDecision
from claude_transport.protocol.hooks import PreModelSwitchInput as PreModelSwitchInput
from claude_transport.protocol.hooks import PreToolUseDecision as PreToolUseDecision
from claude_transport.protocol.hooks import PreToolUseInput as PreToolUseInput
from claude_transport.protocol.hooks import SessionCron as SessionCron
from claude_transport.protocol.hooks import SessionEndInput as SessionEndInput
from claude_transport.protocol.hooks import SessionStartInput as SessionStartInput
from claude_transport.protocol.hooks import SessionStartOutput as SessionStartOutput
from claude_transport.protocol.hooks import SetupInput as SetupInput
from claude_transport.protocol.hooks import SpecificOutput as SpecificOutput
from claude_transport.protocol.hooks import StopFailureInput as StopFailureInput
from claude_transport.protocol.hooks import StopInput as StopInput
from claude_transport.protocol.hooks import SubagentStartInput as SubagentStartInput
from claude_transport.protocol.hooks import SubagentStopInput as SubagentStopInput
from claude_transport.protocol.hooks import TaskCompletedInput as TaskCompletedInput
from claude_transport.protocol.hooks import TaskCreatedInput as TaskCreatedInput
from claude_transport.protocol.hooks import TaskInput as TaskInput
from claude_transport.protocol.hooks import TeammateIdleInput as TeammateIdleInput
from claude_transport.protocol.hooks import ToolCallRecord as ToolCallRecord
from claude_transport.protocol.hooks import ToolHookInput as ToolHookInput
from claude_transport.protocol.hooks import TurnEndInput as TurnEndInput
from claude_transport.protocol.hooks import UserPromptExpansionInput as UserPromptExpansionInput
from claude_transport.protocol.hooks import UserPromptExpansionOutput as UserPromptExpansionOutput
from claude_transport.protocol.hooks import UserPromptSubmitInput as UserPromptSubmitInput
from claude_transport.protocol.hooks import UserPromptSubmitOutput as UserPromptSubmitOutput
from claude_transport.protocol.hooks import WatchPaths as WatchPaths
from claude_transport.protocol.hooks import WorktreeCreateInput as WorktreeCreateInput
from claude_transport.protocol.hooks import WorktreeCreateOutput as WorktreeCreateOutput
from claude_transport.protocol.hooks import WorktreeRemoveInput as WorktreeRemoveInput
from claude_transport.protocol.hooks import encode_hook_output as encode_hook_output
from claude_transport.protocol.hooks import parse_hook_input as parse_hook_input

__all__ = [
    "AdditionalContext",
    "AsyncHookOutput",
    "BackgroundTaskInfo",
    "ConfigChangeInput",
    "CwdChangedInput",
    "DirectoryAddedInput",
    "ElicitationInput",
    "ElicitationReply",
    "ElicitationResultInput",
    "FileChangedInput",
    "HookEffort",
    "HookEvent",
    "HookInput",
    "HookMcpServer",
    "HookOutput",
    "InstructionsLoadedInput",
    "MessageDisplayInput",
    "MessageDisplayOutput",
    "ModelSwitchInput",
    "NotificationInput",
    "PermissionDeniedInput",
    "PermissionDeniedOutput",
    "PermissionRequestDecision",
    "PermissionRequestInput",
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
    "SessionCron",
    "SessionEndInput",
    "SessionStartInput",
    "SessionStartOutput",
    "SetupInput",
    "SpecificOutput",
    "StopFailureInput",
    "StopInput",
    "SubagentStartInput",
    "SubagentStopInput",
    "TaskCompletedInput",
    "TaskCreatedInput",
    "TaskInput",
    "TeammateIdleInput",
    "ToolCallRecord",
    "ToolHookInput",
    "TurnEndInput",
    "UserPromptExpansionInput",
    "UserPromptExpansionOutput",
    "UserPromptSubmitInput",
    "UserPromptSubmitOutput",
    "WatchPaths",
    "WorktreeCreateInput",
    "WorktreeCreateOutput",
    "WorktreeRemoveInput",
    "encode_hook_output",
    "parse_hook_input",
]
