"""`CodexOptions`: how to run `codex app-server`, in one frozen Struct. `check_options` refuses what Codex would refuse or misread.

What becomes of each option is in `argv` (the command line) and `environ` (the environment). Names that `ClaudeOptions` has mean the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from claude_transport.launch.environ import CREDENTIAL_HEADERS, check_variables
from claude_transport.launch.options import AgentOptions, BillingPolicy, EnvironmentMode, default_of, fields_of
from claude_transport.launch.rules import refuse
from claude_transport.launch.validation import check_text

StrPath: TypeAlias = str | PathLike[str]
SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
"""What the commands of the model may do with files: `sandbox_mode` of Codex's configuration."""
ApprovalPolicy: TypeAlias = Literal["untrusted", "on-failure", "on-request", "never"]
"""When Codex asks for approval: `approval_policy` of its configuration."""

CODEX_OPTIONS: Final[Mapping[str, str]] = {
    "model": "The model: `model` of the configuration. None leaves it to `config.toml`. Codex warns about a name that it does not know.",
    "cwd": "The working directory of the process, and of threads that name none; `PWD` in its environment follows.",
    "sandbox": "What commands of the model may do with files: `sandbox_mode` of the configuration.",
    "approval_policy": "When Codex asks the host: `untrusted`, `on-request`, `never`, or `{'granular': {...}}`. Version 0.169 still takes "
    "`on-failure`.",
    "config": "Settings over those of `config.toml`, by their names; a name may be a dotted path. Each is given as `-c name=value`. Tables "
    "are merged with those of the file.",
    "codex_path": "Which program to run; None lets `find_codex` look for it.",
    "codex_home": "`CODEX_HOME`: the directory with `config.toml`, the login and the threads. It must exist.",
    "env": "Variables for the process. They win over inherited variables and over those that other options set.",
    "env_mode": "`inherit` everything, only an `allowlist`, or `exact`: only what `env` and the other options set.",
    "env_allow": "Names (`*` and `?` allowed) that `allowlist` passes on, besides those that every program needs.",
    "billing": "Which account may pay: `inherit` (Codex decides), `subscription` (the login of ChatGPT), `subscription_strict` (refuse to "
    "start when anything else could), `api_key` (a key has to pay).",
    "extra_args": "More arguments, after those made here, as Codex takes them: `('--disable', 'plugins')`.",
}
"""What each option becomes, for the reference page."""

_SETTING_OF: Final[Mapping[str, str]] = {"model": "model", "sandbox": "sandbox_mode", "approval_policy": "approval_policy"}
_SECRET_SETTINGS: Final = frozenset({"experimental_bearer_token", "bearer_token", "api-key", *CREDENTIAL_HEADERS})
"""Names of settings whose text is a credential, in lower case."""
_CONFIDENTIAL: Final = frozenset({"config", "env", "extra_args"})
REFUSED_ARGUMENTS: Final[Mapping[str, str]] = {
    "--listen": "the conversation is on standard input and output",
    "--print-startup-config": "Codex prints a text and exits",
    "--help": "Codex prints a text and exits",
    "-h": "Codex prints a text and exits",
    "--version": "Codex prints a text and exits",
    "-V": "Codex prints a text and exits",
}


