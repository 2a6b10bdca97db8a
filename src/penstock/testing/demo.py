"""`sim:` models: they need neither a key nor a network, and call the tools that a request declares."""

from __future__ import annotations

import json
import re

from penstock.declarations import ToolDeclaration
from penstock.errors import UsageError
from penstock.model.output_request import OUTPUT_TOOL
from penstock.providers import Provider
from penstock.testing.in_process import Scripted
from penstock.testing.reply import Reply, Say, ScriptedCall, call, say
from penstock.testing.request import ReceivedRequest, ReceivedResult
from penstock.testing.sample import Sampler, names_in

MAX_CALLS = 3
"""The number of calls in one reply."""
MAX_QUOTE = 160
"""The characters of a prompt or a result that are repeated."""

PACES = {"demo": 0.02, "fast": 0.0}
"""The `sim:` models, with the pause between two frames in seconds."""

_WORD = re.compile(r"[^\W_]+")
_SMALL = {"the", "and", "for", "what", "how", "who", "get", "you", "can", "with", "this", "that", "from", "are", "all"}


def connector(name: str, wire: str | None) -> tuple[str, Provider, Scripted]:
    """The `sim:` model of this name, the provider that it imitates, and the connector that plays it."""
    if name not in PACES:
        raise UsageError(f"unknown model 'sim:{name}'; use {' or '.join(f'sim:{known}' for known in PACES)}")
    return name, Provider(wire=wire or "openai-chat"), Scripted(demo, pace=PACES[name])


def demo(request: ReceivedRequest) -> Reply:
    """Calls the tools that match the prompt, then summarises their results; equal requests get equal replies.

    If the answer must match a schema, it does.
    """
    tools = [tool for tool in request.tools if not tool.is_custom and tool.name != OUTPUT_TOOL]
    results = request.results
    if tools and not results and request.tool_choice not in ("none", OUTPUT_TOOL):
        calls = _calls(request, tools)
        return Reply(say(f"Let me ask {_listed(list(dict.fromkeys(made.name for made in calls)))}."), *calls)
    if (output := _output(request)) is not None:
        return Reply(output)
    return Reply(say(_summary(results) if results else _greeting(request.prompt)))


def _output(request: ReceivedRequest) -> ScriptedCall | Say | None:
    """The answer as the request wants it: a call of the output tool, or JSON; None if it wants text."""
    prompt, schema = request.prompt, request.output_schema
    for tool in request.tools:
        if tool.name == OUTPUT_TOOL:
            return call(tool.name, Sampler(prompt, tool.parameters).arguments())
    return None if schema is None else say(json.dumps(Sampler(prompt, schema).value(schema), ensure_ascii=False))


def _calls(request: ReceivedRequest, tools: list[ToolDeclaration]) -> list[ScriptedCall]:
    prompt = request.prompt
    chosen = [tool for tool in tools if tool.name == request.tool_choice] or _suitable(tools, prompt)
    if len(chosen) > 1:
        return [call(tool.name, Sampler(prompt, tool.parameters).arguments()) for tool in chosen]
    [tool] = chosen
    rounds = min(len(names_in(prompt)), MAX_CALLS) if _asks_for_one_name(tool) else 1
    samplers = [Sampler(prompt, tool.parameters, first_name) for first_name in range(max(rounds, 1))]
    return list(dict.fromkeys(call(tool.name, sampler.arguments()) for sampler in samplers))


def _suitable(tools: list[ToolDeclaration], prompt: str) -> list[ToolDeclaration]:
    """The tools that share the most words with the prompt; if none does, the first tool."""
    scores = {tool.name: _shared(prompt, tool) for tool in tools}
    matching = sorted((tool for tool in tools if scores[tool.name]), key=lambda tool: -scores[tool.name])
    return matching[:MAX_CALLS] or tools[:1]


def _shared(prompt: str, tool: ToolDeclaration) -> int:
    """The number of words that the prompt and the tool share; those of its name count twice."""
    words, name, description = (_stems(text) for text in (prompt, tool.name, tool.description))
    return 2 * len(words & name) + len(words & description)


def _stems(text: str) -> set[str]:
    """The significant words of a text, without a plural s."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = {word.lower() for word in _WORD.findall(parted) if len(word) > 2}
    return {word.removesuffix("s") for word in words - _SMALL}


def _asks_for_one_name(tool: ToolDeclaration) -> bool:
    """Whether the tool takes a single string, so that several names in the prompt become several calls."""
    properties = tool.parameters.get("properties")
    if not isinstance(properties, dict):
        return False
    required = tool.parameters.get("required") or list(properties)
    schema: object = properties.get(required[0]) if len(required) == 1 else None
    return (
        isinstance(schema, dict)
        and str(schema.get("type")).lower() == "string"
        and not schema.keys() & {"enum", "format"}
    )


def _summary(results: list[ReceivedResult]) -> str:
    summaries = [f"{result.name} says {_quoted(result.text) or 'nothing'}" for result in results]
    return f"Here is what I found: {'; '.join(summaries)}."


def _greeting(prompt: str) -> str:
    who = "I am a simulated model: no key, no network, no bill."
    return f"Hello! You said “{_quoted(prompt)}”. {who}" if prompt.strip() else f"Hello! {who}"


def _quoted(text: str) -> str:
    """The text on one line, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTE else f"{line[: MAX_QUOTE - 1]}…"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
