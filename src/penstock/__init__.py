"""Streaming tool calls: any provider's stream as one typed event stream."""

from penstock.decoder import Decoder
from penstock.jsonstream import PartialJSON

__all__ = ["Decoder", "PartialJSON"]
