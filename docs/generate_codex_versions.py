"""The page of what each version of Codex can do, from the table of features: `python docs/generate_codex_versions.py` writes it.

The page is committed, so that it can be read without building anything; a test holds that it is what the table says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from claude_transport.codex.features import CODEX_FEATURES, CODEX_RANGE, OBSERVED, CodexFeatureKind

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "codex-versions.md"

INTRODUCTION = f"""\
# Versions of Codex

<!-- Written by docs/generate_codex_versions.py from claude_transport/codex/features.py: change that, and run it again. -->

This library talks to Codex **{CODEX_RANGE.oldest} to {CODEX_RANGE.newest}**.

* An older one is refused with `CLIVersionMismatch` (`version` is that of Codex, `flag` is None), before any prompt is sent. No older
  version was examined, so it is not known whether it asks for approval and obeys the answer.
* A newer one is used. The first session with it gives one `ClaudeTransportWarning`.
* A method that the running version lacks is refused with `CLIVersionMismatch`, whose `flag` is the name in the table below. It is refused
  before it is sent.
* A feature without a row in the tables exists in every supported version. All examined versions ask for approval, and obey the answer.

## How the version is known

1. Before the start, from npm's `package.json` beside the binary, without running anything.
2. From `userAgent` in the answer to `initialize`, before any prompt. This is also how it is known behind a network transport.

Without a version there, nothing is refused in advance. Codex itself refuses methods that it does not know, with a `JSONRPCError`.

`claude-transport doctor` says whether the version it finds is in the range.

## What was examined

The binaries of these versions were asked for their methods, and all end-to-end tests of Codex were run on them:
{", ".join(OBSERVED)}.
*Since* is the first of them that has the feature. *Not in* is the last one that was seen without it. Between these two, a method is tried,
and anything else counts as missing.
"""

HEADINGS: Mapping[CodexFeatureKind, tuple[str, str]] = {
    "method": ("Methods of app-server", ""),
    "field": ("Fields of messages", "\nThe library does without them where they are missing.\n"),
    "behaviour": ("What Codex does by itself", "\nNothing is refused for these: an older Codex does less, or does it in another way.\n"),
}


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for kind, (heading, text) in HEADINGS.items():
        lines = [f"| {kind.capitalize()} | Since | Not in | Needed by |", "| --- | --- | --- | --- |"]
        for feature in CODEX_FEATURES:
            if feature.kind == kind:
                name = feature.name if kind == "behaviour" else f"`{feature.name}`"
                lines.append(f"| {name} | {feature.since} | {feature.lacked_by} | {feature.use} |")
        parts.append(f"## {heading}\n{text}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
