"""The reference page of environment variables, from the tables that decide about them: `python docs/generate_environment.py` writes it.

The page is committed, so that it can be read without building anything; a test holds that it is what the tables say, and that no variable
of this library's own is missing from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from claude_transport.app.failures import TRACEBACK
from claude_transport.app.worker import BROKER_VARIABLE, STORE_VARIABLE
from claude_transport.bridge.configuration import SERVER_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE
from claude_transport.codex.discovery import PATH_VARIABLE as CODEX_PATH_VARIABLE
from claude_transport.codex.environ import CODEX_RULES
from claude_transport.completion.resolution import AGENT_VARIABLE, API_VARIABLES, TRANSPORT_VARIABLE
from claude_transport.launch.discovery import PATH_VARIABLE
from claude_transport.launch.environ import (
    ALWAYS_ALLOWED,
    CLOUD_SWITCHES,
    CREDENTIAL_HEADERS,
    CUSTOM_HEADERS,
    NESTING,
    POLICIES,
    VARIABLES,
    forbidden_variables,
)
from claude_transport.launch.options import BillingPolicy
from claude_transport.launch.supervisor import REMOTE_MARK
from claude_transport.streams.guard import MARK_VARIABLE, SPARED_VARIABLE
from claude_transport.testing.stand_in import VARIABLE as TAPES_VARIABLE
from claude_transport.testing.stand_in.tee import PARENT

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "environment.md"

INTRODUCTION = """\
# Environment variables

<!-- Written by docs/generate_environment.py from the tables in claude_transport/launch/environ.py and its neighbours: change those, and
run it again. -->

This page lists the variables that this library reads, the ones that a `claude` process receives, and the ones that are removed for it.
The environment of this process is never changed, except that `serve --token-env NAME` removes `NAME` from its own. Each child gets a new
environment. `describe_environment(options, inherited)` says where each variable comes from, or why it was removed, and never shows a value.

The [page of options](options.md) has the types and defaults of the options that are named here.
"""

CHILD = """\
## What a child gets

From weakest to strongest: inherited variables that are not removed, variables that options imply, and the option `env`.
"""

REMOVED = f"""\
## What is removed for a child

### The marks of an enclosing session

A program that itself runs under Claude starts a session of its own, not a nested one. So these are never inherited; `env` can set them:

{{nesting}}

### Credentials of another account

The option `billing` decides which are removed; see [bill the subscription](../how-to/bill-the-subscription.md). `{CUSTOM_HEADERS}` is
removed when it contains one of {{headers}}.
"""

ALLOWED = """\
### Variables that are not on the list

With `env_mode="allowlist"`, only these are inherited, and the ones that `env_allow` names. With `env_mode="exact"`, none is inherited.

{names}
"""

API = """\
## What the API path uses

A call through the API starts no process. It reads the environment that its options would give to a process, by the same rules:
{names}, `ANTHROPIC_BASE_URL`, `ANTHROPIC_MODEL`, `{headers}`. [Which path a call takes](transport-choice.md) says which credential wins.
"""

CODEX = """\
## Codex

