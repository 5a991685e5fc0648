"""What becomes of each option of the official `ClaudeAgentOptions`: one row each, which the code, the how-to and a test go by."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["OPTION_ROWS", "OptionRow"]


class OptionRow(msgspec.Struct, frozen=True):
    """One row: the official name, what it is here, and what differs.

    `is_same` says that the value is handed on under the same name; an empty one is left out, where the official SDK does so too.
    """

    option: str
    here: str
    note: str = ""
    is_same: bool = False


def _same(option: str, note: str = "") -> OptionRow:
    return OptionRow(option, f"`ClaudeOptions.{option}`", note, is_same=True)


_STORE = "Refused by `options_from`: this library mirrors no transcripts. `transport_from` leaves it to the official client."

OPTION_ROWS: Final[tuple[OptionRow, ...]] = (
    _same("tools"),
    _same("allowed_tools"),
    OptionRow("system_prompt", "`ClaudeOptions.system_prompt`", 'None becomes `""`: there it means no system prompt, here the CLI\'s own.'),
    OptionRow(
        "mcp_servers",
        "`ClaudeOptions.mcp_servers`; `Query(mcp_servers=…)` for those of this process",
        "A server of type `sdk` is handed on as the server object in it, under the same name.",
    ),
    _same("strict_mcp_config", "False stays False; here the default None means strict when servers are configured."),
    _same("permission_mode"),
    _same("continue_conversation"),
    _same("resume"),
    _same("session_id"),
    _same("max_turns", "0 becomes None: no limit."),
    _same("max_budget_usd"),
    _same("disallowed_tools"),
    _same("model"),
    _same("fallback_model"),
    _same("betas"),
    _same("permission_prompt_tool_name"),
    _same("cwd"),
    _same("cli_path", "None: `find_cli` looks for it; it knows the one inside the official SDK, too."),
    _same("settings"),
    _same("add_dirs"),
    _same("env", "Over what is inherited, as there. `CLAUDE_CODE_ENTRYPOINT` is not set to `sdk-py`, which would not be true."),
    _same("extra_args", "Flags that the library writes itself are refused."),
    OptionRow("max_buffer_size", "`SubprocessTransport(max_line_bytes=…)`", "A longer line costs that one message, not the session."),
    OptionRow("debug_stderr", "nothing", "The official SDK does not read it any more either."),
    OptionRow("stderr", "`SubprocessTransport(on_stderr=…)`", "Standard error is read in any case: its end is in `transport.info`."),
    OptionRow(
        "can_use_tool",
        "`Query(can_use_tool=…)`",
        "`PermissionResultAllow`, `PermissionResultDeny` are `Allow`, `Deny`. Options that would keep it from ever "
        "being called are refused.",
    ),
    OptionRow(
        "hooks",
        "`Query(hooks=…)`",
        "A hook that raises has no say, unless its matcher has `on_failure='block'`; in a hook written for this library it blocks. "
        "One that overruns its `timeout` always blocks here. Fields of an answer that are not known are passed on, as there.",
    ),
    _same("user"),
    _same("include_partial_messages"),
    _same("include_hook_events"),
    _same("forward_subagent_text"),
    _same("verbatim_prompts"),
    _same("fork_session"),
    _same("resume_session_at"),
    _same("resume_drops_turn"),
    _same("agents", "`AgentDefinition` objects or mappings."),
    OptionRow("setting_sources", "`ClaudeOptions.setting_sources`", "With `skills` and None it becomes user and project, as there."),
    _same("skills"),
    _same("sandbox"),
    _same("plugins"),
    OptionRow("max_thinking_tokens", "`ClaudeOptions.max_thinking_tokens`", "Left out when `thinking` is given, which wins there too."),
    _same("thinking"),
    _same("effort"),
    OptionRow("output_format", "`ClaudeOptions.output_format`", "Anything but a JSON schema is left out, as there."),
    _same("enable_file_checkpointing"),
    OptionRow("session_store", "nothing", _STORE),
    OptionRow("session_store_flush", "nothing", "Goes with `session_store`."),
    OptionRow("load_timeout_ms", "nothing", "Goes with `session_store`."),
    _same("task_budget"),
    _same("client_app", "Nothing is derived from the running program when it is None."),
)
