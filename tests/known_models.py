"""The names of models that editors complete: `python -m tests.known_models` writes the type from the table."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.model.known_models import MODELS

TARGET = Path(__file__).parent.parent / "src" / "penstock" / "model" / "known_models.py"
SIMULATED = ("sim:demo", "sim:fast")
LIST = re.compile(r"(?<=KnownModel = Literal\[\n).*?(?=^\])", re.DOTALL | re.MULTILINE)
WIDTH = 120


def written(text: str) -> str:
    """The module with the names that the registry has now."""
    names = [*SIMULATED, *(f"{provider}:{name}" for provider, models in MODELS.items() for name in models)]
    lines, line = [], "   "
    for name in names:
        entry = f' "{name}",'
        if len(line) + len(entry) > WIDTH:
            lines.append(line)
            line = "   "
        line += entry
    return LIST.sub(lambda _: "\n".join([*lines, line]) + "\n", text)


if __name__ == "__main__":
    TARGET.write_text(written(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
