"""Who pays for a conversation: what the CLI says of its account, held against the billing policy that its options chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from claude_transport.errors import ConfigurationError
from claude_transport.launch.credentials import Payer
from claude_transport.launch.options import BillingPolicy
from claude_transport.protocol.initialization import AccountInfo

__all__ = ["check_account", "check_payer"]

_MAY_PAY: Final[Mapping[BillingPolicy, tuple[Payer, ...]]] = {
    "subscription": ("subscription", "nobody", "unknown"),
    "subscription_strict": ("subscription", "nobody", "unknown"),
    "api_key": ("api account", "nobody", "unknown"),
}
"""Who may turn out to pay under each policy; whoever there is under `inherit`."""


def check_account(billing: BillingPolicy, account: AccountInfo) -> None:
    """Return when what the CLI says of its account keeps to the policy, else raise `ConfigurationError`.

    The environment alone cannot keep it: settings of the user, the project or the organisation win over it, and a login may be one that
    is paid by the token. The CLI has read them all, and says what it has found with the handshake, before it is asked anything.
    """
    if account.api_provider not in {None, "", "firstParty"}:
        check_payer(billing, "cloud account", account.api_provider)
    if account.token_source == "ANTHROPIC_AUTH_TOKEN":  # noqa: S105 - a name
        check_payer(billing, "token owner", account.token_source)
    if account.api_key_source not in {None, "", "none"}:
        check_payer(billing, "api account", account.api_key_source)


def check_payer(billing: BillingPolicy, payer: Payer, name: str | None) -> None:
    """Return when `payer`, by the credential `name`, may pay under the policy, else raise `ConfigurationError`."""
    if payer not in _MAY_PAY.get(billing, (payer,)):
        raise ConfigurationError(
            f'billing="{billing}" cannot be kept: claude would use {name}, and that is paid by the {payer}. Settings of the user, the '
            "project or the organisation win over the environment: take it out of them, or leave them out with setting_sources",
            option="billing",
        )
