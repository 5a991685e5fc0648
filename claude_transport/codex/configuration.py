"""What Codex reads beside its command line: `config.toml` of its home. It says who pays, and may hold secrets that redactors must know.

Files of a project and of the system, which Codex also reads, are not looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec

from claude_transport.codex.environ import build_codex_environment
from claude_transport.codex.options import CodexOptions
from claude_transport.errors import ConfigurationError
from claude_transport.launch.discovery import home_of
from claude_transport.launch.environ import environment_now
from claude_transport.launch.settings import LazyTexts

CONFIGURATION_FILE: Final = "config.toml"
_MOST_LEVELS: Final = 8
"""Levels of tables that are looked into."""
_MAX_FILE_BYTES: Final = 2**20
"""Bytes of a file that are read. Real ones have a few kilobytes."""


def find_codex_home(env: Mapping[str, str]) -> Path | None:
    """Return the home of a Codex with this environment: `CODEX_HOME`, else `.codex` in the home directory; None when neither is known."""
    if env.get("CODEX_HOME"):
        return Path(env["CODEX_HOME"])
    home = home_of(env)
    return None if home is None else home / ".codex"


def read_configuration(codex_home: str | PathLike[str] | None) -> dict[str, Any]:
    """Return the settings in `config.toml` of this home; empty when there is no such file, or it cannot be read.

    Codex refuses to start with a file that is no TOML, and says so.
    """
    text = None if codex_home is None else read_file(Path(codex_home) / CONFIGURATION_FILE)
    if text is None:
        return {}
    import tomllib  # most sessions need no look at the file

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def effective_settings(file: Mapping[str, Any], options: CodexOptions) -> dict[str, Any]:
    """Return the settings of the file with those of the options over them: tables are merged, and names may be dotted paths."""
    merged: dict[str, Any] = dict(file)
    for name, value in options.config.items():
        nested: Any = value
        for part in reversed(name.split(".")):
            nested = {part.strip(): nested}
        merged = _overlaid(merged, nested)
    return merged


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = _overlaid(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _secret_variables(settings: Mapping[str, Any], level: int = 0) -> Iterator[object]:
    """Yield the names of variables in which, as these settings say, a key or a token is."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and name == "env_http_headers":
            yield from value.values()
        elif isinstance(value, Mapping) and level < _MOST_LEVELS:
            yield from _secret_variables(value, level + 1)
        elif name in ("env_key", "bearer_token_env_var"):
            yield value


def read_file(path: Path) -> str | None:
    """Return the text of a regular file with at most 1 MiB; None when there is none, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
            return content.decode("utf-8-sig") if len(content) <= _MAX_FILE_BYTES else None
    return None


def configuration_texts(options: CodexOptions) -> LazyTexts:
    """Return the settings in the file that a Codex with these options reads, and the keys that they name, as JSON, for redactors.

    A missing or unreadable file counts as empty. A variable is a key when `env_key` of a model provider names it, whatever it is called.
    """

    def read() -> tuple[str, ...]:
        try:
            env = build_codex_environment(options, environment_now())
        except ConfigurationError:  # nothing can be started with these options
            return ()
        found = read_configuration(find_codex_home(env))
        named = _secret_variables(effective_settings(found, options))
        secrets = {name: env[name] for name in named if isinstance(name, str) and name in env}
        return tuple(msgspec.json.encode(text, enc_hook=str).decode() for text in (found, {"secrets": secrets}))

    return LazyTexts(read)
