"""MCP servers that the CLI is to run or reach by itself, given to a conversation instead of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from claude_transport.errors import ConfigurationError, ControlRequestFailed
from claude_transport.protocol.answers import McpServersChange
from claude_transport.protocol.redaction import Redactor

__all__ = ["check_change", "checked_configuration", "whole_configuration"]

_URL_KINDS: Final = frozenset({"http", "sse", "ws"})


def whole_configuration(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with what `mcp_set_servers` needs of it.

    A program without `args` is fine in `--mcp-config`, and fails here with "Spread syntax requires ...iterable" (CLI 2.1.329, real).
    """
    whole = dict(config)
    if whole.get("type", "stdio") == "stdio" and "command" in whole:
        whole.setdefault("args", [])
    return whole


def checked_configuration(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the server `name`, for `mcp_set_servers`; `ConfigurationError` for one that the CLI could only fail with.

    A kind that is not known here is passed on: a newer CLI may have more of them.
    """
    kind = config.get("type", "stdio")
    if not isinstance(kind, str):
        raise _refused(name, f"its type is a text such as stdio or http, not {type(kind).__name__}")
    if kind == "sdk":
        raise _refused(name, "a server of type sdk lives in this program: give the server object itself")
    if kind == "stdio":
        args = config.get("args", ())
        if not isinstance(config.get("command"), str) or not config["command"]:
            raise _refused(name, "a server of type stdio needs a command, as text")
        if isinstance(args, str) or not isinstance(args, Sequence) or not all(isinstance(each, str) for each in args):
            raise _refused(name, "its args are a list of texts")
    if kind in _URL_KINDS and (not isinstance(config.get("url"), str) or not config["url"]):
        raise _refused(name, f"a server of type {kind} needs a url, as text")
    for option in ("env", "headers"):
        given = config.get(option, {})
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
            raise _refused(name, f"its {option} are texts by name")
    return whole_configuration(config)


def check_change(change: McpServersChange) -> None:
    """Raise `ControlRequestFailed` with the names of the servers that could not be connected, and why, as far as the CLI says."""
    if change.errors:
        redactor = Redactor()  # a URL may hold a key
        why = "; ".join(f"{name!r}: {redactor.text(str(reason))}" for name, reason in change.errors.items())
        message = f"MCP servers could not be connected: {why}"
        raise ControlRequestFailed(message, subtype="mcp_set_servers", error_code="mcp_server_failed")


def _refused(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"mcp_servers[{name!r}]: {why}", option="mcp_servers")
