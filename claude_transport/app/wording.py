"""`in_program_words()`: puts the options of the program in place of the Python arguments that an error of the library names.

`failures` calls it for the message and the remedy of an error, and for nothing that a CLI or a file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OPTIONS: Final[Mapping[str, str]] = {
    "agent": "--agent",
    "allow_plaintext": "--allow-plaintext",
    "allowed_tools": "--allowed-tools",
    "approval_policy": "--approval-policy",
    "capacity": "--capacity",
    "choices": "--choice",
    "cli_path": "--cli-path",
    "close_timeout": "--close-timeout",
    "codex_path": "--codex-path",
    "cwd": "--cwd",
    "drain_timeout": "--drain-timeout",
    "hosts": "--host-name",
    "labels": "--label",
    "lease": "--lease",
    "max_turns": "--max-turns",
    "metrics_host": "--metrics-host",
    "metrics_port": "--metrics-port",
    "model": "--model",
    "name": "--name",
    "origins": "--origin",
    "permission_mode": "--permission-mode",
    "sandbox": "--sandbox",
    "session": "--session",
    "session_store": "--session-store",
    "since": "--since",
    "speed": "--speed",
    "system_prompt": "--system-prompt",
    "transport": "--transport",
}
"""The option of the program for each argument of the library that it sets."""

_PHRASES: Final = tuple(
    (re.compile(phrase), words)
    for phrase, words in (
        (
            r"\bPass tokens, or an ssl_context that requires client certificates",
            "Give --token-file or --token-env, or --client-ca with TLS",
        ),
        (r"\bpass ssl_context\b", "give --certificate"),
        (r"\bpass (?=allow_plaintext=True)", "give "),
        (r"\bgive `token=`", "give --token-env"),
        (r"\bleave it None(?: instead)?\b", "leave it out"),
        (r"\bcorrect cwd\b", "correct --cwd"),
    )
)
_VALUE: Final = re.compile(rf'\b({"|".join(OPTIONS)})=(?:True\b|"([^"]*)")')
_SUBJECT: Final = re.compile(rf"^({'|'.join(OPTIONS)})(?=:| must | is not | is a position)")
_PLAIN: Final = re.compile(rf"(?<![\w-])({'|'.join(name for name in OPTIONS if '_' in name)})\b")


def in_program_words(text: str) -> str:
    """Return `text` with `--max-turns` for `max_turns`, `--agent codex` for `agent="codex"`, and so on."""
    for phrase, words in _PHRASES:
        text = phrase.sub(words, text)
    text = _VALUE.sub(lambda found: OPTIONS[found[1]] + (f" {found[2]}" if found[2] else ""), text)
    text = _SUBJECT.sub(lambda found: OPTIONS[found[1]], text)
    return _PLAIN.sub(lambda found: OPTIONS[found[1]], text)
