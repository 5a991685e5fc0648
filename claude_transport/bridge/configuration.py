"""What a bridge and its host agree on: settings in the environment, the first line in each direction, and JSON-RPC messages after that.

The bridge (`stdio.py`) has no event loop and starts with every session, so this module imports little. `host.py` is the other end.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import msgspec

from claude_transport.errors import ConfigurationError, ProtocolError
from claude_transport.streams.address import Address, parse_address

URL_VARIABLE: Final = "CLAUDE_TRANSPORT_BRIDGE_URL"
TOKEN_VARIABLE: Final = "CLAUDE_TRANSPORT_BRIDGE_TOKEN"  # noqa: S105 - the name of a variable
SERVER_VARIABLE: Final = "CLAUDE_TRANSPORT_BRIDGE_SERVER"

MIN_TOKEN_CHARS: Final = 16
"""Characters: another user of this machine could guess a shorter token. `secrets.token_urlsafe()` gives 43."""

_TOKEN = re.compile(r"[\x21-\x7e]{16,1024}")

# -P: do not import from the working directory. It is the project that the CLI works on, and could hold a file `json.py`.
_PROGRAM: Final = (sys.executable, "-P", "-m", "claude_transport", "mcp-bridge")


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a bridge: the address of the host, the token, and the name of the server."""

    address: Address
    token: str
    server: str

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"BridgeSettings(address={str(self.address)!r}, server={self.server!r})"


def bridge_config(url: str, *, token: str, server: str, command: Sequence[str] = _PROGRAM) -> dict[str, Any]:
    """Return an entry for `ClaudeOptions(mcp_servers=…)` that makes the CLI start a bridge to a `BridgeHost`, as a stdio MCP server.

    `BridgeHost.mcp_servers` calls it; call it yourself when the host is in another program. The token is in the `env` of the entry: it
    reaches the bridge in a private file and in its environment, never on a command line.

    Args:
        url: the address of the host: `unix:///path`, or `tcp://host:port` on loopback.
        token: the token of the host.
        server: the name of the host's server that the bridge serves.
        command: the command that starts a bridge; by default with this Python.

    Raises:
        ConfigurationError: the address is on another machine, the token can be guessed, or another argument is not valid.
    """
    check_bridge_url(url)
    check_token(token)
    if not server:
        raise ConfigurationError("the name of the server is empty: name a server of the host", option="server")
    if isinstance(command, str) or not command:
        raise ConfigurationError("command is not a list: give the program and its arguments", option="command")
    environment = {URL_VARIABLE: url, TOKEN_VARIABLE: token, SERVER_VARIABLE: server}
    return {"type": "stdio", "command": command[0], "args": list(command[1:]), "env": environment}


def read_bridge_settings(env: Mapping[str, str], *, url: str | None = None, server: str | None = None) -> BridgeSettings:
    """Read the settings that `bridge_config()` has put into the environment `env`. `url` and `server` replace its values.

    Raises:
        ConfigurationError: a setting is missing or not valid.
    """
    found = {URL_VARIABLE: url or env.get(URL_VARIABLE, ""), SERVER_VARIABLE: server or env.get(SERVER_VARIABLE, "")}
    found[TOKEN_VARIABLE] = env.get(TOKEN_VARIABLE, "")
    missing = [name for name, value in found.items() if not value]
    if missing:
        message = f"a bridge needs {' and '.join(missing)} in its environment: bridge_config() puts them there"
        raise ConfigurationError(message, option="env")
    return BridgeSettings(
        address=check_bridge_url(found[URL_VARIABLE]), token=check_token(found[TOKEN_VARIABLE]), server=found[SERVER_VARIABLE]
    )


def check_bridge_url(url: str) -> Address:
    """Return the address in `url`. Raises `ConfigurationError` unless it is a Unix socket or on loopback."""
    address = parse_address(url)
    if address.scheme not in {"unix", "tcp"} or not address.stays_here:
        raise ConfigurationError(
            f"{address}: a bridge reaches its host at unix:///path or at tcp:// on loopback; "
            "for a CLI on another machine, give the tools to Query(mcp_servers=...)",
            option="url",
        )
    return address


def check_token(token: str) -> str:
    """Return `token`. Raises `ConfigurationError` when it can be guessed or does not fit on a line."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"the token of a bridge is not valid: use {MIN_TOKEN_CHARS} to 1024 visible ASCII characters without blanks, "
            "as secrets.token_urlsafe() makes them",
            option="token",
        )
    return token


# The first line in each direction

GREETING_VERSION: Final = 1
MAX_GREETING_BYTES: Final = 4096
"""Bytes that a client may send before it has shown a token."""

Refusal: TypeAlias = Literal["auth", "server", "busy", "version"]


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a bridge: the server that it wants, and its token."""

    mcp_bridge: int = GREETING_VERSION
    server: str
    token: str

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Greeting(server={self.server!r})"


class BridgeWelcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of the host. `refused` is the reason when the bridge is refused."""

    mcp_bridge: int
    refused: Refusal | None = None


def encode_greeting(greeting: Greeting | BridgeWelcome) -> bytes:
    """Encode the first line of a bridge or a host, with its newline."""
    return msgspec.json.encode(greeting) + b"\n"


def decode_greeting(line: bytes) -> Greeting:
    """Read the first line of a bridge. Raises `ProtocolError` for any other line, without quoting it: it may hold a token."""
    try:
        return msgspec.json.decode(line, type=Greeting)
    except (ValueError, RecursionError):
        raise ProtocolError("the first line is not the greeting of a bridge", code="bridge.protocol") from None


def decode_welcome(line: bytes) -> BridgeWelcome:
    """Read the first line of a host. Raises `ProtocolError` for any other line."""
    try:
        return msgspec.json.decode(line, type=BridgeWelcome)
    except (ValueError, RecursionError):
        raise ProtocolError("the program at this address is not the host of a bridge", code="bridge.protocol") from None


# JSON-RPC messages, one on each line, as in MCP's stdio transport

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""Codes of JSON-RPC 2.0, section 5.1."""

HOST_GONE: Final = -32000
BUSY: Final = -32001
"""Codes from the range that JSON-RPC leaves to servers: the host cannot be reached, and it has too many open calls."""

CANCELLED: Final = -32800
"""The code of the Language Server Protocol for a cancelled request."""


def decode_rpc(line: bytes) -> dict[str, Any] | None:
    """Read the JSON object on `line`; return None when there is none. Lone surrogates, which JavaScript writes, are kept."""
    try:
        found = msgspec.json.decode(line)
    except RecursionError:
        return None
    except ValueError:  # also msgspec's errors; Python's reader accepts a lone surrogate
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def encode_rpc(message: dict[str, Any]) -> bytes:
    """Return `message` as a line with its newline."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except ValueError:  # a lone surrogate, which json writes as an escape
        return json.dumps(message).encode("ascii") + b"\n"


def is_request_id(value: object) -> TypeGuard[str | int]:
    """Return True for a string or an integer: MCP does not allow the other ids of JSON-RPC."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def rpc_error(request_id: object, code: int, text: str, *, reason: str | None = None) -> dict[str, Any]:
    """Return a JSON-RPC error answer. `reason` goes into `error.data.code`, as a stable code for programs."""
    error: dict[str, Any] = {"code": code, "message": text}
    if reason is not None:
        error["data"] = {"code": reason}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
