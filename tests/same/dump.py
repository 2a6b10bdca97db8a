"""Prints a digest of what a tree of penstock makes of each input; runs in this tree and in the one it is compared with.

So it uses public names, and two modules of the tree's own tests (`round_trip`, and the players of random runs), which
know its internals; they are found by file name, wherever they are.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock.testing import Raw, Reply, Scripted, call

parser = argparse.ArgumentParser()
parser.add_argument("tree", type=Path)
parser.add_argument("data", type=Path, help="the inputs, next to which are the stored runs and logs")
parser.add_argument("items", nargs="*", help="kind and id of what is printed in full; without any, digests of all")
parser.add_argument("--random-runs", type=int, default=1_500)
OPTIONS = parser.parse_args()
TREE, DATA, WANTED = OPTIONS.tree, OPTIONS.data, set(OPTIONS.items)

MODELS = {
    "openai-chat": "openai-compatible:m", "openai-responses": "openai:m", "anthropic": "anthropic:m",
    "gemini": "google:m", "ollama": "ollama:m", "cohere": "cohere:m", "bedrock": "bedrock:m",
}  # fmt: skip
CONTENT_TYPES = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}
CUTTINGS = ("whole", "bytes", "random 1", "random 2")
Item = tuple[str, str, Callable[[], Any]]
"""Kind, id, and what makes the value that is compared."""


def items() -> Iterator[Item]:
    with DATA.open(encoding="utf-8") as lines:
        inputs = [json.loads(line) for line in lines]
    streams = [item for item in inputs if item["kind"] == "stream"]
    for item, cutting in product((item for item in inputs if item["kind"] != "history"), CUTTINGS):
        yield "events", f"{item['id']} / {cutting}", partial(cut_events, item, cutting)
    for item, protocol in product(streams, protocols()):
        for name, size in (("streamed", 1), ("in one batch", 10**6)):
            yield "responses", f"{item['id']} / {protocol} {name}", partial(streamed, item, protocol, size)
        yield "responses", f"{item['id']} / {protocol} whole", partial(whole_body, item, protocol)
    for item, wire in product((item for item in inputs if item["kind"] != "text"), MODELS):
        yield "requests", f"{item['id']} / {wire}", partial(request, item, wire)
    for item, mode in product(streams, ("sync", "async")):
        yield "runs", f"{item['id']} / {mode}", partial(run, item, mode)
    for seed in range(OPTIONS.random_runs):
        yield "machine", str(seed), partial(machine_run, seed)
    for path in sorted((DATA.parent / "stored_runs").glob("*.json")):
        yield "stored", path.name, partial(resumed, path)
    for path in sorted((DATA.parent / "stored_logs").glob("*.sql")):
        yield "stored", path.name, partial(driven, path)


# Events.


def pieces_of(content: Any, cutting: str) -> Iterator[Any]:
    if cutting == "whole":
        yield content
        return
    sizes, at = random.Random(cutting), 0
    while at < len(content):
        size = 1 if cutting == "bytes" else sizes.choice([1, 2, 3, 7, 40, 200, 1500])
        yield content[at : at + size]
        at += size


def events_of(item: dict[str, Any], cutting: str) -> list[Any]:
    if item["kind"] == "text":
        stage: Any = penstock.TextParser(item["name"], item["tools"], *item["options"])
        content: Any = item["text"]
    else:
        stage, content = penstock.Decoder(item["name"], item["tools"]), bytes.fromhex(item["body"])
    events = [event for piece in pieces_of(content, cutting) for event in stage.feed(piece)]
    return events + stage.close()


def cut_events(item: dict[str, Any], cutting: str) -> Any:
    return plain(events_of(item, cutting))


ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def plain(value: Any) -> Any:
    """The value as JSON; an object that JSON has no form for is its repr, without an address."""
    return msgspec.to_builtins(value, enc_hook=lambda other: ADDRESS.sub("", repr(other)), str_keys=True)


# Bytes of the encoders.


@cache
def test_module(name: str) -> Any:
    """A module of the tree's tests, by its file name."""
    [path] = (TREE / "tests").rglob(f"{name}.py")
    return importlib.import_module(".".join(path.relative_to(TREE).with_suffix("").parts))


def protocols() -> list[str]:
    module = test_module("round_trip")
    names: Any = getattr(module, "PROTOCOLS", None) or importlib.import_module("penstock.wires").RESPONSE_ENCODERS
    return list(names)


_decoded: dict[str, list[Any]] = {}


def decoded(item: dict[str, Any]) -> list[Any]:
    """The events of an input, of which the last one is kept."""
    if item["id"] not in _decoded:
        _decoded.clear()
        _decoded[item["id"]] = events_of(item, "whole")
    return _decoded[item["id"]]


def streamed(item: dict[str, Any], protocol: str, size: int) -> str:
    return test_module("round_trip").encode_stream(protocol, decoded(item), size).decode("utf-8", "backslashreplace")


def whole_body(item: dict[str, Any], protocol: str) -> Any:
    module, events = test_module("round_trip"), decoded(item)
    if hasattr(module, "encode_whole"):
        encoded = module.encode_whole(protocol, events)
    else:
        encoded = module.find_response_encoder(protocol).encode_body(events, module.head_for(events))
    return [encoded.status, encoded.body.decode("utf-8", "backslashreplace")]


