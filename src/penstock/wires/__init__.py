"""The wires: one folder per provider protocol. A wire is imported when it is first used."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock.errors import UnknownWireError

if TYPE_CHECKING:
    from penstock.wires.shared.decode_request.message_reader import RequestReader
    from penstock.wires.shared.decode_request.request_settings import ReadSettings
    from penstock.wires.shared.decode_response.wire import Wire
    from penstock.wires.shared.encode_response.response_frames import ResponseFrames
    from penstock.wires.shared.facts import RunsHere, WireFacts
    from penstock.wires.shared.habits import FindHabits
    from penstock.wires.shared.request import ChooseForm, Encode, LeftOut, OutputFields
    from penstock.wires.shared.token_counts import TokenCounter
    from penstock.wires.shared.web_tools import WebForm

WireName = Literal[
    "anthropic", "bedrock", "cohere", "gemini", "gemini-interactions", "mistral", "ollama", "openai-chat",
    "openai-responses",
]  # fmt: skip
"""The names of the wires, and their aliases."""

WIRES = {
    "anthropic": "Anthropic",
    "bedrock": "Bedrock",
    "cohere": "Cohere",
    "gemini": "Gemini",
    "gemini-interactions": "GeminiInteractions",
    "ollama": "Ollama",
    "openai-chat": "OpenAIChat",
    "openai-responses": "OpenAIResponses",
}
"""The wires by name, and the class in the `decode_response` of each."""

RESPONSE_FRAMES = {
    "anthropic": ("anthropic", "encode_response", "AnthropicFrames"),
    "bedrock": ("bedrock", "encode_response", "BedrockFrames"),
    "cohere": ("cohere", "encode_response", "CohereFrames"),
    "gemini": ("gemini", "encode_response", "GeminiFrames"),
    "gemini-interactions": ("gemini-interactions", "encode_response", "GeminiInteractionsFrames"),
    "mistral": ("openai-chat", "encode_mistral", "MistralFrames"),
    "ollama": ("ollama", "encode_response", "OllamaFrames"),
    "openai-chat": ("openai-chat", "encode_response", "OpenAIChatFrames"),
    "openai-responses": ("openai-responses", "encode_response", "OpenAIResponsesFrames"),
}
"""The protocols in which responses are written: the wire of each, its module and its class."""

SERVED_WIRES = ("anthropic", "gemini", "gemini-interactions", "ollama", "openai-chat", "openai-responses")
"""The wires whose requests can be read as a server receives them."""

READING_ORDER = (
    "gemini", "bedrock", "gemini-interactions", "openai-responses", "cohere", "anthropic", "ollama", "openai-chat",
)  # fmt: skip
"""The order in which wires are asked whether a message of a history is theirs, the most general wire last."""

WITH_HABITS = ("openai-chat",)
"""The wires that many servers speak, each with habits of its own."""

WITH_TOKEN_COUNTS = ("anthropic", "gemini", "openai-responses")
"""The wires with an endpoint that counts the tokens of a request."""

WITH_WEB_TOOLS = ("anthropic", "openai-responses")
"""The wires whose servers run web tools, and show their calls and results."""

WITH_WEBSOCKETS = ("openai-responses",)
"""The wires that are also spoken over WebSocket."""

WITH_CLIENT_CALLS = ("openai-responses",)
"""The wires on which a call that the client runs may be vendor state, followed by its `ToolCall`."""

ALIASES = {"mistral": "openai-chat"}
"""Other names of wires."""


def wire_name(name: object) -> WireName:
    """The own name of the wire with this name or alias; raises an `UnknownWireError` if there is none."""
    if isinstance(name, str) and name in WIRES:
        return cast("WireName", name)
    known: Any = ALIASES.get(name) if isinstance(name, str) else None
    if known is None:
        raise UnknownWireError(name, (*WIRES, *ALIASES))
    return cast("WireName", known)


def find_wire(name: object) -> type[Wire]:
    """The wire with this name or alias."""
    known = wire_name(name)
    wire: type[Wire] = getattr(_module(known, "decode_response"), WIRES[known])
    return wire


def find_output_form(wire: str) -> ChooseForm:
    """The function that chooses how a model is asked for structured output on a wire."""
    output_form: ChooseForm = _module(wire, "encode_request").output_form
    return output_form


def find_encoder(wire: str) -> Encode:
    """The function that encodes requests for a wire."""
    encode: Encode = _module(wire, "encode_request").encode
    return encode


def find_output_fields(wire: str) -> OutputFields:
    """The function that writes the fields of a wire's requests that ask for an answer in a format."""
    fields: OutputFields = _module(wire, "encode_request").output_fields
    return fields


