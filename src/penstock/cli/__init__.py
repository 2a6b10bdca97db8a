"""The command line, `penstock`. It needs click and rich (the extra `cli`); nothing else imports them."""

import io
import os
import sys
from pathlib import Path

from penstock.cli.exit_codes import INTERRUPTED, USAGE

__all__ = ["main"]


def main() -> None:
    """Runs the command line."""
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
        sys.exit(USAGE)


def _open_streams() -> None:
    """Opens standard streams that are closed, and has characters that they cannot encode written escaped."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by the parent process
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
