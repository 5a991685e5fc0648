"""The real sshd of the conformance kit, for tests; and that it is there where CI is set."""

from __future__ import annotations

import os

from claude_transport.testing.conformance.sshd import Sshd, missing_for_sshd, running_sshd

__all__ = ["Sshd", "running_sshd", "why_no_sshd"]


def why_no_sshd() -> str | None:
    """Why there cannot be one, or None. Where CI is set that is an error and not a reason: `.ci/run` installs it."""
    missing = ", ".join(missing_for_sshd())
    if not missing:
        return None
    if os.environ.get("CI"):
        raise AssertionError(f"{missing} must be there where CI is set: install openssh-server and openssh-client")
    return f"no {missing} on this machine (Debian: openssh-server, openssh-client)"
