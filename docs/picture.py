"""Makes the picture of the README from a real run of the demo: `make picture`, or `python docs/picture.py [FILE]`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from penstock.cli.commands.demo import WIRE
from penstock.cli.demo.performance import open_demo, show_demo

WIDTH = 86
THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [(72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65),
     (121, 192, 255), (188, 140, 255), (86, 212, 221), (201, 209, 217)],
)  # fmt: skip
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # rich names fonts on the network: a picture needs none


def main(path: Path) -> None:
    """Run the demo, and draw what stands in the terminal at its end."""
    console = Console(file=io.StringIO(), record=True, force_terminal=True, color_system="truecolor", width=WIDTH)
    with open_demo(WIRE) as (agent, watch):
        done = show_demo(agent, watch, console)
    if done.reason != "answered":
        sys.exit(f"the run did not end well: {done.why}")
    drawn = _FONT.sub("", console.export_svg(title="penstock demo", theme=THEME, unique_id="demo"))
    path.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("demo.svg"))
