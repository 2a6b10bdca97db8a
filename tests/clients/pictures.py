"""Makes the pictures of the pages from real runs: `make screenshots`.

`docs/chat-page.png` is a served agent after an answer, `docs/inspector.png` a request to a gateway in front of a server
that writes its calls into the text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.testing import Loopback, Reply, say
from tests.clients.conftest import FOLDER, ROOT, node_output
from tests.gateway_process import gateway_process
from tests.gateways import SHELL

IN_TEXT = 'Let me look.\n<tool_call>\n{"name": "shell", "arguments": {"command": "echo 42"}}\n</tool_call>'
PROMPT = "What is the weather in Rome and in Oslo?"
AGENT = '''
import time

import penstock


@penstock.tool(read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    time.sleep(0.4)
    return f"sunny in {city}"


agent = penstock.Agent("sim:demo", tools=[weather], name="assistant")
'''


@contextmanager
def served_agent(folder: Path) -> Generator[str]:
    """The address of the page of a served agent."""
    (folder / "agent.py").write_text(AGENT, encoding="utf-8")
    command = [sys.executable, "-m", "penstock.cli", "serve", "agent.py", "--port", "0", "--log", "runs.db"]
    with (
        (folder / "log.txt").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            yield address_in(folder / "log.txt")
        finally:
            process.terminate()
            process.wait(30)


def address_in(log: Path) -> str:
    """The address that a server prints."""
    for _ in range(600):
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(encoding="utf-8")):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8"))


def ask(gateway: str) -> str:
    """Ask a gateway for a call; returns the id of the request."""
    body = {
        "model": "qwen3", "messages": [{"role": "user", "content": "Say what echo prints."}], "stream": True,
        "tools": [{"type": "function", "function": SHELL}],
    }  # fmt: skip
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{gateway}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()
        return str(response.headers["x-request-id"])


def main() -> None:
    docs = ROOT / "docs"
    with (
        TemporaryDirectory() as folder,
        served_agent(Path(folder)) as chat,
        Loopback(lambda request: Reply(say(IN_TEXT)), pace=0.04) as server,
        gateway_process({"local": server.base_url("openai-chat")}) as gateway,
    ):
        ask(gateway)  # the first request loads modules
        page = f"{gateway}/inspect#{ask(gateway)}"
        pictures = [str(docs / "chat-page.png"), page, str(docs / "inspector.png")]
        node_output("pictures.mjs", str(FOLDER / "chromium"), chat, PROMPT, *pictures)


if __name__ == "__main__":
    main()
