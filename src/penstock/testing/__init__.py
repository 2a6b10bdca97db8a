"""A scripted provider for tests: scripts, their bytes on every wire, and a loopback server that plays them.

    with Loopback([Reply(say("Let me look."), call("weather", {"city": "Rome"})), Reply("Sunny.")]) as server:
        client = OpenAI(base_url=server.base_url("openai-chat"), api_key="-")

`Loopback` needs aiohttp, and is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.model.recording import read_recordings
from penstock.testing.crash import Crashed, FakeClock, crash_at
from penstock.testing.cuts import Cutting, cuts, cuttings
from penstock.testing.demo import demo
from penstock.testing.faults import Fault, Hang, HTMLPage, Mislabelled, Raw, Redirect, Reset, Status
from penstock.testing.in_process import Scripted
from penstock.testing.replay import Replay
from penstock.testing.reply import Reply, call, drop, fail, item, refuse, say, think, wait
from penstock.testing.request import ReceivedRequest, ReceivedResult
from penstock.testing.script import Script, Step, always, recorded
from penstock.testing.wires.play import frames

if TYPE_CHECKING:
    from penstock.testing.server import Loopback


def __getattr__(name: str) -> Any:
    if name != "Loopback":
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    from penstock.testing.server import Loopback

    globals()[name] = Loopback
    return Loopback


__all__ = [
    "Crashed",
    "Cutting",
    "FakeClock",
    "Fault",
    "HTMLPage",
    "Hang",
    "Loopback",
    "Mislabelled",
    "Raw",
    "ReceivedRequest",
    "ReceivedResult",
    "Redirect",
    "Replay",
    "Reply",
    "Reset",
    "Script",
    "Scripted",
    "Status",
    "Step",
    "always",
    "call",
    "crash_at",
    "cuts",
    "cuttings",
    "demo",
    "drop",
    "fail",
    "frames",
    "item",
    "read_recordings",
    "recorded",
    "refuse",
    "say",
    "think",
    "wait",
]
