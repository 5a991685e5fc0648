"""What each launcher does about quoting, environment, payloads, the end and the exit code: the table that the reference page shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from claude_transport.launch.launcher import SRUN_EXPORT

__all__ = ["RULES", "Rule"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the reference: what a launcher does about quoting, environment, payloads, the end, and the client's exit code."""

    quoting: str
    environment: str
    payloads: str
    end: str
    exit_code: str


_INHERITED: Final = "as without a launcher"
_SENT: Final = "that of the other end; what the options say is sent on standard input"
_INITIALIZE: Final = "in the `initialize` request"
_TOLD: Final = "supervisor; a second command ends everything with its mark whenever the client ends other than well"
_WORD: Final = "the supervisor says the program's own; without its word the connection was lost"

RULES: Final[Mapping[str, Rule]] = {
    "local": Rule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads="in private files",
        end="process group, then the mark in the environment",
        exit_code="the prefix's, which hands on the program's",
    ),
    "systemd_run": Rule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads="in private files",
        end="a scope: still our process group, then the mark in the environment",
        exit_code="the program's",
    ),
    "bwrap": Rule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads=_INITIALIZE,
        end="`--die-with-parent` and a process namespace that ends as a whole",
        exit_code="the program's; 1 with `bwrap:` on standard error when there is no sandbox",
    ),
    "ssh": Rule(
        quoting="one argument, quoted for the login shell",
        environment=_SENT,
        payloads=_INITIALIZE,
        end="supervisor, which sees within a second that sshd is gone",
        exit_code=f"255 is anything: {_WORD}",
    ),
    "docker": Rule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=_WORD),
    "podman": Rule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=_WORD),
    "kubectl": Rule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=f"1 is anything: {_WORD}"),
    "srun": Rule(
        quoting="none (exec)",
        environment=f"of this machine only `{','.join(SRUN_EXPORT)}`; what the options say is sent on standard input",
        payloads=_INITIALIZE,
        end="srun hands SIGTERM on to the step; a supervisor ends what is left",
        exit_code=_WORD,
    ),
}
"""By the name of the launcher."""