def request(item: dict[str, Any], wire: str) -> Any:
    via = Scripted("Done.")
    model = penstock.Model(MODELS[wire], via=via, api_key="-")
    model.complete(history_of(item), item.get("tools") or None)
    return plain([(received.path, received.body) for received in via.requests])


def history_of(item: dict[str, Any]) -> Any:
    """The recorded history, or one with the turn, which is repaired as `penstock.repair` does."""
    if item["kind"] == "history":
        return penstock.as_messages(item["body"])
    turn = penstock.collect(decoded(item))
    user = penstock.as_messages([{"role": "user", "content": "Go."}])
    return penstock.repair([*user, penstock.Message("assistant", tuple(turn.parts))])


# Runs.


def run(item: dict[str, Any], mode: str) -> Any:
    """The requests and the events of an agent whose model first responds with the bytes of the input."""
    names = dict.fromkeys(event.name for event in decoded(item) if event.type == "tool_call" and event.name)
    tools = [tool_named(name, number) for number, name in enumerate(names)]
    body = Raw(bytes.fromhex(item["body"]), CONTENT_TYPES.get(item["name"], "text/event-stream"))
    via = Scripted([body, "Done."])
    model = penstock.Model(MODELS[item["name"]], via=via, api_key="-", retries=penstock.Retries(attempts=1))
    events = read(penstock.Agent(model, tools), mode)
    return [sorted(json.dumps(plain(event)) for event in events), plain([one.body for one in via.requests])]


def tool_named(name: str, number: int) -> Any:
    declaration = {"name": name, "description": "Answers.", "parameters": {"type": "object"}}
    return penstock.as_tool(declaration, lambda **arguments: f"{name} is done", read_only=bool(number % 2))


def read(agent: Any, mode: str) -> list[Any]:
    if mode == "sync":
        with agent.stream("Go.") as running:
            return list(running)

    async def events() -> list[Any]:
        async with agent.astream("Go.") as running:
            return [event async for event in running]

    return asyncio.run(events())


def machine_run(seed: int) -> Any:
    player = test_module("run_player").Player(test_module("run_scripts").make_script(seed))
    player.play()
    return plain([player.watch.events, player.log])


# Stored runs and logs (the SQL of a SQLite file), each continued to its end.


def agents() -> dict[str, Any]:
    """The agents of the stored runs and logs."""

    @penstock.tool(approval=True)
    def pay(amount: int = 0) -> str:
        """Pay."""
        return f"paid {amount}"

    @penstock.tool(read_only=True)
    def look(city: str) -> str:
        """Look."""
        return f"{city} is sunny"

    @penstock.tool
    def send() -> str:
        """Send."""
        return "sent"

    def answer(request: Any) -> Any:
        return "Done." if request.results else Reply("I do it.", call("pay" if "pay" in str(request.tools) else "send"))

    def agent(name: str, *tools: Any) -> Any:
        return penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(answer), api_key="-"), tools, name=name)

    return {"till": agent("till", pay, look), "desk": agent("desk", send)}


def resumed(path: Path) -> Any:
    state: str | bytes = path.read_text(encoding="utf-8")
    events, reason, agent = [], "", agents()["till"]
    while reason in ("", "paused"):
        with agent.resume(state) as running:
            if running.waiting:
                running.decide(running.waiting[0].call_id, approved=True)
            events += list(running)
        state, reason = running.dump(), running.finish_reason
    return [plain(events), json.loads(state)["penstock_run"]]


def driven(sql: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        connection = sqlite3.connect(path)
        connection.executescript(sql.read_text(encoding="utf-8"))
        connection.close()
        store = penstock.log.open(path)
        try:
            runs = penstock.Runs(store, agents())
            return {run_id: log_after(runs, run_id) for run_id in [*runs.claimable(), *every_run(runs)]}
        finally:
            store.close()


def every_run(runs: Any) -> Iterable[str]:
    return sorted(row.id for row in runs.list())


def log_after(runs: Any, run_id: str) -> Any:
    """The events of a run after it was driven to its end, or why it was not; ids of owners differ each time."""
    try:
        if runs.drive(run_id).state == "waiting":
            runs.decide(run_id, "call_1", approved=True)
            runs.drive(run_id)
        events = [event for *_, event in runs.follow(run_id)]
    except penstock.PenstockError as error:
        return f"{type(error).__name__}: {error}"
    return [{key: value for key, value in plain(event).items() if key != "owner"} for event in events]


def value_of(make: Callable[[], Any]) -> str:
    """The value as JSON, or the exception: a fault in one tree must not hide other differences."""
    try:
        return json.dumps(make(), ensure_ascii=True)
    except Exception as error:  # noqa: BLE001
        return f"raised {type(error).__name__}: {error}"


def main() -> None:
    for kind, id, make in items():
        if WANTED and f"{kind} {id}" not in WANTED:
            continue
        value = value_of(make)
        shown = value if WANTED else hashlib.sha256(value.encode()).hexdigest()[:16]
        is_raised = value.startswith("raised ")
        sys.stdout.write(f"{kind}\t{id}\t{'!' if is_raised else ''}{shown}\n")


main()
