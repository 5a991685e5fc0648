"""`transport_from` runs what the official client would have run by itself: the same command line and environment, option by option.

The CLI is a shell script that notes how it was started. What one of the two puts into a file and the other into an argument is the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest
from official_values import SET

from claude_transport.interop.agent_sdk import transport_from

STARTED = """\
#!/bin/sh
case "$CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK$1" in -v) exit 0 ;; esac
for argument in "$@"; do
    value=${argument#*=}
    if [ -f "$value" ]; then
        printf '%s=' "${argument%%=*}"
        cat "$value"
        printf '\\0'
    else
        printf '%s\\0' "$argument"
    fi
done > "$NOTES/arguments"
env > "$NOTES/environment"
pwd > "$NOTES/directory"
read -r initialize
exit 3
"""

SAID_OTHERWISE = {"--system-prompt-file": "--system-prompt", "--append-system-prompt-file": "--append-system-prompt"}
LISTS = frozenset({"--allowedTools", "--disallowedTools"})
OWN_VARIABLES = frozenset({"CLAUDE_CODE_ENTRYPOINT", "CLAUDE_TRANSPORT_CHILD"})
"""Each of the two says who it is, in variables of its own."""

TOGETHER: dict[str, dict[str, Any]] = {
    "resume_session_at": {"resume": "a session"},
    "resume_drops_turn": {"resume": "a session", "resume_session_at": SET["resume_session_at"]},
}
"""Options that mean nothing alone: here that is refused."""

SAID_TWICE = {"forward_subagent_text": ("--forward-subagent-text", None)}
"""What this client says in `initialize`, and the command line here as well, for clients that do not."""

CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    **{option: {option: value, **TOGETHER.get(option, {})} for option, value in SET.items() if option not in ("cli_path", "user")},
    "system prompt: preset": {"system_prompt": {"type": "preset", "preset": "claude_code", "append": "Be brief."}},
    "server of this process": {"mcp_servers": {"sums": sdk.create_sdk_mcp_server("sums")}},
    "all skills": {"skills": "all", "allowed_tools": ["Read"]},
    "thinking: enabled": {"thinking": {"type": "enabled", "budget_tokens": 2048}},
    "thinking: disabled": {"thinking": {"type": "disabled"}},
    "settings and sandbox": {"settings": '{"model": "haiku"}', "sandbox": {"enabled": True}},
    "no tools": {"tools": []},
    "no settings": {"setting_sources": []},
}


class Notes:
    """A CLI that notes how it was started, and what it has noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cli = folder / "claude"
        self.cli.write_text(STARTED, "utf-8")
        self.cli.chmod(0o755)

    def take(self) -> tuple[list[tuple[str, object]], set[str], str]:
        """Flags with their values, the names in the environment, and the directory; the notes are gone then."""
        arguments = self._taken("arguments").split("\0")[:-1]
        names = {line.partition("=")[0] for line in self._taken("environment").splitlines()}
        return sorted(flags(arguments), key=str), names - OWN_VARIABLES, self._taken("directory")

    def _taken(self, name: str) -> str:
        path = self.folder / name
        text = path.read_text("utf-8")
        path.unlink()
        return text


def flags(arguments: list[str]) -> list[tuple[str, object]]:
    """Flags and their values, whether they were written as one word or as two, and a list at once or one by one."""
    found: list[tuple[str, object]] = []
    for argument in arguments:
        if argument.startswith("--"):
            flag, equals, value = argument.partition("=")
            found.append((SAID_OTHERWISE.get(flag, flag), meant(value) if equals else None))
        else:
            found[-1] = (found[-1][0], meant(argument))
    return [(flag, one) for flag, value in found for one in (value.split(",") if flag in LISTS and isinstance(value, str) else [value])]


def meant(value: str) -> object:
    """What a value says: JSON is the same however it is written."""
    return json.loads(value) if value.startswith("{") else value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")
async def test_the_cli_is_started_as_the_official_client_would_have_started_it(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes(tmp_path)
    monkeypatch.setenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "1")
    monkeypatch.setenv("NOTES", str(tmp_path))
    options = sdk.ClaudeAgentOptions(**{"cli_path": notes.cli, **CASES[case]})

    with pytest.raises(sdk.ClaudeSDKError):
        await sdk.ClaudeSDKClient(options).connect()
    theirs = notes.take()

    transport = transport_from(options)
    with pytest.raises(sdk.ClaudeSDKError):
        await sdk.ClaudeSDKClient(options, transport=transport).connect()
    await transport.close()
    arguments, *others = notes.take()

    twice = SAID_TWICE.get(case)
    assert ([argument for argument in arguments if argument != twice], *others) == theirs
