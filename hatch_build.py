"""The parts of the package's metadata that depend on where the repository is: the links of the long description, and the project URLs.

README.md has links to files of the repository. On a package index they need an address. There is one setting for it, `repository` in
pyproject.toml (`[tool.hatch.metadata.hooks.custom]`), and the variable `CLAUDE_TRANSPORT_REPOSITORY` wins over it. Without an address,
such links become plain text, so that none is dead: a checkout can be installed, and `nox -s release_check` refuses what was built.

A reader on an index has no checkout. So the command that installs it has the name of the package, and the one that runs the tests is left
out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "CLAUDE_TRANSPORT_REPOSITORY"
ADDRESS = re.compile(r"https://[\w.-]+(?::\d+)?(?:/[\w.~-]+)+")
IMAGE = re.compile(r"!\[([^\]]*)\]\((?!https://)([^)\s]+)\)")
OF_A_CHECKOUT = "'.[cli]'"
WHERE = "Try it in a checkout,"
CHECKS = re.compile(r"^Check it: [^\n]*\n\n```bash\n[^\n]*\n```\n\n", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https://|#)([^)\s]+)\)")


class ReadmeAndURLs(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the two fields to `metadata`. Raises `ValueError` for an address that is no URL of a repository."""
        repository = os.environ.get(VARIABLE, self.config.get("repository", "")).rstrip("/")
        if repository and not ADDRESS.fullmatch(repository):
            raise ValueError(f"{VARIABLE}: {repository!r} is not like https://host/owner/name")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        text = absolute(for_an_index(text), repository, version=metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(repository)


def for_an_index(text: str) -> str:
    """Return README.md without what needs a checkout. Raises `ValueError` when it has changed, so that nothing would be replaced."""
    if text.count(OF_A_CHECKOUT) != 1 or text.count(WHERE) != 1 or CHECKS.search(text) is None:
        raise ValueError("README.md: the two commands are not where hatch_build.py looks for them")
    return CHECKS.sub("", text).replace(OF_A_CHECKOUT, "'claude-transport[cli]'").replace(WHERE, "Try it")


def absolute(text: str, repository: str, *, version: str) -> str:
    """Return the Markdown with links to this version in the repository; without an address, with their text only and no picture."""
    if not repository:
        return LINK.sub(r"\1", IMAGE.sub("", text))
    text = IMAGE.sub(rf"![\1]({repository}/raw/v{version}/\2)", text)
    return LINK.sub(rf"[\1]({repository}/blob/v{version}/\2)", text)


def urls(repository: str) -> dict[str, str]:
    """Return the links of the project's page."""
    if not repository:
        return {}
    return {
        "Source": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Security": f"{repository}/security/policy",
    }
