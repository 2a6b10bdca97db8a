"""The folders in which programs keep their settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def config_home() -> str:
    """The folder with the settings of programs."""
    return os.environ.get("XDG_CONFIG_HOME") or "~/.config"


def app_folder(name: str) -> str:
    """The folder of a program that follows the habits of the system."""
    match sys.platform:
        case "darwin":
            return f"~/Library/Application Support/{name}"
        case "win32":
            return f"{os.environ.get('APPDATA') or '~/AppData/Roaming'}/{name}"
        case _:
            return f"{config_home()}/{name}"


def first_of(folder: str, *names: str) -> str:
    """The first file that exists; if none does, the last one."""
    paths = [f"{folder}/{name}" for name in names]
    return next((path for path in paths if Path(path).expanduser().exists()), paths[-1])
