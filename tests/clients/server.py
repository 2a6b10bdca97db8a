"""An agent for the tests of clients, on a real server: what it does depends on the last user message.

It prints its port. `/page6` and `/page7` are pages of the folder that is its second argument.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock import Agent, Context, Model, Retries, ToolOutput, tool
from penstock.testing import ReceivedRequest, Reply, Scripted, call, drop, fail, think
from tests.clients.gated_server import broken, hold, locate, serve, steps_done


@tool(read_only=True)
async def look(context: Context[Any], city: str) -> ToolOutput:
    """Look up the weather."""
    context.report({"percent": 50})
    return ToolOutput({"city": city, "sky": "clear"}, data={"secret": "s3cret"})


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(deferred=True)
def time_zone() -> str:
    """The time zone of the user."""
    raise NotImplementedError


class Form(Struct):
    """A form."""

    name: str
    age: int


THREE_STEPS = (
    Reply(think("The user wants the weather."), "Let me look.", call("look", {"city": "Rome"})),
    Reply("And the other one.", call("look", {"city": "Oslo"}), call("broken", {})),
    Reply("Rome and Oslo are clear."),
)
RETRIES: dict[str, int] = {}


def answer(request: ReceivedRequest) -> Any:
    done = steps_done(request)
    prompt = request.prompt
    match prompt.partition(" ")[0]:
        case "three":
            return THREE_STEPS[done]
        case "pay":
            return Reply("I will pay.", call("pay", {"amount": 7})) if not done else "It is done."
        case "locate":
            return Reply(call("locate", {"accuracy": "high"})) if not done else f"You are at {_result(request)}."
        case "time_zone":
            return Reply(call("time_zone", {})) if not done else f"You are in {_result(request)}."
        case "change_color":
            return Reply(call("change_color", {"color": "red"})) if not done else f"It is {_result(request)}."
        case "both":
            calls = call("look", {"city": "Rome"}), call("change_color", {"color": "red"})
            return Reply("Both. ", *calls) if not done else f"It is {_result(request)}."
        case "gates":
            names = prompt.split()[1:]
            return (
                Reply(f"Gate {done}. ", call("hold", {"name": names[done]})) if done < len(names) else "All are open."
            )
        case "hold":
            name = prompt.partition(" ")[2]
            return Reply("One moment. ", call("hold", {"name": name})) if not done else "The gate is open."
        case "retry":
            RETRIES[prompt] = RETRIES.get(prompt, 0) + 1
            lost = Reply("This is lost. ", call("look", {"city": "Nowhere"}), drop())
            return lost if RETRIES[prompt] == 1 else "This counts."
        case "fail":
            return Reply("Almost", fail("server_error", "the secret words of the provider"))
        case _:
            return f"You said: {prompt}"


def _result(request: ReceivedRequest) -> str:
    return str(request.body["messages"][-1]["content"])


def main() -> None:
    model = Model("deepseek:test", via=Scripted(answer))
    retries = Retries(after_start=True, first_delay=0)
    agent = Agent(model, tools=[look, hold, pay, locate, time_zone, broken], name="support", retries=retries)
    forms = Agent(
        Model("deepseek:test", via=Scripted(lambda request: '{"name": "Ada", "age": 36}')), name="forms", output=Form
    )
    pages = {path: Path(sys.argv[2]) / f"{path[1:]}.html" for path in ("/page6", "/page7")}
    serve([agent, forms], sys.argv[1], pages=pages)


if __name__ == "__main__":
    main()
