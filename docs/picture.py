"""Makes the README's picture from a run of the demo: `make picture`, or `python docs/picture.py [FILE]`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from penstock.cli.commands.demo import WIRE
from penstock.cli.demo.performance import open_demo, show_demo

WIDTH = 86
THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [(72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65),
     (121, 192, 255), (188, 140, 255), (86, 212, 221), (201, 209, 217)],
)  # fmt: skip
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # rich's fonts come from the network


def main(path: Path) -> None:
    """Runs the demo, and draws what the terminal shows at its end."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, color_system="truecolor", width=WIDTH)
    with open_demo(WIRE) as (agent, watch):
        done = show_demo(agent, watch, console)
    if done.reason != "answered":
        sys.exit(f"the run ended without an answer: {done.why}")
    recorder = Console(file=io.StringIO(), record=True, width=WIDTH)
    recorder.print(Text.from_ansi(output.getvalue()), end="")
    svg = _FONT.sub("", recorder.export_svg(title="penstock demo", theme=THEME, unique_id="demo"))
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("demo.svg"))
