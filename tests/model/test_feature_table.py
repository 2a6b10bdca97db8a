"""The table of docs/feature-table.md: each cell is checked on a strict server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Agent, Model, StreamEvent, Usage
from penstock.messages import image, user
from penstock.model.output_request import OUTPUT_TOOL
from penstock.testing import ReceivedRequest, Reply, Scripted, call, frames, item, refuse, think
from penstock.wires import WIRES, wire_name
from tests.output.test_output_wires import form_of

PAGE = (Path(__file__).parents[2] / "docs" / "feature-table.md").read_text(encoding="utf-8")
HEAD, *ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)
    if "---" not in line
]
CELLS = [(row[0], wire, cell) for row in ROWS for wire, cell in zip(HEAD[1:], row[1:], strict=True)]
EXAMPLES = {
    "openai-responses": "openai:gpt-5", "openai-chat": "openai-compatible:some-model",
    "anthropic": "anthropic:claude-sonnet-4-5", "gemini": "google:gemini-3-pro", "ollama": "ollama:qwen3",
    "cohere": "cohere:command-a", "bedrock": "bedrock:anthropic.claude-sonnet-4-5",
    "gemini-interactions": "google:gemini-3-pro",
}  # fmt: skip


def model_on(wire: str, **options: Any) -> Model:
    return Model(EXAMPLES[wire], wire=wire_name(wire), **options)


PNG = image(b"\x89PNG\r\n\x1a\n", "image/png")
DATA = PNG.base64
Check = Callable[[str], str]
CHECKS: dict[str, Check] = {}
"""For each feature a function that tries it on a wire, and returns what its cell must say."""


def feature(name: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return add


@dataclass
class City:
    """A city."""

    name: str


@penstock.tool(read_only=True)
def look(city: str = "") -> str:
    """Look at a city."""
    return f"{city} is sunny"


@penstock.tool(read_only=True)
def shoot() -> Any:
    """Take a picture."""
    return ["here", PNG]


@penstock.tool
def broken() -> str:
    """Never works."""
    raise penstock.ToolError("no luck")


class Played:
    """A run on a strict server: its requests, its events, and the run itself."""

    def __init__(self, wire: str, replies: Any, *tools: Any, prompt: Any = "Go.", **options: Any) -> None:
        script = Scripted(replies, strict=True)
        agent: Agent[Any, Any] = Agent(model_on(wire, via=script), tools, **options)
        with agent.stream(prompt) as run:
            self.events: list[StreamEvent] = list(run)
        assert run.finish_reason in ("answered", "refused"), run.done
        self.run = run
        self.requests: list[ReceivedRequest] = script.requests

    def of(self, type: str) -> list[Any]:
        return [event for event in self.events if event.type == type]

    def sent(self, number: int = -1) -> str:
        return json.dumps(self.requests[number].body, ensure_ascii=False)


ROME = Reply("Let me look.", call("look", {"city": "Rome and all that is around it"}), "Wait.")


@feature("tool calls")
def tool_calls(wire: str) -> str:
    played = Played(wire, [ROME, "Sunny."], look)
    assert [event.result.text for event in played.of("tool_end")] == ["Rome and all that is around it is sunny"]
    assert "is sunny" in played.sent()
    return "native" if played.of("tool_call")[0].origin == "native" else "fallback"


@feature("arguments in pieces")
def pieces(wire: str) -> str:
    count = len(Played(wire, [ROME, "Sunny."], look).of("tool_call_delta"))
    return "native" if count > 1 else "n/a"


@feature("several calls in one response")
def several_calls(wire: str) -> str:
    played = Played(wire, [Reply(call("look", {"city": "Rome"}), call("look", {"city": "Oslo"})), "Sunny."], look)
    assert {event.result.text for event in played.of("tool_end")} == {"Rome is sunny", "Oslo is sunny"}
    assert len(played.requests) == 2
    return "native"


@feature("a tool starts during the response")
def early_start(wire: str) -> str:
    [start] = Played(wire, [ROME, "Sunny."], look).of("tool_start")
    assert start.is_early
    return "native"


def changed(wire: str, **options: Any) -> dict[str, Any]:
    """The fields of a request that an option adds or changes."""
    usual = Played(wire, [ROME, "Sunny."], look, shoot).requests[0].body
    body = Played(wire, [ROME, "Sunny."], look, shoot, **options).requests[0].body
    return {key: value for key, value in body.items() if value != usual.get(key)}


@feature("`parallel=False`")
def no_parallel(wire: str) -> str:
    return "native" if "parallel" in str(changed(wire, parallel=False)) else "n/a"


@feature('`tool_choice="required"`')
def required(wire: str) -> str:
    return "native" if changed(wire, tool_choice="required") else "n/a"


@feature("`tool_choice` of one tool")
def one_tool(wire: str) -> str:
    named = changed(wire, tool_choice="look")
    if "shoot" in str(Played(wire, [ROME, "Sunny."], look, shoot, tool_choice="look").requests[0].body):
        assert "look" in str({key: value for key, value in named.items() if key != "tools"})
        return "native"
    is_required = changed(wire, tool_choice="required").items() <= named.items() and "tool_choice" in named
    return "fallback: only that tool is declared" + (", and required" if is_required else "")


@feature("custom tools (free text)")
def custom_tools(wire: str) -> str:
    asked: list[str] = []

    def sql(input: str) -> str:
        asked.append(input)
        return "3 rows"

    declared = penstock.as_tool({"type": "custom", "name": "sql", "description": "Ask."}, sql)
    played = Played(wire, [Reply(call("sql", {"input": "SELECT 1"})), "Three."], declared)
    assert asked == ["SELECT 1"]
    return "native" if '"type": "custom"' in played.sent(0) else "fallback: a function with `input`"


@feature("calls in the text (`calls=`)")
def text_calls(wire: str) -> str:
    written = '<tool_call>\n{"name": "look", "arguments": {"city": "Rome"}}\n</tool_call>'
    played = Played(wire, [Reply(written), "Sunny."], look, calls="hermes")
    assert [event.result.text for event in played.of("tool_end")] == ["Rome is sunny"]
    assert "tools" not in played.requests[0].body
    return "fallback: prompt and parser" if "<tools>" in played.sent(0) else "native"


def output_form(wire: str, *tools: Any) -> str:
    body = json.dumps({"name": "Rome"})
    first = Played(wire, [Reply(body), Reply(call(OUTPUT_TOOL, {"name": "Rome"}))], *tools, output=City)  # either form
    assert first.run.output == City("Rome")
    form = form_of(first.requests[0], wire)
    return {"final tool": "fallback: final tool", "grammar": "fallback: grammar and prompt"}.get(form, form)


@feature("structured output")
def structured_output(wire: str) -> str:
    return output_form(wire)


@feature("structured output beside tools")
def output_beside_tools(wire: str) -> str:
    return output_form(wire, look)


@feature("reasoning is shown")
def reasoning_is_shown(wire: str) -> str:
    played = Played(wire, [Reply(think("Hm."), "Sunny.")])
    assert "".join(event.text for event in played.of("reasoning")) == "Hm."
    return "native"


@feature("reasoning goes back with calls")
def reasoning_back(wire: str) -> str:
    played = Played(wire, [Reply(think("Hm, hm."), call("look", {"city": "Rome"})), "Sunny."], look)
    secrets = [str(event.data) for event in played.of("opaque")]
    signed = [secret for secret in re.findall(r"[A-Za-z0-9+/=_-]{60,}", " ".join(secrets)) if secret in played.sent()]
    if "Hm, hm." in played.sent() or signed:
        return "native"
    if wire != "openai-chat":
        return "n/a"
    script = Scripted([Reply(think("Hm, hm."), call("look", {})), "Sunny."], strict=True)
    Agent(model_on(wire, via=script, reasoning_back="reasoning_content"), [look]).run("Go.")
    assert script.requests[-1].body["messages"][1]["reasoning_content"] == "Hm, hm."
    return "fallback: the field of the provider, or `reasoning_back=`"


@feature("images in messages")
def images_in_messages(wire: str) -> str:
    played = Played(wire, ["A cat."], prompt=[user("What is this?", PNG)])
    assert DATA in played.sent()
    return "native"


@feature("images in results")
def images_in_results(wire: str) -> str:
    played = Played(wire, [Reply(call("shoot", {})), "I see."], shoot)
    assert DATA in played.sent()
    is_apart = "From shoot" in played.sent()
    return "fallback: a user message after the results" if is_apart else "native"


@feature("errors of tools")
def tool_errors(wire: str) -> str:
    failed = Played(wire, [Reply(call("broken", {})), "Sorry."], broken).sent()
    assert "no luck" in failed
    has_field = '"is_error": true' in failed or '"status": "error"' in failed or '"response": {"error"' in failed
    return "native" if has_field else "fallback: text"


@feature("refusals")
def refusals(wire: str) -> str:
    played = Played(wire, [Reply(refuse("No."))])
    if played.of("refusal"):
        return "native"
    return "fallback: the finish reason" if played.run.finish_reason == "refused" else "fallback: text"


def counted(wire: str) -> Usage:
    usage = Usage(100, 5, cached_tokens=40, cache_write_tokens=30)
    counts: Usage = Played(wire, [Reply("Hi.", usage=usage)]).run.usage
    return counts


@feature("cached tokens are counted")
def cached(wire: str) -> str:
    return "native" if counted(wire).cached_tokens == 40 else "n/a"


@feature("tokens written to a cache are counted")
def cache_writes(wire: str) -> str:
    return "native" if counted(wire).cache_write_tokens == 30 else "n/a"


SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed", "action": {"commands": ["ls"]}}
VENDOR_CALLS: dict[str, Any] = {"openai-responses": item(SHELL), "anthropic": call("bash", {"command": "ls"})}
VENDOR_TOOLS = {"openai-responses": {"type": "shell"}, "anthropic": {"type": "bash_20250124", "name": "bash"}}


@feature("prompt caching that is asked for (`cache=True`)")
def cache(wire: str) -> str:
    return "native" if "cache" in str(changed(wire, cache=True)) else "n/a"


@feature("tools that the provider defines and you run")
def vendor_tools(wire: str) -> str:
    def run(**arguments: Any) -> str:
        return "a.py"

    if wire not in VENDOR_CALLS:
        with pytest.raises(penstock.UsageError, match="has no items of its own: leave out item"):
            frames(wire, Reply(item(SHELL)))
        return "n/a"
    tool = penstock.tool(vendor=VENDOR_TOOLS[wire])(run)
    played = Played(wire, [Reply(VENDOR_CALLS[wire]), "Done."], tool)
    assert "a.py" in played.sent()
    assert ('"shell_call_output"' in played.sent()) == (wire == "openai-responses")
    return "native"


@feature("tools of MCP servers")
def mcp_tools(wire: str) -> str:
    server = pytest.importorskip("mcp.server.mcpserver").MCPServer("shop")

    @server.tool()
    def price(article: str) -> str:
        """The price of an article."""
        return f"{article} costs 12.50"

    import penstock.mcp

    with penstock.mcp.tools(server) as shop:
        played = Played(wire, [Reply(call("price", {"article": "lamp"})), "12.50."], shop)
    assert "lamp costs 12.50" in played.sent()
    return "fallback: functions"


@feature("sub-agents (`as_tool`)")
def sub_agents(wire: str) -> str:
    script = Scripted([ROME, "It is sunny."], strict=True)
    inner: Agent[Any, Any] = Agent(model_on(wire, via=script), [look])
    played = Played(wire, [Reply(call("ask", {"prompt": "How is Rome?"})), "Sunny."], inner.as_tool("ask", "Ask."))
    assert [event.event.type for event in played.of("nested")][-1] == "done"
    assert "It is sunny." in played.sent()
    assert played.run.usage.input_tokens > sum(event.usage.input_tokens for event in played.of("step_end"))
    return "fallback: functions"


@feature("a hook offers other tools in the next step")
def other_tools(wire: str) -> str:
    def hook(step: penstock.Step) -> penstock.Step:
        return step.replace(tools=["look"] if step.number == 1 else ["shoot"])

    played = Played(wire, [ROME, "Sunny."], look, shoot, before_step=hook)
    assert [[tool.name for tool in request.tools] for request in played.requests] == [["look"], ["shoot"]]
    return "native"


@feature("a hook offers no tools in the next step")
def no_tools(wire: str) -> str:
    def hook(step: penstock.Step) -> penstock.Step:
        return step.replace(tools=["look"] if step.number == 1 else [])

    played = Played(wire, [ROME, "Sunny."], look, before_step=hook)
    if not played.requests[1].tools:
        return "native"
    kept = "fallback: tools of earlier calls stay declared"
    return f"{kept}, with the choice `none`" if "tool_choice" in played.requests[1].body else kept


@feature("a message during a run (`run.say`)")
def steering(wire: str) -> str:
    script = Scripted([Reply(call("broken", {})), "Sorry."], strict=True)
    with Agent(model_on(wire, via=script), [broken]).stream("Go.") as run:
        for event in run:
            if event.type == "tool_start":
                run.say("Be brief.")
    assert run.finish_reason == "answered"
    assert [("Be brief." in str(request.body)) for request in script.requests] == [False, True]
    return "native"


@feature("a history of every other provider")
def foreign_history(wire: str) -> str:
    for example in EXAMPLES.values():
        first = Scripted([Reply(think("Hm."), "I look.", call("look", {"city": "Rome"})), "Sunny."], strict=True)
        history = Agent(Model(example, via=first), [look]).run("Go.").messages
        script = Scripted(["Still sunny."], strict=True)
        assert Agent(model_on(wire, via=script), [look]).run("And now?", messages=history).reason == "answered"
        assert "Rome is sunny" in str(script.requests[0].body)
    return "native"


THOUGHT = Reply(think("Hm, hm."), "I look. ", call("look", {"city": "Rome"}))


@feature("a call that waits, and its run in another process")
def approvals(wire: str) -> str:
    @penstock.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    script = Scripted([Reply(think("Hm, hm."), call("pay", {}, id="call_1")), "Done."], strict=True)
    agent: Agent[Any, Any] = Agent(model_on(wire, via=script), [pay])
    paused = agent.run("Go.")
    with agent.resume(paused.dump()) as run:
        run.decide(paused.waiting[0].call_id, approved=True)
        assert [event.result.text for event in run if event.type == "tool_end"] == ["paid"]
    assert run.finish_reason == "answered"
    return "native"


@feature("a response that is asked for again after a crash")
def crashes(wire: str) -> str:
    script = Scripted([THOUGHT, "It is warm.", "It is sunny."], strict=True)
    agent: Agent[Any, Any] = Agent(model_on(wire, via=script), [look])
    stored = b""
    with agent.stream("Go.") as run:
        for event in run:
            if event.type == "text" and len(script.requests) == 2:
                stored = run.dump()
                break
    with agent.resume(stored) as run:
        assert "retry" in [event.type for event in run]
    assert run.output == "It is sunny."
    assert script.requests[1].body == script.requests[2].body
    return "native"


@feature("text is held back by a guard")
def guarded_text(wire: str) -> str:
    def guard(text: str) -> str:
        return text.replace("sunny", "[weather]")

    played = Played(wire, [THOUGHT, "It is sunny. Really."], look, guard=guard)
    assert "".join(event.text for event in played.of("text")).endswith("It is [weather]. Really.")
    assert [event.is_early for event in played.of("tool_start")] == [True]
    return "fallback: here, sentence by sentence"


@feature("reasoning that a guard changed goes back")
def guarded_reasoning(wire: str) -> str:
    def guard(text: str, context: penstock.GuardContext) -> str:
        return "(left out)" if context.kind == "reasoning" else text

    played = Played(wire, [THOUGHT, "Sunny."], look, guard=guard)
    assert "Hm, hm." not in played.sent()
    assert "".join(event.text for event in played.of("reasoning")) == "(left out)"
    return "native" if "(left out)" in played.sent() else "n/a"


@pytest.mark.parametrize(("name", "wire", "cell"), CELLS, ids=lambda value: re.sub(r"\W+", "-", str(value)))
def test_each_cell_of_the_table_is_true(name: str, wire: str, cell: str) -> None:
    kind, _, why = cell.partition(": ")
    assert kind in ("native", "fallback", "n/a")
    assert bool(why) == (kind != "native"), "which fallback, or why it is not applicable"
    found = CHECKS[name](wire)
    assert found == (cell if found.startswith("fallback") else kind)


def test_the_table_has_every_wire_and_every_check() -> None:
    assert set(HEAD[1:]) == set(WIRES) - {"mistral"}
    assert [row[0] for row in ROWS] == [*CHECKS]
    assert all(name.split(":")[0] in PAGE for name in EXAMPLES.values())
