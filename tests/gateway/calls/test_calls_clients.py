"""Clients of every protocol use tools of models and servers that have none, through a gateway process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from penstock.dialects.prompt import prompts
from tests.budget import sample
from tests.gateway_process import gateway_process
from tests.gateways import web_server
from tests.toolless import ANSWER, SESSIONS, Toolless, calls_in, clients, in_dialect, text_in

DIALECTS = sorted(prompts())
FEW = 2
"""How many sessions of each protocol are tried in a run that is not thorough."""


def settings(address: str) -> str:
    """A gateway.toml in which the name of a model is its dialect."""
    models = "".join(f'[models.{name}]\nto = "local"\ncalls = "{name}"\n' for name in DIALECTS)
    return f'{models}[upstreams.local]\nurl = "{address}/v1"\nprovider = "llamacpp"\n'


@asynccontextmanager
async def gateway_to(server: Toolless) -> AsyncGenerator[str]:
    """The address of a gateway process in front of a server."""
    async with web_server(server.answer) as address:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "gateway.toml"
            file.write_text(settings(address))
            with gateway_process({}, "--config", str(file)) as gateway:
                yield gateway


async def healed(address: str) -> list[Any]:
    async with aiohttp.ClientSession() as client, client.get(f"{address}/healed") as reply:
        requests: list[Any] = (await reply.json())["requests"]
        return requests


def check(protocol: str, is_streaming: bool, dialect: str, steps: Any, bodies: list[Any]) -> str:
    """What is wrong with a session; empty if nothing is."""
    first, last = bodies[-2]["messages"], bodies[-1]["messages"]
    text, calls = steps[0]
    own = text_in(dialect).partition("\n")[0] if text_in(dialect).startswith("I look") else ""
    problems = {
        "calls": sorted(calls) != sorted(calls_in(dialect)),
        "text": text.strip() != own,
        "answer": steps[1:] != [(ANSWER, [])],
        "tools": any("tools" in body for body in bodies),
        "prefix": last[: len(first)] != first,
        "history": len(last) != len(first) + 2,
    }
    wrong = [name for name, is_wrong in problems.items() if is_wrong]
    return f"{protocol} {dialect} streaming={is_streaming}: {', '.join(wrong)}: {steps}" if wrong else ""


def test_every_client_uses_tools_in_every_dialect() -> None:
    async def run() -> list[str]:
        server, problems = Toolless(in_dialect), []
        async with gateway_to(server) as address, clients(address) as sdks:
            for number, (protocol, session) in enumerate(SESSIONS.items()):
                first = [(DIALECTS[place], True) for place in range(number, len(DIALECTS), len(SESSIONS))]
                pairs = [(dialect, way) for dialect in DIALECTS for way in (True, False) if (dialect, way) not in first]
                for dialect, is_streaming in [*first, *sample(pairs, FEW)]:
                    del server.bodies[:]
                    steps = await session(sdks[protocol], dialect, is_streaming=is_streaming)
                    problems.append(check(protocol, is_streaming, dialect, steps, server.bodies))
            for report in await healed(address):
                assert report["calls"] == report["model"]
                assert (report["healed"], report["rescued"], report["dropped"]) == ([], [], []), report
        return [problem for problem in problems if problem]

    assert asyncio.run(run()) == []
