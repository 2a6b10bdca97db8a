"""Advice from the facts of a server: what is wrong with it for agents, and the settings that cure it."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from msgspec import Struct

from penstock.servers.facts import LABELS, ServerFacts, ServerKind

AGENT_WINDOW = 16_384
"""The window that coding agents need at least: their prompt and tools alone have 5,000 to 20,000 tokens."""
USUAL_WINDOW = 32_768
"""The window that is advised, if the model has it."""


class Advice(Struct, frozen=True, kw_only=True):
    """What is wrong or worth knowing, and what cures it: a sentence, and lines for a file or a shell."""

    what: str
    cure: str = ""
    lines: tuple[str, ...] = ()
    is_problem: bool = True


def advice_for(
    facts: ServerFacts, upstream: str, address: str, *, sets_window: bool, context: int, needs_tools: bool
) -> Iterator[Advice]:
    """The advice for a model of an upstream that answers, the problems first.

    `sets_window` if requests to it can set the window, which they do if `context` is configured. `address` is that of
    the server without the version of its API. It `needs_tools` unless calls are read from its text.
    """
    if facts.has_model is False:
        yield _missing_model(facts)
        return
    yield from _window(facts, upstream, address, sets_window=sets_window, context=context)
    if needs_tools and facts.tools is False:
        reason, command = _WITHOUT_TOOLS.get(facts.server, ("The model does not take tools.", ""))
        way = "xml" if facts.server == "sglang" else "auto"  # SGLang takes tools and does not parse calls: no error
        yield Advice(what=reason, cure=_IN_TEXT, lines=(f'calls = "{way}"', *([f"# or: {command}"] if command else [])))
    yield from _notes(facts)


def _missing_model(facts: ServerFacts) -> Advice:
    command = _PULLS.get(facts.server, "").format(model=quote(facts.model))
    cure = "Load it:" if command else "Use one of the models in its list."
    return Advice(what=f"The server has no model {facts.model!r}.", cure=cure, lines=(command,) if command else ())


_PULLS: dict[ServerKind, str] = {"ollama": "ollama pull {model}", "lmstudio": "lms get {model}"}


# The window.


def advised_window(facts: ServerFacts) -> int:
    """The window to set: a usual one, or the longest of the model."""
    return min(USUAL_WINDOW, facts.longest_window or USUAL_WINDOW)


def _window(facts: ServerFacts, upstream: str, address: str, *, sets_window: bool, context: int) -> Iterator[Advice]:
    if facts.longest_window is not None and facts.longest_window < AGENT_WINDOW:
        yield Advice(
            what=f"The model has a window of at most {facts.longest_window:,} tokens. Agents need {AGENT_WINDOW:,}.",
            cure="Use another model.",
        )
    elif facts.window is None:
        yield _unknown_window(facts, upstream, address, sets_window=sets_window)
    elif facts.window < AGENT_WINDOW:
        what = f"The window has {facts.window:,} tokens. Agents need {AGENT_WINDOW:,} or more"
        ends = {"cut": ", and the server drops the beginning of longer prompts.", "refused": "."}
        cured = _set_window(facts, upstream, address, sets_window=sets_window)
        yield Advice(what=f"{what}{ends.get(facts.overflow, '.')}", cure=cured.cure, lines=cured.lines)
    elif facts.overflow == "cut" and not context:
        yield Advice(
            what="The server drops the beginning of prompts that are longer than its window; /healed notes it.",
            cure="With `context` in gateway.toml, and the server's own protocol, such a request gets an error.",
            is_problem=False,
        )


def _unknown_window(facts: ServerFacts, upstream: str, address: str, *, sets_window: bool) -> Advice:
    cured = _set_window(facts, upstream, address, sets_window=sets_window)
    if facts.is_loaded is False:
        what = "The model is not loaded, so its window is not known"
        what += "; by default it has 4,096 tokens on small machines." if facts.overflow == "cut" else "."
        return Advice(what=what, cure=cured.cure, lines=cured.lines, is_problem=facts.overflow == "cut")
    declared = _toml(upstream, "context = 32768        # the window that the server was started with")
    return Advice(
        what="The server does not report its window.", cure="Declare it in gateway.toml:", lines=declared,
        is_problem=False,
    )  # fmt: skip


def _set_window(facts: ServerFacts, upstream: str, address: str, *, sets_window: bool) -> Advice:
    """How the window is set, as the cure of an advice."""
    window = advised_window(facts)
    if facts.server in _OWN_PROTOCOL:
        own = () if sets_window else (f'url = "{address}"', f'provider = "{_OWN_PROTOCOL[facts.server]}"')
        lines = _toml(upstream, *own, f"context = {window}")
        return Advice(what="", cure="Set it in gateway.toml, for each request:", lines=lines)
    command = _WINDOWS.get(facts.server)
    if command is None:
        return Advice(what="", cure=f"Start the server with a window of {window:,} tokens.")
    cure = "Load the model with:" if "{model} --context" in command else "Start the server with:"
    return Advice(what="", cure=cure, lines=(command.format(window=window, model=quote(facts.model)),))


_OWN_PROTOCOL: dict[ServerKind, str] = {"ollama": "ollama"}
"""The servers whose own protocol sets the window of a request, and its provider."""
_WINDOWS: dict[ServerKind, str] = {
    "llamacpp": "llama-server --ctx-size {window} …   (times --parallel, if that is set)",
    "lmstudio": "lms load {model} --context-length {window}",
    "sglang": "python -m sglang.launch_server --context-length {window} …",
    "vllm": "vllm serve {model} --max-model-len {window} …",
}


def _toml(upstream: str, *settings: str) -> tuple[str, ...]:
    name = upstream if upstream.replace("-", "").replace("_", "").isalnum() else f'"{upstream}"'
    return (f"[upstreams.{name}]", *settings)


# Tools.


_IN_TEXT = "Let the gateway ask for calls in the text, in gateway.toml or with --calls:"
_WITHOUT_TOOLS: dict[ServerKind, tuple[str, str]] = {
    "llamacpp": ("The chat template of the model has no tools.", "llama-server --jinja --chat-template-file FILE …"),
    "sglang": ("The server does not parse calls.", "python -m sglang.launch_server --tool-call-parser NAME …"),
    "ollama": ("The server refuses tools for this model.", ""),
}
"""Why there are no tools, and the command that starts the server with them."""


def _notes(facts: ServerFacts) -> Iterator[Advice]:
    label = LABELS[facts.server]
    if facts.actual_model:
        yield Advice(
            what=f"The server has no model {facts.model!r}: it answers for every name with {facts.actual_model!r}.",
            is_problem=False,
        )
    if facts.server in _UNKNOWN_PARSER:
        yield Advice(
            what=f"{label} does not report whether it parses calls.",
            cure="If calls arrive as text (the gateway rescues them), start it with:",
            lines=(_UNKNOWN_PARSER[facts.server],), is_problem=False,
        )  # fmt: skip
    if facts.tool_choices == "words":
        yield Advice(
            what=f"{label} does not take a tool choice by name; the gateway sends `required` with this tool alone.",
            is_problem=False,
        )
    elif facts.tool_choices == "none":
        yield Advice(
            what=f"{label} ignores tool choices; /healed notes it if a required call is missing.", is_problem=False
        )


_UNKNOWN_PARSER: dict[ServerKind, str] = {"vllm": "vllm serve … --enable-auto-tool-choice --tool-call-parser NAME"}
