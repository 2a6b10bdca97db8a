"""An agent for the tests of clients, on a real server: what it does depends on the last user message.

It prints its port. `POST /gate/{name}` lets an answer go on that waits at this gate, and `POST /cut` cuts the
connections of all chats and followers. `/page6` and `/page7` are pages of the folder that is its second argument.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.server import listen, run_server
from penstock.log.sqlite import SQLiteStore
from penstock.model.model import Model
from penstock.serve import app
from penstock.testing import ReceivedRequest, Reply, Scripted, call, drop, fail, think
from penstock.tools.tool import Context, ToolOutput, tool
from penstock.transport.policy import Retries

GATES: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return GATES.setdefault(name, asyncio.Event())


@tool(read_only=True)
async def look(context: Context[Any], city: str) -> ToolOutput:
    """Look up the weather."""
    context.report({"percent": 50})
    return ToolOutput({"city": city, "sky": "clear"}, data={"secret": "s3cret"})


@tool(read_only=True)
async def hold(name: str) -> str:
    """Wait until a gate is opened."""
    await asyncio.wait_for(gate(name).wait(), 60)
    return f"{name} is open"


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(deferred=True)
def locate(accuracy: str) -> str:
    """Ask the device of the user where it is."""
    raise NotImplementedError


@tool(deferred=True)
def time_zone() -> str:
    """The time zone of the user."""
    raise NotImplementedError


@tool(read_only=True)
def broken() -> str:
    """Fail."""
    raise ValueError("no such thing")


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
    done = _steps_done(request)
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


def _steps_done(request: ReceivedRequest) -> int:
    """How many responses there are after the last user message."""
    messages = request.body["messages"]
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    return sum(message["role"] == "assistant" for message in messages[last:])


def _result(request: ReceivedRequest) -> str:
    return str(request.body["messages"][-1]["content"])


async def respond(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    model = Model("deepseek:test", via=Scripted(answer))
    retries = Retries(after_start=True, first_delay=0)
    agent = Agent(model, tools=[look, hold, pay, locate, time_zone, broken], name="support", retries=retries)
    forms = Agent(
        Model("deepseek:test", via=Scripted(lambda request: '{"name": "Ada", "age": 36}')), name="forms", output=Form
    )
    agents: Any = [agent, forms]
    limits = ServerLimits(keep_alive_seconds=0.5)
    served = app(agents, log=SQLiteStore(sys.argv[1]), limits=limits, shutdown_seconds=0.2)

    pages = Path(sys.argv[2])
    streams: set[asyncio.Task[None]] = set()

    async def with_gates(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path.startswith("/gate/"):
            gate(path.removeprefix("/gate/")).set()
            await respond(send, 204, b"")
        elif path in ("/page6", "/page7"):
            await respond(send, 200, (pages / f"{path[1:]}.html").read_bytes())
        elif path == "/cut":
            for task in streams:
                task.cancel()
            await respond(send, 204, b"")
        elif path == "/api/chat" or path.endswith("/events"):
            task = cast("asyncio.Task[None]", asyncio.current_task())
            streams.add(task)
            await served(scope, receive, send)
            streams.discard(task)
        else:
            await served(scope, receive, send)

    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        run_server(with_gates, listener, limits, on_stop=served.context.feeds.close)


if __name__ == "__main__":
    main()