A process of Codex gets its environment by the same rules, with other names. Set: {own}, and those that the library sets itself.
Never inherited: {nesting}. Removed by `billing="subscription"`, refused by `"subscription_strict"`: {paying}.
[The page of its options](codex-options.md) says who pays.
"""

READ = (
    (PATH_VARIABLE, "`find_cli()`", "The `claude` to run, unless `cli_path` names one. A path that does not work is an error."),
    (CODEX_PATH_VARIABLE, "`find_codex()`", "The `codex` to run, unless `codex_path` names one. A path that does not work is an error."),
    ("CODEX_HOME", "`describe_codex_credentials()`, the program", "Where the configuration and the login of Codex are."),
    (TRANSPORT_VARIABLE, "`complete()`, `stream()`, the program", "`cli`, `api` or `auto`: the path of a call for which none was chosen."),
    (
        AGENT_VARIABLE,
        "`complete()`, `stream()`, `preflight()`, the program",
        "`claude-code`, `codex` or `auto`: the agent of a call for which none was chosen.",
    ),
    ("PATH", "`find_cli()`, `find_codex()`, a `launcher`", "Where programs are looked for. Only absolute entries count for the first two."),
    (
        "HOME, USERPROFILE",
        "`find_cli()`, `find_codex()`, `preflight()`, the program",
        "Where installed programs, the login and the settings are, if nothing else says.",
    ),
    (
        "NPM_CONFIG_PREFIX, LOCALAPPDATA, APPDATA",
        "`find_cli()`, `find_codex()`",
        "More places of installed programs; the last two on Windows.",
    ),
    ("CLAUDE_CONFIG_DIR", "`preflight()`, the program, a connection that is tried again", "Where login, settings and sessions are."),
    (
        ", ".join((*API_VARIABLES, "CLAUDE_CODE_OAUTH_TOKEN")),
        "`preflight()`, the program",
        "Which credential would win and who would pay. Their values are read by the API path alone.",
    ),
    (
        "IS_SANDBOX, CLAUDE_CODE_BUBBLEWRAP",
        "`connect()`, for root that bypasses permissions",
        "In the environment that the child would get: without one of them the session is refused, as the CLI would do.",
    ),
    (
        "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
        "`connect()`, with the option `files`",
        "Whether the child would get it: without it the CLI downloads nothing, and the option is refused.",
    ),
    ("NO_COLOR, TERM, COLUMNS", "the program", "Colours (none when `NO_COLOR` is not empty, or `TERM` is `dumb`) and the width of lines."),
    (TRACEBACK, "the program", "`1`: an error is shown with its traceback."),
    (
        TAPES_VARIABLE,
        "`claude_tape`, `record --as-claude`",
        "`record`, `replay`, `auto` or `none`: whether conversations are recorded, or played from their tapes.",
    ),
    (BROKER_VARIABLE, "`worker`, `sessions`", "The URL of the broker, with its password, where `--broker` is not given."),
    (STORE_VARIABLE, "`worker`", "The place of the session store, with its password, where `--session-store` is not given."),
    (URL_VARIABLE, "`mcp-bridge`", "Where the host of the tools listens."),
    (TOKEN_VARIABLE, "`mcp-bridge`", "What it presents there."),
    (SERVER_VARIABLE, "`mcp-bridge`", "Which of the host's servers it stands for."),
)
MARKS = (
    (
        MARK_VARIABLE,
        "always, for a child on this machine",
        "Random; by it everything the child has started is found again when it is closed.",
    ),
    (
        SPARED_VARIABLE,
        "never",
        "It is removed. A process with it ends others, such as the guard of a host, and is not ended for a number that it inherited.",
    ),
    (PARENT, "under `record --as-claude` and `claude_tape.cli_path()`", "The recorder that has started it, which must not start itself."),
    (REMOTE_MARK, "at the other end of a launcher", "The same there, in its place."),
    ("TRACEPARENT, TRACESTATE", "under `TracingTransport`", "The span that the session belongs to, in place of what is inherited."),
    ("PWD", "with the option `cwd`", "The working directory, links unresolved."),
    ("CLAUDE_CONFIG_DIR", "with the option `isolated_config`", "A private directory that is removed with the session."),
)
BILLING: tuple[BillingPolicy, ...] = ("inherit", "subscription", "subscription_strict", "api_key")


def cell(text: str) -> str:
    """`text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def removed_for(billing: BillingPolicy) -> str:
    names = listed(name for name in forbidden_variables(billing) if name not in CLOUD_SWITCHES)
    return f"{names}, and the switches of a cloud" if names else "nothing"


def what_follows(billing: BillingPolicy) -> str:
    """What happens when a variable that this policy forbids is inherited."""
    if billing == "inherit":
        return "-"
    return "the session is refused" if billing == "subscription_strict" else "it is removed"


def render() -> str:
    """The whole page, as MyST Markdown."""
    options = ([f"`{row.name}`", f"`{row.option}`", f"{row.doc} {row.note}".strip()] for row in VARIABLES)
    policies = ([f"`{name}`", text] for name, text in POLICIES.items())
    billing = ([f"`{policy}`", removed_for(policy), what_follows(policy)] for policy in BILLING)
    return "\n".join(
        [
            INTRODUCTION,
            "## What is read here\n",
            table(("Variable", "Read by", "What it says"), ([listed(name.split(", ")), *rest] for name, *rest in READ)),
            API.format(names=listed(API_VARIABLES), headers=CUSTOM_HEADERS),
            CHILD,
            table(("Variable", "Option", "What it does"), options),
            "These are set by the library itself:\n",
            table(("Variable", "When", "What for"), ([listed(name.split(", ")), *rest] for name, *rest in MARKS)),
            "These options decide about the environment as a whole:\n",
            table(("Option", "What it decides"), policies),
            REMOVED.format(nesting=listed(sorted(NESTING)), headers=listed(CREDENTIAL_HEADERS)),
            table(("`billing`", "What may not be there", "When it is inherited"), billing),
            f"The switches of a cloud are {listed(CLOUD_SWITCHES)}. One that stands in `env` is always refused.\n",
            ALLOWED.format(names=listed(ALWAYS_ALLOWED)),
            CODEX.format(
                paying=listed(CODEX_RULES.not_subscription),
                nesting=listed(sorted(CODEX_RULES.nesting)),
                own=", ".join(f"`{row.name}` (option `{row.option}`)" for row in CODEX_RULES.variables),
            ),
        ]
    )


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
