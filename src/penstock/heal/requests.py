"""Which requests have responses that can be healed, by their paths, and what their bodies ask for."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec import Struct

from penstock.heal.plain_calls import PlainCalls
from penstock.heal.plain_frames import FrameRules, GeminiRules, MessagesRules, OllamaRules, ResponsesRules
from penstock.history.client_request import ClientRequest, decode_request

MAX_REQUEST = 64 * 1024 * 1024
"""How many bytes a request may have to be looked at; the response to a larger one passes unchanged."""

_PATHS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"/chat/completions$"), "openai-chat"),
    (re.compile(r"/responses$"), "openai-responses"),
    (re.compile(r"/v1/messages$"), "anthropic"),
    (re.compile(r"/models/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$"), "gemini"),
    (re.compile(r"/api/chat$"), "ollama"),
)
"""The paths of the protocols, by how they end: a server may have them below any prefix."""


_FORMS = (("mistral-client", "openai-chat", "mistral"),)
"""SDKs that read only their vendor's form of a protocol: how their user agent begins, the protocol, and that form."""


_RULES: Mapping[str, Callable[[], FrameRules]] = {
    "openai-chat": PlainCalls,
    "mistral": partial(PlainCalls, only_whole=True),
    "openai-responses": ResponsesRules,
    "anthropic": MessagesRules,
    "gemini": GeminiRules,
    "ollama": OllamaRules,
}
"""The rules of each form, by which it is known whether its client reads a frame as we do."""


class HealableRequest(Struct, frozen=True):
    """A request whose response can be healed."""

    wire: str
    request: ClientRequest
    digest: str
    """A few characters that differ from those of the other requests of a conversation."""
    form: str
    """The form of the protocol that the client reads."""

    def frame_rules(self) -> FrameRules:
        """The rules for the frames of its response."""
        return _RULES[self.form]()

    @property
    def is_streaming(self) -> bool:
        return self.request.settings.is_streaming


def read_request(method: str, path: str, query: str, body: bytes, user_agent: str = "") -> HealableRequest | None:
    """The request if its response can be healed; None for any other, and for one that is not valid."""
    if method != "POST" or not body or len(body) > MAX_REQUEST:
        return None
    found = next(((match, wire) for pattern, wire in _PATHS if (match := pattern.search(path))), None)
    if found is None:
        return None
    fields, wire = found[0].groupdict(), found[1]
    is_streaming = fields["method"].startswith("stream") if "method" in fields else None
    if is_streaming and "alt=sse" not in query:  # a JSON array, which clients of Python do not ask for
        return None
    try:
        value = msgspec.json.decode(body)
        request = decode_request(value, wire, fields.get("model", ""), is_streaming)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):  # a `UsageError` is a ValueError, too
        return None
    forms = {protocol: form for agent, protocol, form in _FORMS if user_agent.startswith(agent)}
    return HealableRequest(wire, request, f"{zlib.crc32(body):08x}", forms.get(wire, wire))
