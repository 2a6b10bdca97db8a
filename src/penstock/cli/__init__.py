"""The command line, `penstock`. It needs click and rich, which the extra `cli` brings; nothing else imports them."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from penstock.cli.app import penstock

        penstock(prog_name="penstock")
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("click", "rich"):
            raise
        print(
            f"The command line needs {package}, which is not installed: pip install 'penstock[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
