"""The command line, `penstock`. It needs click and rich, which the extra `cli` brings; nothing else imports them."""

import io
import os
import sys
from pathlib import Path

__all__ = ["main"]

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended


def main() -> None:
    """Run the command line."""
    try:
        _open_streams()
        from penstock.cli.app import penstock

        penstock(prog_name="penstock")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("click", "rich"):
            raise
        print(
            f"The command line needs {package}, which is not installed: pip install 'penstock-llm[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)


def _open_streams() -> None:
    """See to it that there is something to read and to write, and that every character can be written somehow."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by whoever started us
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
