"""Builds the command line of `codex app-server`: settings as `-c name=value`, each value in TOML.

Codex merges what `-c` says with `config.toml`, table by table (0.169.0). A value that is no TOML would be taken as a text, so all values
are written here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Final

from claude_transport.codex.options import CodexOptions
from claude_transport.launch import windows
from claude_transport.launch.rules import refuse

_MOST_LEVELS: Final = 16
"""Levels of tables and lists in one setting."""
_WIDEST: Final = 2**63
"""The bound of TOML's integers."""


def build_codex_argv(options: CodexOptions, program: str | PathLike[str]) -> list[str]:
    """Return the command line for `options`, with `program`, the path of `codex`, first.

    Raises `ConfigurationError` for a setting that TOML cannot hold, and for a command line of 8,000 characters or more.
    """
    # "untrusted" is refused in the configuration, and ends the process; `thread/start` still takes it
    policy = None if options.approval_policy == "untrusted" else options.approval_policy
    own = {"model": options.model, "sandbox_mode": options.sandbox, "approval_policy": policy}
    settings: dict[str, Any] = {**options.config, **{name: value for name, value in own.items() if value is not None}}
    argv = [fspath(program), "app-server"]
    for name, value in settings.items():
        argv += ["-c", f"{name}={toml_value(value, name=name)}"]
    argv += options.extra_args
    length = windows.command_line_length(argv)
    if length >= windows.COMMAND_LINE_BUDGET:
        refuse(
            "config",
            f"the command line has {length} characters, and must have fewer than {windows.COMMAND_LINE_BUDGET}: put long settings into "
            "config.toml of codex_home",
        )
    return argv


def toml_value(value: object, *, name: str) -> str:
    """Return `value` as TOML in one line. Raises `ConfigurationError`, which names the setting `name`, for what TOML cannot hold."""
    return _written(value, name, 0)


def _written(value: object, name: str, level: int) -> str:  # noqa: RET503 - the last line raises
    if level > _MOST_LEVELS:
        refuse("config", f"{name} has more than {_MOST_LEVELS} levels: put it into config.toml of codex_home")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_WIDEST <= value < _WIDEST:
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    if isinstance(value, str):
        return _text(value, name)
    if isinstance(value, PathLike):
        return _text(fspath(value), name)
    if isinstance(value, Mapping):
        pairs = [f"{_key(key, name)}={_written(inner, f'{name}.{key}', level + 1)}" for key, inner in value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "[" + ",".join(_written(inner, name, level + 1) for inner in value) + "]"
    what = "an integer of more than 64 bits" if isinstance(value, int) else type(value).__name__
    refuse("config", f"{name} cannot be {what}: TOML holds texts, numbers, booleans, lists and tables; leave a setting out to unset it")


def _key(key: object, name: str) -> str:
    if not isinstance(key, str) or not key:
        refuse("config", f"{name} has the key {key!r}; keys must be non-empty texts")
    return _text(key, name)


def _text(text: str, name: str) -> str:
    """Write a basic string of TOML: JSON's escapes are among TOML's, but DEL needs one in TOML only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        refuse("config", f"{name} holds a character that is no text in UTF-8")
    if "\0" in text:
        refuse("config", f"{name} must not contain a NUL character")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
