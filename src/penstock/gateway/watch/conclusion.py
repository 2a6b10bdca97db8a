"""A response that the gateway writes itself, without a request to an upstream."""

from __future__ import annotations

import time

from msgspec.structs import replace

from penstock.asgi.response import JSON
from penstock.events import Finish, StreamChunk, Text, Usage
from penstock.history.client_request import ClientRequest
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import EncodedResponse


def conclusion(text: str) -> list[StreamChunk]:
    """The events of a response that is only this text."""
    return [Text(0, text), Usage(), Finish("stop")]


def encode_conclusion(request: ClientRequest, model: str, id: str, chunks: list[StreamChunk]) -> EncodedResponse:
    """The response in the protocol of the client, streamed or whole; its headers have the type."""
    frames = find_response_frames(request.wire)
    head = replace(request.head(id, int(time.time()), has_custom_tools=True), model=model)
    if not request.settings.is_streaming:
        encoded = encode_body(frames, chunks, head)
        return replace(encoded, headers={**encoded.headers, "content-type": JSON})
    encoder = ResponseEncoder(frames(head))
    return EncodedResponse(200, encoder.feed(chunks) + encoder.close(), {"content-type": frames.format.content_type})
