"""What would be run: argv, environment, files and the `initialize` fields, from one options Struct. Nothing here spawns anything.

```text
ClaudeOptions ──validation──> argv · environ · payloads · settings ──> Launch ──> (the transport writes the files and spawns)
                                                   discovery · windows · credentials: facts about the machine, as data
```

Floor 1: no event loop, no protocol, only the standard library and msgspec. The modules are imported by name; the package exports nothing.
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
        "launch.launch": "Launch build_launch",
        "launch.launcher": "Launcher",
        "launch.options": "BillingPolicy ClaudeOptions EnvironmentMode PermissionMode",
    },
)
