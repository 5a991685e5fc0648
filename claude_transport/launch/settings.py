"""The two JSON documents a launch may carry, settings and MCP servers: read, checked and merged as data.

Why everything is read here and not left to the CLI: a `--settings` *file* that is no JSON object is ignored by the CLI without a word
(observed on 2.1.329), and the session would run without the permission rules its author relies on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions


def is_inline_json(value: str) -> bool:
    """True for text that is a JSON object rather than a path; the CLI decides by the same first and last character."""
    text = value.strip()
    return text.startswith("{") and text.endswith("}")


def to_json(value: Any, *, option: str) -> bytes:
    """`value` as JSON; raises `ConfigurationError` naming `option` when it holds what JSON cannot."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{option} holds something that cannot be written as JSON: {error}", option=option) from error


def read_json_object(source: str | PathLike[str], *, option: str, cwd: str | PathLike[str] | None = None) -> dict[str, Any]:
    """The JSON object in the file `source` (a relative path counts from `cwd`, as for the CLI) or in the text itself.

    Raises `ConfigurationError` when the file is missing or unreadable, or when it is no JSON object. A byte-order mark is accepted.
    """
    if isinstance(source, str) and is_inline_json(source):
        return _json_object(source, "the text given", option=option)
    return _json_object(_text_of_file(source, option=option, cwd=cwd), f"the file {Path(cwd or '') / source}", option=option)


def _text_of_file(source: str | PathLike[str], *, option: str, cwd: str | PathLike[str] | None) -> str:
    path = Path(cwd or "") / source
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(f"{option}: the file {path} cannot be read: {reason}", option=option) from error


def _json_object(text: str, where: str, *, option: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        position = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        # The decoder's own message is left out: its exception holds the whole document, which may hold secrets.
        raise ConfigurationError(f"{option}: {where} is not JSON{position}", option=option) from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{option}: {where} must be a JSON object, not {type(document).__name__}", option=option)
    return document


class ReadSettings(str):  # noqa: SLOT000 - there is one for each launch
    """The path of a settings file, with the `text` and the JSON `document` that were read from it.

    It takes the place of the path among the options of one launch, so that the launch reads the file once.
    """

    text: str
    document: dict[str, Any]


def with_settings_read(options: ClaudeOptions) -> ClaudeOptions:
    """Return `options` with `ReadSettings` in place of the path of a settings file.

    Returns them unchanged when they name no file, or one that cannot be read: the check of the options says what is wrong with it.
    """
    given = options.settings
    if not isinstance(given, (str, os.PathLike)) or isinstance(given, ReadSettings) or is_inline_json(os.fspath(given)):
        return options
    try:
        text = _text_of_file(given, option="settings", cwd=options.cwd)
        read = ReadSettings(os.fspath(given))
        read.text, read.document = text, _json_object(text, "the file", option="settings")
    except (ConfigurationError, TypeError):
        return options
    return options.replace(settings=read)


def load_settings(options: ClaudeOptions) -> dict[str, Any]:
    """`settings` as a dict, read from disk when it is a path; empty when there are none."""
    if options.settings is None:
        return {}
    if isinstance(options.settings, Mapping):
        return dict(options.settings)
    if isinstance(options.settings, ReadSettings):
        return dict(options.settings.document)
    return read_json_object(options.settings, option="settings", cwd=options.cwd)


def settings_document(options: ClaudeOptions, *, permissions: Mapping[str, list[str]]) -> dict[str, Any] | str | None:
    """What `--settings` should carry: a document, the caller's own path when nothing is to be merged into it, or None.

    `permissions` are rules that found no room on the command line: `{"allow": [...], "deny": [...], "additionalDirectories": [...]}`,
    added to those of the settings. `sandbox` replaces the settings' own. The CLI takes only one `--settings` (the last), hence the merge.
    """
    merge = bool(permissions) or options.sandbox is not None
    if not merge and isinstance(options.settings, (str, os.PathLike)):
        text = os.fspath(options.settings)
        if not is_inline_json(text):
            return text
    if not merge and options.settings is None:
        return None
    document = load_settings(options)
    if options.sandbox is not None:
        document["sandbox"] = dict(options.sandbox)
    if permissions:
        rules = document.get("permissions") or {}
        if not isinstance(rules, Mapping) or not all(isinstance(rules.get(key, []), (list, tuple)) for key in permissions):
            raise ConfigurationError("settings: permissions must be lists of rules by name, or none can be added", option="settings")
        rules = dict(rules)
        for key, added in permissions.items():
            rules[key] = [*rules.get(key, ()), *(rule for rule in added if rule not in rules.get(key, ()))]
        document["permissions"] = rules
    return document


def mcp_document(options: ClaudeOptions) -> dict[str, Any] | str | None:
    """What `--mcp-config` should carry: `{"mcpServers": {...}}`, the caller's own path, or None when no server is configured."""
    servers = options.mcp_servers
    if not servers:
        return None
    if isinstance(servers, Mapping):
        return {"mcpServers": {name: dict(config) for name, config in servers.items()}}
    text = os.fspath(servers)
    return read_json_object(text, option="mcp_servers") if is_inline_json(text) else text
