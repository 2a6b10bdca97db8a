"""Agents for the page in the box, on a real server: what they do depends on the first word of the message.

It prints its port. A second argument is the token that it asks for.
"""

from __future__ import annotations

import asyncio
import difflib
import sys
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel

import penstock.mcp
from penstock import Agent, Context, Model, Prepared, Prices, Retries, tool
from penstock.testing import ReceivedRequest, Reply, Scripted, call, drop, fail, think, wait
from tests.clients.gated_server import broken, hold, locate, serve, steps_done

HTML = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script> **bold** &amp;"
SHOP = MCPServer("shop")


class Seat(BaseModel):
    number: int
    window: bool = False


async def which_seat() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


@SHOP.tool()
async def book(answer: Annotated[ElicitationResult[Seat], Resolve(which_seat)]) -> str:
    """Book a seat."""
    return f"booked {answer.data}" if isinstance(answer, AcceptedElicitation) else "not booked"


@tool(read_only=True)
async def weather(context: Context[Any], city: str, units: str = "metric") -> dict[str, Any]:
    """The weather in a city."""
    for percent in (25, 75):
        context.report({"percent": percent})
        await asyncio.sleep(0.05)
    return {"city": city, "sky": "clear", "temperature": 21, "wind": "light, from the south-west", "units": units}


@tool(approval=True)
def refund(order: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order}"


def difference(path: str, old: str, new: str) -> Prepared:
    before = f"def total(prices, discount):\n    {old}\n"
    lines = difflib.unified_diff(before.splitlines(), before.replace(old, new).splitlines(), path, path, lineterm="")
    return Prepared(preview="\n".join(lines))


@tool(approval=True, prepare=difference)
def edit(path: str, old: str, new: str) -> str:
    """Edit a file."""
    return f"{path} changed"


WEATHER = (
    Reply(
        think("The user asks about two cities. I should look up both, at the same time."),
        "I will look up both cities.\n\n",
        call("weather", {"city": "Rome", "units": "metric"}),
        wait(0.25),
        call("weather", {"city": "Oslo", "units": "metric"}),
        wait(0.25),
    ),
    Reply("Rome and Oslo are both clear, at 21 °C.\n\nThe wind is light and comes from the south-west."),
)
TRIED: set[str] = set()


def answer(request: ReceivedRequest) -> Any:
    done, prompt = steps_done(request), request.prompt
    name = prompt.partition(" ")[2]
    match prompt.partition(" ")[0]:
        case "weather":
            return WEATHER[done]
        case "refund":
            arguments = {"order": "A-1042", "amount": 25.5}
            return Reply("I will refund it.", call("refund", arguments)) if not done else "The refund was handled."
        case "edit":
            arguments = {"path": "basket.py", "old": "return sum(prices) - discount", "new": "return sum(prices)"}
            return Reply(call("edit", arguments)) if not done else "The file was handled."
        case "locate":
            return Reply(call("locate", {"accuracy": "high"})) if not done else "Thank you."
        case "book":
            return Reply(call("book", {})) if not done else "Your seat is booked."
        case "hold":
            return Reply("One moment. ", call("hold", {"name": name})) if not done else "The gate is open."
        case "broken":
            return Reply(call("broken", {})) if not done else "That did not work."
        case "research":
            return Reply(call("research", {"prompt": "the sky"})) if not done else "The research is done."
        case "retry" if prompt not in TRIED:
            TRIED.add(prompt)
            return Reply("This is lost. ", drop())
        case "retry":
            return "This counts."
        case "fail":
            return Reply("Almost", fail("server_error", "the secret words of the provider"))
        case "html":
            return Reply(call("weather", {"city": HTML}), HTML) if not done else HTML
        case "long":
            return Reply(*(f"Line {number} of a long answer.\n" for number in range(int(name))))
        case _:
            return f"You said: {prompt}"


def research(request: ReceivedRequest) -> Any:
    done = steps_done(request)
    return Reply("Looking at the sky. ", call("weather", {"city": "Bergen"})) if not done else "The sky is clear."


def agents() -> list[Agent[Any]]:
    model = Model("deepseek:test", via=Scripted(answer))
    inner = Agent(Model("deepseek:test", via=Scripted(research)), tools=[weather], name="researcher")
    tools = [
        weather,
        hold,
        refund,
        edit,
        locate,
        broken,
        penstock.mcp.tools(SHOP),
        inner.as_tool("research", "Find out."),
    ]
    support = Agent(
        model,
        tools=tools,
        name="support",
        retries=Retries(after_start=True, first_delay=0),
        prices={"test": Prices(input=1.0, output=2.0)},
    )
    return [support, Agent(model, name="echo")]


def main() -> None:
    serve(agents(), sys.argv[1], token=sys.argv[2] if len(sys.argv) > 2 else "")


if __name__ == "__main__":
    main()
