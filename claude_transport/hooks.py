"""Hooks: the typed input of each hook event, and the typed answers that a hook callback may return.

Register callbacks with `Query(hooks={HookEvent.PRE_TOOL_USE: [HookMatcher("Bash", [callback])]})`. A callback receives the input class of
its event. It returns None, a `HookOutput`, or one of the answers below.

Events: `HookEvent` names every event.
Inputs: `HookInput` is the base class. Each event has one, such as `PreToolUseInput`; `ToolHookInput` holds the fields of all tool events,
    `TurnEndInput` those of the end of a turn. `HookEffort`, `HookMcpServer`, `ToolCallRecord`, `SessionCron` and `BackgroundTaskInfo` are
    parts of inputs.
Answers: `HookOutput` holds what every event may answer, and in `specific` the answer of one event: `SpecificOutput` is the base class of
    these. `PreToolUseDecision` allows or denies a tool call, `AdditionalContext` gives the model more text. `AsyncHookOutput` tells the
    CLI not to wait.
On the wire: `parse_hook_input` reads the input of an event. `encode_hook_output` checks an answer and writes it.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "protocol.hooks": "AdditionalContext AsyncHookOutput BackgroundTaskInfo ConfigChangeInput CwdChangedInput "
        "DirectoryAddedInput ElicitationInput ElicitationReply ElicitationResultInput FileChangedInput HookEffort "
        "HookEvent HookInput HookMcpServer HookOutput InstructionsLoadedInput MessageDisplayInput "
        "MessageDisplayOutput ModelSwitchInput NotificationInput PermissionDeniedInput PermissionDeniedOutput "
        "PermissionRequestDecision PermissionRequestInput PostCompactInput PostModelSwitchInput PostToolBatchInput "
        "PostToolUseFailureInput PostToolUseInput PostToolUseOutput PreCompactInput PreModelSwitchDecision "
        "PreModelSwitchInput PreToolUseDecision PreToolUseInput SessionCron SessionEndInput SessionStartInput "
        "SessionStartOutput SetupInput SpecificOutput StopFailureInput StopInput SubagentStartInput "
        "SubagentStopInput TaskCompletedInput TaskCreatedInput TaskInput TeammateIdleInput ToolCallRecord "
        "ToolHookInput TurnEndInput UserPromptExpansionInput UserPromptExpansionOutput UserPromptSubmitInput "
        "UserPromptSubmitOutput WatchPaths WorktreeCreateInput WorktreeCreateOutput WorktreeRemoveInput "
        "encode_hook_output parse_hook_input",
    },
)
