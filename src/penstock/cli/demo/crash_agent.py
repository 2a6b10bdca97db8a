"""The agent of `penstock demo --crash`: a scripted model, and tools with real side effects in a ledger file.

Its workers are processes of their own (`penstock worker penstock.cli.demo.crash_agent`), so it gets its settings from
the environment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.agent.agent import Agent
from penstock.model.model import Model
from penstock.testing import ReceivedRequest, Reply, Scripted, call, say
from penstock.tools.tool import Context, tool

NAME = "crash-demo"
PROMPT = "Order 1042 arrived broken. Refund it, and tell the customer."
LEDGER = "PENSTOCK_DEMO_LEDGER"
"""The environment variable with the path of the ledger."""
SPEED = "PENSTOCK_DEMO_SPEED"
"""The environment variable that says how many times as fast the demo is."""
BOOKED = "the bank has booked it"
"""The report of `refund` after which its worker is killed."""
_PACE = 0.045  # seconds between two pieces of a response
_SPEED = float(os.environ.get(SPEED, "1"))


class Entry(Struct, frozen=True):
    """A line of the ledger: what a tool did, and the key of its execution."""

    tool: str
    key: str
    text: str


def read_ledger(path: Path) -> list[Entry]:
    """What the tools did."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Entry) for line in lines]


def _book(entry: Entry) -> bool:
    """Adds a line to the ledger; False if the key is in it, as at a bank that honours idempotency keys."""
    path = Path(os.environ[LEDGER])
    if any(line.key == entry.key for line in read_ledger(path)):
        return False
    with path.open("ab") as ledger:
        ledger.write(msgspec.json.encode(entry) + b"\n")
    return True


def _sleep(seconds: float) -> None:
    time.sleep(seconds / _SPEED)


# -- the tools -----------------------------------------------------------------------------------------------------


@tool(read_only=True)
def find_order(order: int) -> str:
    """Look up an order."""
    _sleep(0.6)
    return f"order {order}: a lamp, 59 EUR, paid by card, customer ada@example.com"


@tool(idempotent=True)
def refund(context: Context, order: int, amount: int) -> str:
    """Refund an order."""
    _sleep(0.4)
    is_new = _book(Entry("refund", context.key, f"{amount} EUR for order {order}"))
    context.report(BOOKED if is_new else "the bank knows the key: not booked again")
    _sleep(1.2)
    return f"refunded {amount} EUR for order {order}, receipt 7781"


@tool
def send_mail(context: Context, to: str, text: str) -> str:
    """Send a mail."""
    _sleep(0.5)
    _book(Entry("send_mail", context.key, f"to {to}: {text}"))
    return f"sent to {to}"


# -- the model -----------------------------------------------------------------------------------------------------


def answer(request: ReceivedRequest) -> Reply:
    """The next response, by the number of results: a worker that takes the run over gets the same."""
    match len(request.results):
        case 0:
            return Reply(say("Let me look at the order first."), call("find_order", {"order": 1042}))
        case 1:
            text = "A lamp for 59 EUR. I refund it to the card."
            return Reply(say(text), call("refund", {"order": 1042, "amount": 59}))
        case 2:
            mail = {"to": "ada@example.com", "text": "We are sorry. Your 59 EUR are on their way (receipt 7781)."}
            return Reply(say("The money is on its way. Now the mail."), call("send_mail", mail))
        case _:
            return Reply(say("Done: 59 EUR were refunded for order 1042 (receipt 7781), and Ada has a mail about it."))


agent: Agent = Agent(
    Model("openai-compatible:demo", "http://demo.invalid", "-", via=Scripted(answer, pace=_PACE / _SPEED)),
    tools=[find_order, refund, send_mail],
    instructions="You work for a shop.",
    name=NAME,
)
