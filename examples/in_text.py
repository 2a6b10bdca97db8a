"""Tools for a model that has none: it writes its calls as XML into its text, and they run while it speaks on.

The prompt that teaches it the form is written for you, no piece of a tag is ever shown, and the results go back in the
same form. `calls="hermes"`, say, takes another of the forms in docs/dialects.md. Run it with a script that stands in
for the model and needs no key, or with a real one:

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


WRITTEN = """Let me look.
<function_calls>
<invoke name="weather"><parameter name="city">Rome</parameter></invoke>
<invoke name="weather"><parameter name="city">Oslo</parameter></invoke>
</function_calls>"""
stand_in = penstock.Model("ollama:gemma3", via=Scripted([WRITTEN, "Rome is the warmer one."], pace=0.02))

agent = penstock.AgentStreamer(sys.argv[1] if len(sys.argv) > 1 else stand_in, tools=[weather], separate_text=True)
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
