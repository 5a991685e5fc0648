"""`session_terms`: what options ask of the layer that speaks through a transport, for every transport that is made from options."""

from __future__ import annotations

from typing import Any

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import Delivery, build_payloads, initialize_fields
from claude_transport.launch.permissions import permission_settings
from claude_transport.launch.validation import UUID
from claude_transport.transport import PermissionSetting, SessionTerms

__all__ = ["session_terms"]


def session_terms(options: ClaudeOptions, *, delivery: Delivery = "files") -> SessionTerms:
    """Say what `options` ask of a `Query`: what a transport of your own returns from `announce()`.

    `build_launch` says what is to be run, and this what is to be said: give both the same `delivery`. With these terms a `Query` sends
    the fields of `initialize` that the options need, refuses what would keep `can_use_tool` from being called, and holds the CLI to
    `billing`. Options that are wrong are not refused here; `build_launch` says what is wrong with them.
    """
    return SessionTerms(
        initialize=_initialize(options, delivery),
        verbatim_prompts=options.verbatim_prompts,
        permissions=_permissions(options),
        session_id=_named_session(options),
        forks_session=options.fork_session and options.session_id is None,
        structured_output=options.output_format is not None,
        billing=options.billing,
    )


def _permissions(options: ClaudeOptions) -> tuple[PermissionSetting, ...]:
    """What the options say about permissions; nothing when they cannot be understood."""
    try:
        return tuple(PermissionSetting(*row) for row in permission_settings(options))
    except (ConfigurationError, AttributeError, TypeError):
        return ()


def _initialize(options: ClaudeOptions, delivery: Delivery) -> dict[str, Any]:
    """The fields of `initialize`: without files, everything that would be in one is among them."""
    try:
        if delivery == "files":
            return initialize_fields(options)
        return build_payloads(options, delivery=delivery, permissions={}).initialize
    except (ConfigurationError, AttributeError, TypeError):
        return {}


def _named_session(options: ClaudeOptions) -> str | None:
    """The id of the session that these options speak of; None when they name none, or one by its title."""
    if options.session_id is not None:
        return options.session_id
    return options.resume if options.resume is not None and UUID.fullmatch(options.resume) else None
