"""What would be run for some options: the command line, the environment and the files. Nothing here starts a process.

Options: `ClaudeOptions` is everything that becomes arguments, environment or the `initialize` request. `BillingPolicy`, `PermissionMode`
    and `EnvironmentMode` are the types of three of its fields.
The command: `build_launch` gives a `Launch`: arguments, environment and files. `build_argv` and `build_environment` give one part of it.
    `describe_environment` says for each variable where it comes from.
The machine: `find_cli` finds the `claude` binary as a `CLI`. `on_cli_change` reports a `CLIChange` when the binary is replaced.
    `describe_credentials` gives a `CredentialReport`: which credentials exist, and who pays.
Elsewhere: `Launcher` starts the program over ssh, in a container, or under another command.

This package knows no event loop. `claude_transport.SubprocessTransport` writes the files and starts the process.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "launch.argv": "build_argv",
        "launch.credentials": "CredentialReport describe_credentials",
        "launch.discovery": "CLI CLIChange find_cli on_cli_change",
        "launch.environ": "build_environment describe_environment",
        "launch.launch": "Launch PlannedLaunch build_launch",
        "launch.launcher": "Launcher",
        "launch.options": "BillingPolicy ClaudeOptions EnvironmentMode PermissionMode",
        "launch.rules": "split_rules",
    },
)
