"""Three tools in parallel: each starts when its arguments are complete, while the model writes the next call.

Run it with the simulated model, which needs no key, or with a real one:

    python examples/parallel_tools.py
    python examples/parallel_tools.py anthropic:claude-sonnet-5
"""

import asyncio
import sys
import time

import penstock


@penstock.tool(read_only=True)  # no side effects: it may start before the provider has confirmed the call
async def weather(city: str) -> str:
    """The weather in a city."""
    await asyncio.sleep(1.5)
    return "sunny, 24 °C"


@penstock.tool(read_only=True)
def trains(city: str) -> str:  # a sync function runs in a thread
    """The next trains to a city."""
    time.sleep(1.2)
    return "16:10 and 17:10"


@penstock.tool(read_only=True)
def hotels(city: str) -> str:
    """The hotels of a city."""
    time.sleep(0.9)
    return "Albergo Sole"


agent = penstock.Agent(sys.argv[1] if len(sys.argv) > 1 else "sim:demo", tools=[weather, trains, hotels])
started: dict[str, float] = {}
spent = 0.0

began = time.perf_counter()
with agent.stream("How is the weather in Rome? Which trains go there, and which hotels are there?") as run:
    for event in run:
        now = time.perf_counter() - began
        match event:
            case penstock.ToolStart(key=key, name=name, arguments=arguments, is_early=is_early):
                started[key] = now
                print(f"{now:5.2f} s  → {name} {arguments}{', while the model is still writing' if is_early else ''}")
            case penstock.ToolEnd(key=key, result=result):
                spent += now - started[key]
                print(f"{now:5.2f} s  ← {result.name}: {result.text}")
            case penstock.StepEnd(step=step):
                print(f"{now:5.2f} s    response {step} has ended")
            case penstock.Done(output=output):
                print(f"\n{output}\n\nThe tools ran for {spent:.2f} s in total, the run took {now:.2f} s.")
