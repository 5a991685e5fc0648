"""The reference page of the options for Codex, from the tables that decide about them: `python docs/generate_codex_options.py` writes it.

The page is committed, so that it can be read without building anything; a test holds that it is what the tables say.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from claude_transport.codex.environ import CODEX_RULES
from claude_transport.codex.options import CODEX_OPTIONS, REFUSED_ARGUMENTS, CodexOptions
from claude_transport.launch.options import default_of, fields_of

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "codex-options.md"

INTRODUCTION = """\
# Options of Codex, and what would be run

<!-- Written by docs/generate_codex_options.py from the tables in claude_transport/codex: change those, and run it again. -->

`SubprocessTransport(CodexOptions(...))` starts `codex app-server` with its standard input and output as the two directions. It is
guarded, watched and closed as a `claude` is, also behind a [launcher](launchers.md). Whatever belongs to Claude alone (settings,
hooks, flags to resume) is not sent.

```python
from claude_transport import SubprocessTransport
from claude_transport.codex import CodexOptions, CodexSession

options = CodexOptions(model="gpt-5.5", sandbox="workspace-write", config={"features.plugins": False})
async with CodexSession(SubprocessTransport(options)) as session:
    ...
```

## The options
"""

COMMAND = """\
## The command line

It is `codex app-server`, then `-c name=value` for each setting, then `extra_args`. Each value is written in TOML. Codex 0.169
merges a table with that of `config.toml`, and reads a name up to its first `=` as a dotted path. The command line has fewer than
8,000 characters; put what is longer into `config.toml`.

Every user of a machine can read command lines. So a setting that holds a credential (`experimental_bearer_token`, an
`Authorization` header) is refused: name a variable in `env_key` or `env_http_headers` of the model provider, and set it in `env`.
Redactors know the values of these variables, and the secrets in `config.toml`.

These arguments are refused in `extra_args`:
"""

DISCOVERY = """\
## The program

`find_codex()` takes the first of: the option `codex_path`, the variable `CODEX_CLI_PATH`, `PATH`, well-known places, the package
`@openai/codex` in npm's global directories and in `~/node_modules`. npm's `codex` is a script for Node; the native binary in the
package beside it is run instead, so that no Node is needed and signals reach Codex itself. A `node_modules` in the working
directory is not searched, since anyone may have put it there.

The version is read from the files of the package. Where they do not tell, `codex --version` is run once, for at most five
seconds.
"""

ENVIRONMENT = """\
## The environment

As for Claude: inherited variables that are not removed, then those that options set, then `env`. [The page of
variables](environment.md) has the rest. Give a process without an inherited environment both `HOME` and `codex_home`: without
them, Codex 0.169 takes the home of the user from the system's list of users.
"""

PAYER = """\
## Who pays

`describe_codex_credentials()` and `claude-transport doctor` say it, from `config.toml` and from the kind of login in `auth.json`.
Observed on 0.169.0, by the headers of its requests:

| what decides | who pays |
| --- | --- |
| a model provider with `env_key` | the owner of the key in that variable; no login is used |
| `auth.json` with `auth_mode: apikey`, or with a key and no `auth_mode` | the API account |
| `auth.json` with `auth_mode: chatgpt`, or with tokens alone | the ChatGPT subscription |

`app-server` itself reads no key from its environment. The variables below are removed all the same: `codex exec`, the commands of
a session and other versions read them.
"""

NAMES = """\
## Every name

```{eval-rst}
.. classes::

   claude_transport.codex.CodexOptions

.. autodata:: claude_transport.codex.SandboxMode
.. autodata:: claude_transport.codex.ApprovalPolicy
.. autofunction:: claude_transport.codex.find_codex
.. autofunction:: claude_transport.codex.build_codex_argv
.. autofunction:: claude_transport.codex.build_codex_environment
.. autofunction:: claude_transport.codex.describe_codex_environment
.. autofunction:: claude_transport.codex.describe_codex_credentials
.. autofunction:: claude_transport.codex.check_codex_payer
```
"""

POLICIES = (
    ("inherit", "-", "anything"),
    (
        "subscription",
        "removed",
        "a login with an API key is refused; a model provider with a key of its own is not, and a log line names it",
    ),
    ("subscription_strict", "refused", "a login with an API key, and a model provider with a key or a cloud account, are refused"),
    ("api_key", "kept", "a key is required: in `auth.json`, or in the variable of a model provider"),
)


def cell(text: str) -> str:
    """`text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def render() -> str:
    """The whole page, as MyST Markdown."""
    defaults = {field.name: default_of(field) for field in fields_of(CodexOptions)}
    options = ([f"`{name}`", f"`{defaults[name]!r}`", text] for name, text in CODEX_OPTIONS.items())
    refused = ([f"`{argument}`", why] for argument, why in REFUSED_ARGUMENTS.items())
    variables = ([f"`{row.name}`", f"`{row.option}`", row.doc] for row in CODEX_RULES.variables)
    nesting = ", ".join(f"`{name}`" for name in sorted(CODEX_RULES.nesting))
    paying = ", ".join(f"`{name}`" for name in CODEX_RULES.not_subscription)
    return "\n".join(
        [
            INTRODUCTION,
            table(("Option", "Default", "What it says"), options),
            COMMAND,
            table(("Argument", "Why"), refused),
            DISCOVERY,
            ENVIRONMENT,
            table(("Variable", "Option", "What it does"), variables),
            f"The marks of an enclosing session of Codex are never inherited: {nesting}.\n",
            PAYER,
            table(
                ("`billing`", f"{paying}, when inherited", "What else"),
                ([f"`{policy}`", inherited, else_] for policy, inherited, else_ in POLICIES),
            ),
            NAMES,
        ]
    )


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
