"""An agent inside a FastAPI app: a chat page, runs that survive a lost connection, and the app's own endpoints beside.

It needs `pip install fastapi uvicorn`. Run it with the simulated model, which needs no key, or with a real one, and
open http://127.0.0.1:8000/agents/ ($PORT sets another port, $LOG the file that keeps the runs):

    python examples/fastapi_app.py
    MODEL=anthropic:claude-sonnet-5 python examples/fastapi_app.py
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

import penstock
import penstock.log
import penstock.serve


@penstock.tool(read_only=True)
async def weather(city: str) -> penstock.ToolOutput:
    """The weather in a city."""
    await asyncio.sleep(1)
    return penstock.ToolOutput(f"sunny in {city}", data={"station": 4711})  # the data stays on the server


agent = penstock.Agent(os.environ.get("MODEL", "sim:demo"), tools=[weather], name="weather")
store = penstock.log.open(os.environ["LOG"]) if "LOG" in os.environ else penstock.log.memory()
agents = penstock.serve.app(agent, log=store)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    agents.open()  # a mounted app gets no lifespan events
    yield
    await agents.close()


app = FastAPI(lifespan=lifespan)
app.mount("/agents", agents)


@app.get("/statistics")
def statistics() -> dict[str, Any]:
    """An endpoint of the app itself, which reads the same log."""
    rows = store.list(limit=100)
    return {"runs": len(rows), "over": sum(row.state == "over" for row in rows)}


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=5)
