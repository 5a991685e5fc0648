"""Builds the environment of Codex: everything inherited, minus what a billing policy forbids, plus what the options set.

`CODEX_RULES` is what differs from `claude`. `app-server` 0.169.0 reads none of the three variables that a policy removes: its key is in the
login, or in the variable that a model provider names. `codex exec`, other versions and the tools of a session read them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from claude_transport.codex.options import CodexOptions
from claude_transport.launch.environ import EnvironmentRules, Variable, plan_environment

NOT_SUBSCRIPTION: Final = ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")

NESTING: Final = frozenset(
    {
        "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS",
        "CODEX_CI",
        "CODEX_MANAGED_BY_BUN",
        "CODEX_MANAGED_BY_NPM",
        "CODEX_MANAGED_BY_PNPM",
        "CODEX_MANAGED_PACKAGE_ROOT",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_TOOL_CALL_ID",
        "CODEX_VERSION",
    }
)
"""Variables that Codex, or npm's script, sets for the commands of a session. They are never inherited."""

CODEX_RULES: Final = EnvironmentRules(
    variables=(Variable("codex_home", "CODEX_HOME", "Where Codex keeps its configuration, login and threads.", os.fspath),),
    not_subscription=NOT_SUBSCRIPTION,
    not_api_key=(),
    key=None,
    custom_headers=None,
    nesting=NESTING,
)


def build_codex_environment(options: CodexOptions, inherited: Mapping[str, str], *, platform: str = sys.platform) -> dict[str, str]:
    """Return the complete environment for a process of Codex, as a new dict.

    It has the variables of `inherited` (usually `os.environ`), over them what the options imply, and over both the option `env`. Marks of
    an enclosing session of Codex are left out, and so is what the options `billing`, `env_mode` and `env_allow` exclude.

    Raises `ConfigurationError` when `env` sets a variable that the billing policy forbids, or one is inherited (`subscription_strict`).
    """
    return plan_environment(options, inherited, rules=CODEX_RULES, platform=platform)[0]


def describe_codex_environment(options: CodexOptions, inherited: Mapping[str, str], *, platform: str = sys.platform) -> dict[str, str]:
    """Return, for each variable name, why Codex would have that variable or not: a dict sorted by name, without any values.

    The text is `inherited`, `options.env`, `option NAME` (another option sets it), or `removed: WHY`. The arguments and the errors are
    those of `build_codex_environment`.
    """
    return dict(sorted(plan_environment(options, inherited, rules=CODEX_RULES, platform=platform)[1].items()))
