"""How a bridge is told where its host is: an entry for `ClaudeOptions.mcp_servers`, and the environment that comes of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.streams.address import Address, parse_address

URL_VARIABLE: Final = "CLAUDE_TRANSPORT_BRIDGE_URL"
TOKEN_VARIABLE: Final = "CLAUDE_TRANSPORT_BRIDGE_TOKEN"  # noqa: S105 - the name of one
SERVER_VARIABLE: Final = "CLAUDE_TRANSPORT_BRIDGE_SERVER"

MIN_TOKEN_CHARS: Final = 16
"""Characters: with fewer, another user of this machine could guess. Python's `secrets.token_urlsafe()` gives 43."""

_TOKEN = re.compile(r"[\x21-\x7e]{16,1024}")

# -P: not from the directory it is started in, which is the project that the CLI works on: a file `json.py` there would be run
_PROGRAM: Final = (sys.executable, "-P", "-m", "claude_transport", "mcp-bridge")


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a bridge has to know."""

    address: Address
    token: str
    server: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"BridgeSettings(address={str(self.address)!r}, server={self.server!r})"


def bridge_config(url: str, *, token: str, server: str, command: Sequence[str] = _PROGRAM) -> dict[str, Any]:
    """The `mcp_servers` entry that makes the CLI start a bridge to `server` of the host at `url`.

    `url` is `unix:///path` or, on loopback, `tcp://host:port`. The token travels in the entry's `env` (a private file, and then the
    bridge's environment), never on a command line. `command` is how the bridge is started; the default is this Python's.
    Raises `ConfigurationError` for an address of another machine, and for a token that could be guessed.
    """
    check_bridge_url(url)
    check_token(token)
    if not server:
        raise ConfigurationError("the server of a bridge needs a name", option="server")
    if isinstance(command, str) or not command:
        raise ConfigurationError("command is a sequence of texts: the program and its arguments", option="command")
    environment = {URL_VARIABLE: url, TOKEN_VARIABLE: token, SERVER_VARIABLE: server}
    return {"type": "stdio", "command": command[0], "args": list(command[1:]), "env": environment}


def read_bridge_settings(env: Mapping[str, str], *, url: str | None = None, server: str | None = None) -> BridgeSettings:
    """What `bridge_config` has put into the environment; `url` and `server` win over it. `ConfigurationError` for what is missing."""
    found = {URL_VARIABLE: url or env.get(URL_VARIABLE), SERVER_VARIABLE: server or env.get(SERVER_VARIABLE)}
    found[TOKEN_VARIABLE] = env.get(TOKEN_VARIABLE)
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise ConfigurationError(f"a bridge needs {' and '.join(missing)} in its environment: bridge_config() puts them there")
    return BridgeSettings(
        address=check_bridge_url(found[URL_VARIABLE] or ""),
        token=check_token(found[TOKEN_VARIABLE] or ""),
        server=found[SERVER_VARIABLE] or "",
    )


def check_bridge_url(url: str) -> Address:
    """The address; `ConfigurationError` for one that is no place on this machine."""
    address = parse_address(url)
    if address.scheme not in {"unix", "tcp"} or not address.stays_here:
        raise ConfigurationError(
            f"{address}: a bridge reaches its host at unix:///path or tcp:// on loopback; "
            "for a CLI on another machine, give the tools to Query(mcp_servers=...), which takes them along",
            option="url",
        )
    return address


def check_token(token: str) -> str:
    """The token itself; `ConfigurationError` for one that could be guessed, or would not fit on a line."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"the token of a bridge is {MIN_TOKEN_CHARS} to 1024 printable characters without blanks; "
            "secrets.token_urlsafe() makes a good one",
            option="token",
        )
    return token
