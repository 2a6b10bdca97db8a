"""Build hooks: the README for the package index, where relative links do not work, and the quirks of the inspector.

The repository's address is the setting `repository` of the metadata hook in pyproject.toml, and nowhere else. While it
is empty, the index gets the README without relative links and pictures; with it, these links are absolute.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)([^)]+)\)\n*")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def index_readme(text: str, repository: str) -> str:
    """The README with absolute links, or without links where the repository's address is not known."""
    if not repository:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    text = PICTURE.sub(lambda match: match[0].replace(match[1], f"{repository}/raw/main/{match[1]}"), text)
    return LINK.sub(rf"[\1]({repository}/blob/main/\2)", text)


class ReadmeHook(MetadataHookInterface):
    """Sets the dynamic fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(text, repository)}
        if repository:
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/main/docs/index.md",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            }


class QuirksHook(BuildHookInterface):
    """Adds docs/quirks.md to the package; an editable install reads it in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            page = Path(self.root) / "docs" / "quirks.md"
            build_data["force_include"][str(page)] = "penstock/inspector/quirks.md"
