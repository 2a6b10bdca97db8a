"""Tools for a model without native tool calls: it writes its calls as XML into its text, and they run while it writes.

The prompt that explains the notation is written for you, no piece of a tag is shown, and the results are sent back in
the same notation. `calls="hermes"` selects another one; docs/dialects.md lists them. Run it with a scripted model,
which needs no key, or with a real one:

    python examples/in_text.py
    python examples/in_text.py ollama:gemma3
"""

import sys

import penstock
from penstock.testing import Scripted


@penstock.tool
def weather(city: str) -> str:
    """The weather in a city."""
    return {"Rome": "sunny, 24 °C", "Oslo": "snow, -2 °C"}.get(city, "unknown")


RESPONSE = """Let me look.
<function_calls>
<invoke name="weather"><parameter name="city">Rome</parameter></invoke>
<invoke name="weather"><parameter name="city">Oslo</parameter></invoke>
</function_calls>"""
scripted = penstock.Model("ollama:gemma3", via=Scripted([RESPONSE, "Rome is the warmer one."], pace=0.02))

agent = penstock.AgentStreamer(sys.argv[1] if len(sys.argv) > 1 else scripted, tools=[weather], separate_text=True)
with agent.stream("Where is it warmer, in Rome or in Oslo?") as run:
    for event in run:
        match event:
            case penstock.Text(text=text):
                print(text, end="", flush=True)
            case penstock.ToolCall(name=name, arguments=arguments, origin=origin):
                print(f"\n→ {name} {arguments}, found as {origin}", end="")
            case penstock.ToolEnd(result=result):
                print(f"\n← {result.name}: {result.text}", end="")
print()
