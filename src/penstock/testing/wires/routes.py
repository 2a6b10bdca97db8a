"""The paths of the scripted provider: which wire a request is for, and whether it asks for a stream."""

from __future__ import annotations

import re

ROUTES = tuple(
    (re.compile(path), wire)
    for path, wire in (
        (r"/mistral/(?:.*/)?chat/completions$", "mistral"),
        (r"/chat/completions$", "openai-chat"),
        (r"/responses$", "openai-responses"),
        (r"/messages$", "anthropic"),
        (r"/(?P<model>[^/]+):(?:streamRawPredict|rawPredict)$", "anthropic"),
        (r"/(?P<model>[^/]+):(?P<stream>stream)?[gG]enerateContent$", "gemini"),
        (r"/interactions$", "gemini-interactions"),
        (r"/api/chat$", "ollama"),
        (r"/chat$", "cohere"),
        (r"/model/(?P<model>.+)/converse(?P<stream>-stream)?$", "bedrock"),
    )
)
"""The ends of the paths of each wire."""
STREAMS_BY_PATH = ("gemini", "bedrock")
"""The wires whose path contains the model and whether to stream."""
PROTO_JSON = ("gemini",)
"""The wires with JSON of protocol buffers: names of fields may be in camel case or in snake case."""
STREAMS_BY_DEFAULT = ("ollama",)
"""The wires that stream if a request does not say whether to."""
BASES = {"openai-chat": "/v1", "openai-responses": "/v1", "mistral": "/mistral"}
"""The paths of the base URLs; empty for other wires."""
