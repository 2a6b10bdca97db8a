"""The exit codes of the commands."""

from __future__ import annotations

UNSUCCESSFUL = 1
"""The response was cut or failed, the run ended without an answer, or a file could not be written."""
USAGE = 2
"""The command, a name or a file was wrong."""
PROVIDER_FAILED = 3
"""The provider could not be reached, or refused."""
WAITING = 4
"""A call of the run waits for a person."""
INTERRUPTED = 130
"""Ctrl-C, as shells report it."""
READER_GONE = 141
"""The reader of the output went away (`| head`), as shells report it."""
