"""Long sessions through a gateway: is each request upstream an exact prefix of the next one?

`python -m tests.gateway.prefix [--steps 100]` plays a session of each client protocol, with the loops of the vendors'
SDKs, streamed and whole: in front of a server that has another bad habit in each step, and in front of servers of other
protocols. It prints a row per session, and fails if an earlier message or tool changes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from msgspec import Struct

from penstock.gateway import GatewaySettings, Watch, app
from penstock.testing import ReceivedRequest, Reply, Scripted, call, think
from tests.asgi_client import serving
from tests.gateway import test_gateway_pairs as pairs
from tests.gateways import upstream
from tests.habits import ALL_HABITS, reply

HABITS = "habits"
SERVERS = {HABITS: "llamacpp", "openai": "openai", "anthropic": "anthropic", "google": "google", "ollama": "ollama"}
"""The provider of each server; the first one has bad habits."""
FIELDS = ("messages", "input", "contents")
"""Where the history of a request is."""
TWO_CALLS = ("one_index", "same_id")
WATCH = Watch(empty_answers=True, reasoning_only=True, repeated_calls=3)


class Session(Struct, frozen=True):
    """A session: how many pairs of requests there were, and which have an earlier message or tool that changed."""

    client: str
    server: str
    is_streamed: bool
    pairs: int
    changed: list[str]

    @property
    def in_words(self) -> str:
        way = "streamed" if self.is_streamed else "whole"
        return f"{self.client:12} {self.server:10} {way:9} {self.pairs - len(self.changed):4} of {self.pairs}"


def play(client: Any, server: str, steps: int, *, is_streamed: bool) -> Session:
    """Play one session."""
    habits = [*ALL_HABITS]

    def answer(request: ReceivedRequest) -> Any:
        step = len(script.requests)
        if step > steps:
            return "Done."
        commands = [f"echo {step} 'é \\ \"日本\"'", f"echo {step} again"]
        if server != HABITS:
            return Reply(think(f"Step {step}."), "I look. ", call("shell", {"command": commands[0]}))
        habit = habits[step % len(habits)]
        calls = [("shell", {"command": command}) for command in commands]
        return reply(habit, calls[: 2 if habit in TWO_CALLS else 1])

    script = Scripted(answer)
    behind = upstream("", provider=SERVERS[server], via=script, key="")

    async def converse() -> None:
        settings = GatewaySettings(upstreams={behind.name: behind}, watch=WATCH)
        async with serving(app(settings=settings)) as browser:
            await client(browser, pairs.MODELS[SERVERS[server]], is_streamed)

    asyncio.run(converse())
    changed = [*_changes([dict(request.body) for request in script.requests])]
    return Session(client.__name__, server, is_streamed, len(script.requests) - 1, changed)


def _changes(bodies: list[dict[str, Any]]) -> Iterator[str]:
    for number, (earlier, later) in enumerate(pairwise(bodies), 1):
        [field] = [name for name in FIELDS if name in earlier]
        if earlier.get("tools") != later.get("tools"):
            yield f"{number}: the tools"
        for place, (one, other) in enumerate(zip(earlier[field], later[field], strict=False)):
            if one != other:
                yield f"{number}: message {place + 1}: {one} -> {other}"
                break
        if len(later[field]) < len(earlier[field]):
            yield f"{number}: {len(earlier[field])} messages, then {len(later[field])}"


def run_command(arguments: Any) -> str:
    """The result of a call: what the command would print."""
    return str(arguments["command"]).removeprefix("echo ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--server", choices=[*SERVERS])
    options = parser.parse_args()
    pairs.run_command = run_command
    total = wrong = 0
    for server in [options.server] if options.server else SERVERS:
        for client in pairs.CLIENTS:
            for is_streamed in (True, False):
                session = play(client, server, options.steps, is_streamed=is_streamed)
                total, wrong = total + session.pairs, wrong + len(session.changed)
                show(session.in_words, *(f"    {change[:300]}" for change in session.changed))
    show(f"{total - wrong} of {total} pairs are exact prefixes")
    return 1 if wrong else 0


def show(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
