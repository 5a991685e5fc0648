# Written by docs/generate_names.py from the table in hooks.py: do not edit.

from claude_transport.protocol.hooks.events import HookEvent as HookEvent
from claude_transport.protocol.hooks.inputs import BackgroundTaskInfo as BackgroundTaskInfo
from claude_transport.protocol.hooks.inputs import ConfigChangeInput as ConfigChangeInput
from claude_transport.protocol.hooks.inputs import CwdChangedInput as CwdChangedInput
from claude_transport.protocol.hooks.inputs import DirectoryAddedInput as DirectoryAddedInput
from claude_transport.protocol.hooks.inputs import ElicitationInput as ElicitationInput
from claude_transport.protocol.hooks.inputs import ElicitationResultInput as ElicitationResultInput
from claude_transport.protocol.hooks.inputs import FileChangedInput as FileChangedInput
from claude_transport.protocol.hooks.inputs import HookEffort as HookEffort
from claude_transport.protocol.hooks.inputs import HookInput as HookInput
from claude_transport.protocol.hooks.inputs import HookMcpServer as HookMcpServer
from claude_transport.protocol.hooks.inputs import InstructionsLoadedInput as InstructionsLoadedInput
from claude_transport.protocol.hooks.inputs import MessageDisplayInput as MessageDisplayInput
from claude_transport.protocol.hooks.inputs import ModelSwitchInput as ModelSwitchInput
from claude_transport.protocol.hooks.inputs import NotificationInput as NotificationInput
from claude_transport.protocol.hooks.inputs import PermissionDeniedInput as PermissionDeniedInput
from claude_transport.protocol.hooks.inputs import PermissionRequestInput as PermissionRequestInput
from claude_transport.protocol.hooks.inputs import PostCompactInput as PostCompactInput
from claude_transport.protocol.hooks.inputs import PostModelSwitchInput as PostModelSwitchInput
from claude_transport.protocol.hooks.inputs import PostToolBatchInput as PostToolBatchInput
from claude_transport.protocol.hooks.inputs import PostToolUseFailureInput as PostToolUseFailureInput
from claude_transport.protocol.hooks.inputs import PostToolUseInput as PostToolUseInput
from claude_transport.protocol.hooks.inputs import PreCompactInput as PreCompactInput
from claude_transport.protocol.hooks.inputs import PreModelSwitchInput as PreModelSwitchInput
from claude_transport.protocol.hooks.inputs import PreToolUseInput as PreToolUseInput
from claude_transport.protocol.hooks.inputs import SessionCron as SessionCron
from claude_transport.protocol.hooks.inputs import SessionEndInput as SessionEndInput
from claude_transport.protocol.hooks.inputs import SessionStartInput as SessionStartInput
from claude_transport.protocol.hooks.inputs import SetupInput as SetupInput
from claude_transport.protocol.hooks.inputs import StopFailureInput as StopFailureInput
from claude_transport.protocol.hooks.inputs import StopInput as StopInput
from claude_transport.protocol.hooks.inputs import SubagentStartInput as SubagentStartInput
from claude_transport.protocol.hooks.inputs import SubagentStopInput as SubagentStopInput
from claude_transport.protocol.hooks.inputs import TaskCompletedInput as TaskCompletedInput
from claude_transport.protocol.hooks.inputs import TaskCreatedInput as TaskCreatedInput
from claude_transport.protocol.hooks.inputs import TaskInput as TaskInput
from claude_transport.protocol.hooks.inputs import TeammateIdleInput as TeammateIdleInput
from claude_transport.protocol.hooks.inputs import ToolCallRecord as ToolCallRecord
from claude_transport.protocol.hooks.inputs import ToolHookInput as ToolHookInput
from claude_transport.protocol.hooks.inputs import TurnEndInput as TurnEndInput
from claude_transport.protocol.hooks.inputs import UserPromptExpansionInput as UserPromptExpansionInput
from claude_transport.protocol.hooks.inputs import UserPromptSubmitInput as UserPromptSubmitInput
from claude_transport.protocol.hooks.inputs import WorktreeCreateInput as WorktreeCreateInput
from claude_transport.protocol.hooks.inputs import WorktreeRemoveInput as WorktreeRemoveInput
from claude_transport.protocol.hooks.inputs import parse_hook_input as parse_hook_input
from claude_transport.protocol.hooks.outputs import AdditionalContext as AdditionalContext
from claude_transport.protocol.hooks.outputs import AsyncHookOutput as AsyncHookOutput
from claude_transport.protocol.hooks.outputs import ElicitationReply as ElicitationReply
from claude_transport.protocol.hooks.outputs import HookOutput as HookOutput
from claude_transport.protocol.hooks.outputs import MessageDisplayOutput as MessageDisplayOutput
from claude_transport.protocol.hooks.outputs import PermissionDeniedOutput as PermissionDeniedOutput
from claude_transport.protocol.hooks.outputs import PermissionRequestDecision as PermissionRequestDecision
from claude_transport.protocol.hooks.outputs import PostToolUseOutput as PostToolUseOutput
from claude_transport.protocol.hooks.outputs import PreModelSwitchDecision as PreModelSwitchDecision
from claude_transport.protocol.hooks.outputs import PreToolUseDecision as PreToolUseDecision
from claude_transport.protocol.hooks.outputs import SessionStartOutput as SessionStartOutput
from claude_transport.protocol.hooks.outputs import SpecificOutput as SpecificOutput
from claude_transport.protocol.hooks.outputs import UserPromptExpansionOutput as UserPromptExpansionOutput
from claude_transport.protocol.hooks.outputs import UserPromptSubmitOutput as UserPromptSubmitOutput
from claude_transport.protocol.hooks.outputs import WatchPaths as WatchPaths
from claude_transport.protocol.hooks.outputs import WorktreeCreateOutput as WorktreeCreateOutput
from claude_transport.protocol.hooks.outputs import encode_hook_output as encode_hook_output

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
