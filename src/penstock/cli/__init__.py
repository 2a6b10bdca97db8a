"""The command line, `penstock`. It needs click and rich (the extra `cli`); nothing else imports them."""

import atexit
import gc
import io
import os
import sys
from pathlib import Path

from penstock.cli.exit_codes import INTERRUPTED, USAGE

__all__ = ["main"]

IS_WINDOWS: bool = os.name == "nt"


def main() -> None:
    """Runs the command line."""
    atexit.register(gc.freeze)  # the interpreter would search everything for garbage, for about half a second
    try:
        _open_streams()
        from penstock.cli.app import penstock

        penstock(prog_name="penstock")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("click", "rich", "ruamel", "tomlkit"):
            raise
        print(
            f"The command line needs {package}, which is not installed: pip install 'penstock-llm[cli]'",
            file=sys.stderr,
        )
        sys.exit(USAGE)


def _open_streams() -> None:
    """Opens closed standard streams, and makes all of them replace characters that cannot be encoded or decoded.

    Pipes and files are UTF-8 on Windows too, where Python uses the code page, unless PYTHONIOENCODING is set.
    """
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by the parent process
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            is_code_page = IS_WINDOWS and not stream.isatty() and "PYTHONIOENCODING" not in os.environ
            stream.reconfigure(encoding="utf-8" if is_code_page else None, errors=errors)
