"""The pages of the site: docs/, with the counts that nearly every commit changes and that are therefore not committed.

`python -m tests.site` writes them to build/docs, from which `make site` builds the site.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests import architecture, quirks

ROOT = Path(__file__).parent.parent
COUNTED = {"architecture.md": architecture.with_sizes, "quirks.md": quirks.with_counts}
"""The pages that get counts: the sizes of packages, and the vectors of quirks."""


def write(folder: Path) -> None:
    """Write the pages, and the pictures that they show, to a folder; what is there already is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name, with_counts in COUNTED.items():
        page = folder / name
        page.write_text(with_counts(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(ROOT / "build" / "docs")
