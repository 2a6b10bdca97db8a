"""An agent behind FastAPI: its events are sent to the browser as server-sent events; closing the page cancels the run.

It needs `pip install fastapi uvicorn`. Run it with the simulated model, which needs no key, or with a real one, and
open http://127.0.0.1:8000 ($PORT sets another port):

    python examples/fastapi_events.py
    MODEL=anthropic:claude-sonnet-5 python examples/fastapi_events.py
"""

import asyncio
import os
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, StreamingResponse

import penstock
from penstock.run.events import encode

PAGE = """<!doctype html><meta charset="utf-8"><title>An agent</title><pre id="shown"></pre><script>
  const source = new EventSource("/ask?question=How is the weather in Rome and in Oslo?")
  source.onmessage = ({data}) => {
    const event = JSON.parse(data)
    if (event.type == "text") shown.append(event.text)
    if (event.type == "tool_start") shown.append(`\\n→ ${event.name} ${JSON.stringify(event.arguments)}`)
    if (event.type == "step_end") shown.append("\\n")
    if (event.type == "done") source.close()
  }
</script>"""

app = FastAPI()


@penstock.tool(read_only=True)
async def weather(city: str) -> str:
    """The weather in a city."""
    await asyncio.sleep(1)
    return f"sunny in {city}"


agent = penstock.Agent(os.environ.get("MODEL", "sim:demo"), tools=[weather])


async def events(question: str) -> AsyncIterator[bytes]:
    run = agent.astream(question)
    try:
        async with run:  # left when the browser disconnects, which cancels the request and the tools
            async for event in run:
                yield b"data: " + encode(event) + b"\n\n"
    finally:
        print(f"{run.finish_reason}: {question}", flush=True)


@app.get("/ask")
def ask(question: str) -> StreamingResponse:
    return StreamingResponse(events(question), media_type="text/event-stream")


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    return PAGE


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
