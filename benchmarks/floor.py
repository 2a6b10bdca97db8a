"""The floor: the minimum work of any reader of a stream, which is to split the frames and parse each once."""

from __future__ import annotations

import orjson


def floor(body: bytes) -> int:
    """Splits an SSE body and parses the JSON of each frame; returns the number of frames."""
    loads = orjson.loads
    count = 0
    for frame in body.split(b"\r\n\r\n" if body.endswith(b"\r\n\r\n") else b"\n\n"):
        at = frame.find(b"data: ")
        if at >= 0 and (data := frame[at + 6 :]) != b"[DONE]":
            loads(data)
            count += 1
    return count