def find_left_out(wire: str) -> LeftOut:
    """The function that names the settings of a request which its encoding for a wire leaves out."""
    left_out: LeftOut = _module(wire, "encode_request").left_out
    return left_out


def find_settings_reader(wire: str) -> ReadSettings:
    """The function that reads the settings of requests of a wire that a server can speak."""
    if wire not in SERVED_WIRES:
        raise UnknownWireError(wire, SERVED_WIRES)
    read: ReadSettings = _module(wire, "decode_request").read_settings
    return read


def find_habits(wire: str) -> FindHabits | None:
    """The function that finds the habits of a server in its frames; None if the wire has none."""
    if wire_name(wire) not in WITH_HABITS:
        return None
    find: FindHabits = _module(wire_name(wire), "habits").find_habits
    return find


def find_token_counter(wire: str) -> TokenCounter | None:
    """The endpoint of a wire that counts tokens; None if it has none."""
    if wire_name(wire) not in WITH_TOKEN_COUNTS:
        return None
    counter: TokenCounter = _module(wire_name(wire), "count_tokens").COUNTER
    return counter


def find_web_form(wire: str) -> WebForm | None:
    """The blocks in which a wire has web tools that its server runs; None if it has none."""
    if wire_name(wire) not in WITH_WEB_TOOLS:
        return None
    form: WebForm = _module(wire_name(wire), "web_tools").FORM
    return form


def find_websocket(wire: str) -> Any:
    """The rules for the frames of a wire over WebSocket; None if it is not spoken there."""
    return _module(wire, "websocket").FRAMES if wire in WITH_WEBSOCKETS else None


def find_client_calls(wire: str) -> RunsHere | None:
    """The function that finds calls in vendor state that the client runs; None if the wire has no such calls."""
    if wire not in WITH_CLIENT_CALLS:
        return None
    runs_here: RunsHere = _module(wire, "client_calls").runs_here
    return runs_here


def find_response_frames(protocol: str) -> type[ResponseFrames]:
    """The class that writes the frames of responses of a protocol."""
    if protocol not in RESPONSE_FRAMES:
        raise UnknownWireError(protocol, RESPONSE_FRAMES)
    wire, module, name = RESPONSE_FRAMES[protocol]
    frames: type[ResponseFrames] = getattr(_module(wire, module), name)
    return frames


@cache
def error_statuses() -> dict[str, int]:
    """The HTTP statuses of the codes of errors of all protocols."""
    statuses: dict[str, int] = {}
    for protocol in RESPONSE_FRAMES:
        for status, code in find_response_frames(protocol).format.error_codes.items():
            statuses.setdefault(code, status)
    return statuses


@cache
def all_readers() -> dict[str, RequestReader]:
    """The readers of requests of every wire, by its name, in the order in which they are asked."""
    return {wire: _module(wire, "decode_request").READER for wire in READING_ORDER}


@cache
def all_facts() -> dict[str, WireFacts]:
    """The facts of every wire, by its name."""
    return {wire: _module(wire, "facts").FACTS for wire in WIRES}


def find_facts(wire: str) -> WireFacts:
    """The facts of a wire; the defaults if there is no such wire, as a stored history may name any."""
    from penstock.wires.shared.facts import WireFacts

    return all_facts().get(wire) or WireFacts(wire=wire)


@cache
def _module(wire: str, name: str) -> Any:
    return import_module(f"penstock.wires.{wire.replace('-', '_')}.{name}")


__all__ = [
    "ALIASES", "READING_ORDER", "RESPONSE_FRAMES", "SERVED_WIRES", "WIRES", "WireName", "all_facts", "all_readers",
    "error_statuses", "find_client_calls", "find_encoder", "find_facts", "find_habits", "find_left_out",
    "find_output_fields", "find_output_form", "find_response_frames", "find_settings_reader", "find_token_counter",
    "find_web_form", "find_websocket", "find_wire", "wire_name",
]  # fmt: skip
