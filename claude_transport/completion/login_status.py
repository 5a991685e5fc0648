"""What the CLI itself says of its login: `claude auth status`, which asks nobody and sends nothing.

Observed on CLI 2.1.329: one JSON object on stdout, exit code 0 when there is a credential and 1 when there is none. `authMethod` was
`none`, `api_key` (with `apiKeySource`), `oauth_token` (for ANTHROPIC_AUTH_TOKEN as well as CLAUDE_CODE_OAUTH_TOKEN) and `third_party`
(a cloud). Whether a credential is still good, nobody knows before it is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from os import PathLike
from typing import Final

import anyio
import msgspec

from claude_transport.errors import SpawnError
from claude_transport.launch.discovery import CLI
from claude_transport.launch.windows import creation_flags

__all__ = ["LoginStatus", "read_login_status"]

_ARGUMENTS: Final = ("auth", "status", "--json")


class LoginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the CLI has a credential, and of which kind; no name, address or secret of anybody."""

    logged_in: bool
    auth_method: str = ""
    api_provider: str = ""
    api_key_source: str | None = None
    subscription_type: str | None = None


async def read_login_status(
    cli: CLI | str | PathLike[str], *, env: Mapping[str, str], cwd: str | PathLike[str] | None = None, timeout: float = 10.0
) -> LoginStatus | None:
    """What `claude auth status` says in this environment (the child's, complete); None from a CLI that does not know the command.

    One process, killed after `timeout` seconds, which is None, too. Raises `SpawnError` when it cannot be started.
    """
    program = cli.path if isinstance(cli, CLI) else os.fspath(cli)
    with anyio.move_on_after(timeout):
        try:
            done = await anyio.run_process(
                [program, *_ARGUMENTS],
                check=False,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                cwd=cwd,
                creationflags=creation_flags(sys.platform),
            )
        except OSError as error:
            raise SpawnError(f"{program} cannot be started: {error.strerror or type(error).__name__}", path=program) from error
        try:
            return msgspec.json.decode(done.stdout, type=LoginStatus)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # an older CLI takes the words for a prompt, or refuses them
    return None
