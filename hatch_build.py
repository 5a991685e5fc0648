"""The parts of the package's metadata that depend on where the repository is: the links of the long description, and the project URLs.

README.md has links to files of the repository. On a package index they need an address. There is one setting for it, `repository` in
pyproject.toml (`[tool.hatch.metadata.hooks.custom]`), and the variable `CLAUDE_TRANSPORT_REPOSITORY` wins over it. Without an address,
such links become plain text, so that none is dead.
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
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https://|#)([^)\s]+)\)")


class ReadmeAndURLs(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the two fields to `metadata`. Raises `ValueError` for an address that is no URL of a repository."""
        repository = os.environ.get(VARIABLE, self.config.get("repository", "")).rstrip("/")
        if repository and not ADDRESS.fullmatch(repository):
            raise ValueError(f"{VARIABLE}: {repository!r} is not like https://host/owner/name")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, version=metadata["version"])}
        metadata["urls"] = urls(repository)


def absolute(text: str, repository: str, *, version: str) -> str:
    """Return the Markdown with links to this version in the repository; without an address, with their text only."""
    if not repository:
        return LINK.sub(r"\1", IMAGE.sub(r"\1", text))
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
