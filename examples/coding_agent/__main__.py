"""A coding agent in the terminal.

    python -m examples.coding_agent                                 # a demo with a scripted model: needs no key
    python -m examples.coding_agent -m anthropic:claude-sonnet-5    # works in the current folder

Type while it works to steer it. Ctrl-C cancels what it does; Ctrl-C or Ctrl-D at the prompt ends the program.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import penstock.log

from .agent import coding_agent
from .conversation import Conversation
from .demo import PROMPT, create_project, demo_model
from .screen import Screen
from .workspace import Workspace

STATE = Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser() / "coding_agent"


class Keyboard:
    """The lines that the person types, as an async iterator. A thread reads them, so the event loop never waits."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        threading.Thread(target=self._read, daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while not self._is_closed and (line := await self._lines.get()) is not None:
            yield line
        self._is_closed = True

    def close(self) -> None:
        """End the lines: whoever waits for one gets none."""
        self._lines.put_nowait(None)

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip():
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line.strip())
        self._loop.call_soon_threadsafe(self.close)


async def talk(conversation: Conversation, screen: Screen, prompt: str, first_prompt: str) -> None:
    """Read prompts and answer them, until the person ends the program; the first one only in a new conversation."""
    keyboard, loop = Keyboard(), asyncio.get_running_loop()

    def interrupt() -> None:
        if not conversation.cancel():
            keyboard.close()

    signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(interrupt))
    if await conversation.restore(aiter(keyboard)):
        screen.line("(this is the conversation so far; start in another folder for a new one)", "dim")
    else:
        prompt = prompt or first_prompt
    if prompt:
        screen.line(f"› {prompt}", "bold")
        await conversation.say(prompt, aiter(keyboard))
    screen.prompt("› ", "bold")
    async for line in aiter(keyboard):
        await conversation.say(line, aiter(keyboard))
        screen.prompt("› ", "bold")
    screen.line("")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="coding_agent", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="the folder to work in; for the demo, a new one")
    parser.add_argument("-m", "--model", help="such as anthropic:claude-sonnet-5; without it, a demo runs")
    parser.add_argument("-p", "--prompt", default="", help="what to do first")
    parser.add_argument("--log", type=Path, help="the file of the log, in which runs survive the program")
    parser.add_argument("--allow", action="append", default=[], metavar="COMMAND", help="run it without approval")
    options = parser.parse_args()
    folder: Path = options.folder or (Path() if options.model else Path(tempfile.mkdtemp(), "project"))
    if not options.model:
        create_project(folder)
    log: Path = options.log or STATE / "runs.db"
    log.parent.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(folder)
    try:
        agent = coding_agent(options.model or demo_model(), workspace, options.allow)
    except penstock.UsageError as error:  # an unknown model, or no key
        parser.error(str(error))
    screen, store = Screen(workspace), penstock.log.open(log, lease=5)
    screen.line(f"{options.model or 'demo'} in {workspace.root}", "dim")
    conversation = Conversation(agent, store, str(workspace.root), screen)
    try:
        asyncio.run(talk(conversation, screen, options.prompt, "" if options.model else PROMPT))
    finally:
        store.close()


if __name__ == "__main__":
    main()
