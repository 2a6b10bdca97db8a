"""Makes the pictures of the demos from their runs: `make picture`, or `python docs/picture.py [demo|crash]`."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from penstock.cli.commands.demo import WIRE
from penstock.cli.demo.crash import show_crash
from penstock.cli.demo.performance import open_demo, show_demo

WIDTH = 86
THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [(72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65),
     (121, 192, 255), (188, 140, 255), (86, 212, 221), (201, 209, 217)],
)  # fmt: skip
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # rich's fonts come from the network


def show_early_start(console: Console) -> bool:
    """Runs the demo; returns whether it ended well."""
    with open_demo(WIRE) as (agent, watch):
        return show_demo(agent, watch, console).reason == "answered"


DEMOS: dict[str, tuple[str, Callable[[Console], bool]]] = {
    "demo": ("penstock demo", show_early_start),
    "crash": ("penstock demo --crash", lambda console: show_crash(1.0, console)),
}
"""The title of each picture, and what it shows."""


def draw(name: str) -> None:
    """Draws what the terminal shows at the end of a demo."""
    title, show = DEMOS[name]
    output = io.StringIO()
    if not show(Console(file=output, force_terminal=True, color_system="truecolor", width=WIDTH)):
        sys.exit(f"the run of {title} did not end well")
    recorder = Console(file=io.StringIO(), record=True, width=WIDTH)
    recorder.print(Text.from_ansi(output.getvalue()), end="")
    svg = _FONT.sub("", recorder.export_svg(title=title, theme=THEME, unique_id=name))
    text = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    Path(__file__).with_name(f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for picture in sys.argv[1:] or DEMOS:
        draw(picture)
