"""Streaming tool calls: any provider's stream as one typed event stream."""

from penstock.accumulator import StreamingToolCallAccumulator
from penstock.consume import aconsume, consume
from penstock.decoder import Decoder, decode
from penstock.jsonstream import PartialJSON
from penstock.turn import Turn, classify, collect, extract

__all__ = [
    "Decoder",
    "PartialJSON",
    "StreamingToolCallAccumulator",
    "Turn",
    "aconsume",
    "classify",
    "collect",
    "consume",
    "decode",
    "extract",
]
