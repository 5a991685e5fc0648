"""The page of what each version of the CLI can do, from the table of features: `python docs/generate_cli_versions.py` writes it.

The page is committed, so that it can be read without building anything; a test holds that it is what the table says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from claude_transport.launch.features import FEATURES, NEWEST_CLI, OBSERVED, OLDEST_CLI, Feature, FeatureKind

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "cli-versions.md"

INTRODUCTION = f"""\
# Versions of claude

<!-- Written by docs/generate_cli_versions.py from claude_transport/launch/features.py: change that, and run it again. -->

This library talks to claude **{OLDEST_CLI} to {NEWEST_CLI}**.

* An older one is refused with `CLIVersionMismatch` (`version` is the CLI's, `flag` is None), before any prompt is sent.
* A newer one is used. The first session with it gives one `ClaudeTransportWarning`.
* A feature that the running version lacks is refused with `CLIVersionMismatch`, whose `flag` is the name in the tables below and whose
  `version` is the CLI's. An option is refused before anything is started, a control request and a prompt before they are sent.
* A CLI has each feature that it lists in `capabilities` (in its answer to `initialize`, or at the start of a turn), whatever its version.
* A feature without a row in the tables exists in every supported version.

## How the version is known

1. Before the start, from a file, without running anything: `claude.version` beside the binary, `_cli_version.py` in the official SDK's
   package, the name of the file (native installer), `package.json` (npm).
2. From `claude_code_version` in the answer to `initialize`, before any prompt. Version 2.1.308 and newer send it.
3. From `claude --version`, when there is no other source: before any prompt, or to explain an unknown option. Each state of the file
   (path, time, size) is asked once.

For a CLI on another machine, your own `command`, and a program behind a network transport, the version is read from the answer to
`initialize`. Without a version there, nothing is refused in advance. The CLI itself refuses flags and control requests that it does not
know, and its refusal becomes a `CLIVersionMismatch`. It may silently ignore a field of `initialize`.

`claude-transport doctor` says whether the version it finds is in the range.

## What was examined

The binaries of these versions were started with each flag and asked each control request:
{", ".join(OBSERVED)}.
*Since* is the first of them that has the feature, or the version that the CLI's own change log names. *Not in* is the last one that was
seen without it. Of the versions between these two, a flag or a control request is tried; anything else counts as missing.
"""

HEADINGS: Mapping[FeatureKind, tuple[str, str]] = {
    "flag": ("Options that become flags", "Flag"),
    "initialize": ("Options that travel in `initialize`", "Field"),
    "request": ("Control requests", "Subtype, or field of one"),
    "hook": ("Hook events", "Event"),
    "denial": ("Hooks that deny", "Denial"),
    "prompt": ("Prompts", "Field"),
    "behaviour": ("What the CLI does by itself", "Behaviour"),
}

BEHAVIOURS = """
Nothing is refused for these, unless the row says so: an older CLI does less, or does it in another way, and the library follows what
it says.
"""


def rows(features: Iterable[Feature], *, head: str) -> str:
    """A table of these features."""
    lines = [f"| {head} | Since | Not in | Needed by |", "| --- | --- | --- | --- |"]
    for feature in features:
        name = feature.name if feature.kind == "behaviour" else f"`{feature.name}`"
        also = f" (or capability `{feature.capability}`)" if feature.capability else ""
        lines.append(f"| {name} | {feature.since}{also} | {feature.lacked_by} | {feature.use.rstrip(',')} |")
    return "\n".join(lines) + "\n"


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for kind, (heading, head) in HEADINGS.items():
        found = [feature for feature in FEATURES if feature.kind == kind]
        if found:
            parts.append(f"## {heading}\n{BEHAVIOURS if kind == 'behaviour' else ''}\n{rows(found, head=head)}")
    return "\n".join(parts)


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