class CodexOptions(AgentOptions, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Says how to run `codex app-server`: model, sandbox, approvals, settings, program and environment.

    `SubprocessTransport(CodexOptions(...))` starts it. Every option has a default. The object cannot be changed; `replace(**changes)`
    makes a changed copy. A value that Codex would refuse raises `ConfigurationError` when a `SubprocessTransport` is made; what depends
    on files is checked at its `connect()`, before any process runs.

    Args:
        model: the model; None leaves it to `config.toml`.
        cwd: the working directory.
        sandbox: what the commands of the model may do with files: `"read-only"`, `"workspace-write"` or `"danger-full-access"`.
        approval_policy: when Codex asks for approval: `"untrusted"`, `"on-request"`, `"never"`, or a table with `granular`.
        config: settings over those of `config.toml`: `{"features.plugins": False}`. Values are what TOML can hold.
        codex_path: the program; None lets `find_codex` look for it.
        codex_home: the directory with configuration, login and threads, in place of `~/.codex`. It must exist.
        env: variables for the process. They win over all others.
        env_mode: which variables are inherited: all (`"inherit"`), harmless ones (`"allowlist"`), none (`"exact"`).
        env_allow: more names for `"allowlist"`.
        billing: which account may pay.
        extra_args: more arguments for `codex app-server`.
    """

    agent_name: ClassVar[str] = "codex"

    model: str | None = None
    cwd: StrPath | None = None
    sandbox: SandboxMode | None = None
    approval_policy: ApprovalPolicy | Mapping[str, Any] | None = None
    config: Mapping[str, Any] = msgspec.field(default_factory=dict)
    codex_path: StrPath | None = None
    codex_home: StrPath | None = None
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    env_mode: EnvironmentMode = "inherit"
    env_allow: Sequence[str] = ()
    billing: BillingPolicy = "inherit"
    extra_args: Sequence[str] = ()

    @property
    def thread_fields(self) -> dict[str, str]:
        """Options that have to be fields of the requests that open a thread, because the configuration refuses them (Codex 0.169.0)."""
        return {"approvalPolicy": "untrusted"} if self.approval_policy == "untrusted" else {}

    def replace(self, **changes: Any) -> CodexOptions:
        """Return a copy of these options in which `changes` replace the values of the named options. These options stay as they are.

        Raises `TypeError` for a name that is not an option. The new values are checked later, as those of `CodexOptions` are.
        """
        return msgspec.structs.replace(self, **changes)

    def __repr__(self) -> str:
        """Show the options that differ from their defaults. Of `config` and `env` only the names are shown: values may be secrets."""
        shown = []
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if value != default_of(field):
                text = "..." if field.name in _CONFIDENTIAL else repr(value)
                shown.append(f"{field.name}={sorted(map(str, value)) if text == '...' and isinstance(value, Mapping) else text}")
        return f"CodexOptions({', '.join(shown)})"


PLAIN_CODEX: Final = CodexOptions(sandbox="read-only", approval_policy="never")
"""Options for Codex when the caller gives none: its commands can only read, and it asks for no approval."""


def check_options(options: CodexOptions, *, check_files: bool = True) -> None:
    """Check that `options` can be run as they are. Raises `ConfigurationError`, naming the option and the remedy.

    `check_files=False` skips what needs the disk of this machine, for a Codex on another one.
    """
    _check_types(options)
    _check_choices(options)
    _check_config(options)
    _check_arguments(options.extra_args)
    check_variables(options.env)
    for name in ("cwd", "codex_path", "codex_home", "extra_args", "env", "env_allow"):
        check_text(name, getattr(options, name))
    if options.codex_home is not None:
        if not os.fspath(options.codex_home):
            refuse("codex_home", "must name a directory")
        if check_files and not os.path.isdir(options.codex_home):  # noqa: PTH112 - also as text
            refuse("codex_home", f"there is no directory {os.fspath(options.codex_home)!r}, and Codex makes none: make it first")
        if "CODEX_HOME" in options.env:
            refuse("codex_home", "env also sets CODEX_HOME; give only one of the two")


def _check_types(options: CodexOptions) -> None:
    for name in ("cwd", "codex_path", "codex_home"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, (str, os.PathLike)):
            refuse(name, f"must be a path or None, not {type(value).__name__}")
    if options.model is not None and not isinstance(options.model, str):
        refuse("model", f"must be a text or None, not {type(options.model).__name__}")
    if not isinstance(options.config, Mapping):
        refuse("config", f"must be a mapping of settings by name, not {type(options.config).__name__}")
    for name in ("extra_args", "env_allow"):
        value = getattr(options, name)
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            refuse(name, f"must be a sequence of texts, not {type(value).__name__}")
        if not all(isinstance(each, str) and each for each in value):
            refuse(name, "must hold non-empty texts only")


def _check_choices(options: CodexOptions) -> None:
    choices: dict[str, tuple[str, ...]] = {
        "sandbox": get_args(SandboxMode),
        "approval_policy": get_args(ApprovalPolicy),
        "env_mode": get_args(EnvironmentMode),
        "billing": get_args(BillingPolicy),
    }
    for name, known in choices.items():
        value = getattr(options, name)
        if value is None and name in _SETTING_OF:
            continue
        if name == "approval_policy" and isinstance(value, Mapping):
            if set(value) != {"granular"} or not isinstance(value["granular"], Mapping):
                refuse(name, 'a mapping must be {"granular": {...}}')
        elif not isinstance(value, str) or value not in known:
            refuse(name, f"{value!r} must be one of {', '.join(known)}")
    if options.model is not None and (not options.model.strip() or not options.model.isprintable()):
        refuse("model", f"{options.model!r} is no name of a model; leave it None for that of config.toml")


def _check_config(options: CodexOptions) -> None:
    for name, value in options.config.items():
        if not isinstance(name, str) or not all(part.strip() for part in name.split(".")) or "=" in name or not name.isprintable():
            refuse("config", f"{name!r} is no name of a setting: write a name, or names joined by dots")
        for option, setting in _SETTING_OF.items():
            if name == setting and getattr(options, option) is not None:
                refuse("config", f"{name} is also the option {option}; give only one of the two")
        _refuse_secrets(name, value)


def _refuse_secrets(name: str, value: object) -> None:
    """Refuse a credential among the settings: every user of the machine can read a command line."""
    if isinstance(value, Mapping):
        for inner, below in value.items():
            _refuse_secrets(f"{name}.{inner}", below)
    elif isinstance(value, str) and value and name.rpartition(".")[2].lower() in _SECRET_SETTINGS:
        refuse(
            "config", f"{name} would show its secret on the command line: name a variable in env_key or env_http_headers, and set it in env"
        )


def _check_arguments(arguments: Sequence[str]) -> None:
    if arguments and not arguments[0].startswith("-"):
        refuse("extra_args", f"{arguments[0]!r} would be taken for a command of app-server; begin with an option, such as --disable")
    for argument in arguments:
        why = REFUSED_ARGUMENTS.get(argument.partition("=")[0])
        if why is not None:
            refuse("extra_args", f"{argument} cannot be given: {why}")
