"""Framings: bytes to frames for SSE, NDJSON, JSON arrays and AWS event streams, however the bytes are cut."""

from penstock.framing.aws import AWSFrames
from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Frames, Framing, Stray
from penstock.framing.json_array import JSONValues
from penstock.framing.ndjson import NDJSON
from penstock.framing.sniff import Body, FramingName
from penstock.framing.sse import SSE

__all__ = [
    "MAX_FRAME_BYTES",
    "NDJSON",
    "SSE",
    "AWSFrames",
    "Body",
    "Framed",
    "Frames",
    "Framing",
    "FramingName",
    "JSONValues",
    "Stray",
]
