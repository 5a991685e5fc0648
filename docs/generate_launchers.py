"""The reference page of the launchers, from the table beside them: `python docs/generate_launchers.py` writes it.

The page is committed, so that it can be read without building anything; a test holds that it is what the table says.
"""

from __future__ import annotations

from pathlib import Path

from claude_transport.launch.launcher import RULES

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "launchers.md"

INTRODUCTION = """\
# Launchers, and what each of them does

<!-- Written by docs/generate_launchers.py from claude_transport/launch/launcher.py: change that, and run it again. -->

`SubprocessTransport(options, launcher=Launcher.ssh("build"))` starts the CLI somewhere else, or inside something.
[Over ssh](../how-to/run-over-ssh.md) and [in containers](../how-to/run-in-containers.md) say how.
"""

REFERENCE = """\
```{eval-rst}
.. classes::

   claude_transport.Launcher
```
"""


def render() -> str:
    """The whole page, as MyST Markdown."""
    lines = [INTRODUCTION, "| launcher | quoting | environment | payloads | how it is ended | exit code |", "|---|---|---|---|---|---|"]
    for name, rule in RULES.items():
        lines.append(f"| `Launcher.{name}` | {rule.quoting} | {rule.environment} | {rule.payloads} | {rule.end} | {rule.exit_code} |")
    return "\n".join([*lines, "", REFERENCE])


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
