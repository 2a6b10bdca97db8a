"""An agent for the chat: `penstock serve examples/react_chat/agent.py`, then `npm install && npm run dev` beside it."""

import penstock


@penstock.tool(read_only=True)
def weather(city: str) -> dict[str, str]:
    """Look up the weather in a city."""
    return {"city": city, "sky": "clear"}


@penstock.tool(approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} was refunded"


@penstock.tool(deferred=True)
def time_zone() -> str:
    """The time zone of the user: it runs in the browser."""
    raise NotImplementedError


agent = penstock.Agent("sim:demo", tools=[weather, refund, time_zone], name="support")
