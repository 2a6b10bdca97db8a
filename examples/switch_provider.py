"""One conversation, several providers: each continues the history of the others, including tool calls.

Run it with the simulated model on three wires, which needs no key, or with real ones:

    python examples/switch_provider.py
    python examples/switch_provider.py anthropic:claude-sonnet-5 google:gemini-3.8-flash openai:gpt-5.5
"""

import sys

import penstock


@penstock.tool(read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


simulated = [penstock.Model("sim:demo", wire=wire) for wire in ("anthropic", "gemini", "openai-responses")]
models = [penstock.Model(name) for name in sys.argv[1:]] or simulated

history: penstock.History = []
for model, city in zip(models, ("Rome", "Oslo", "Quito"), strict=False):
    answer = penstock.Agent(model, tools=[weather]).run(f"How is the weather in {city}?", history)
    history = answer.messages
    print(f"{model.name} ({model.wire}): {answer.output}")

print(f"\n{len(history)} messages, {len(penstock.check(history))} problems")
