"""Streaming tool calls: any provider's stream as one typed event stream.

Names are imported when they are first used, so that `import penstock` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__: str

if TYPE_CHECKING:
    from penstock.accumulator import StreamingToolCallAccumulator
    from penstock.callbacks import aconsume, consume
    from penstock.decoder import Decoder, decode
    from penstock.dialects.parser import TextParser
    from penstock.dialects.stage import Rescue, TextCalls
    from penstock.dialects.xml_parser import StreamingXMLParser
    from penstock.errors import PenstockError, UnknownDialectError, UnknownWireError, UsageError
    from penstock.events import (
        Error,
        Finish,
        Opaque,
        Reasoning,
        Refusal,
        Retry,
        StreamChunk,
        Text,
        ToolCall,
        ToolCallClosed,
        ToolCallDelta,
        ToolCallInvalid,
        ToolCallStart,
        Unknown,
        Usage,
    )
    from penstock.jsonstream import JSONPiece, PartialJSON
    from penstock.turn import Turn, classify, collect, extract

_HOMES = {
    "accumulator": ("StreamingToolCallAccumulator",),
    "callbacks": ("aconsume", "consume"),
    "decoder": ("Decoder", "decode"),
    "dialects.parser": ("TextParser",),
    "dialects.stage": ("Rescue", "TextCalls"),
    "dialects.xml_parser": ("StreamingXMLParser",),
    "errors": ("PenstockError", "UnknownDialectError", "UnknownWireError", "UsageError"),
    "events": (
        "Error", "Finish", "Opaque", "Reasoning", "Refusal", "Retry", "StreamChunk", "Text", "ToolCall",
        "ToolCallClosed", "ToolCallDelta", "ToolCallInvalid", "ToolCallStart", "Unknown", "Usage",
    ),
    "jsonstream": ("JSONPiece", "PartialJSON"),
    "turn": ("Turn", "classify", "collect", "extract"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker should see the names above, and no others

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("penstock")
        if name not in _HOME:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"penstock.{_HOME[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Decoder",
    "Error",
    "Finish",
    "JSONPiece",
    "Opaque",
    "PartialJSON",
    "PenstockError",
    "Reasoning",
    "Refusal",
    "Rescue",
    "Retry",
    "StreamChunk",
    "StreamingToolCallAccumulator",
    "StreamingXMLParser",
    "Text",
    "TextCalls",
    "TextParser",
    "ToolCall",
    "ToolCallClosed",
    "ToolCallDelta",
    "ToolCallInvalid",
    "ToolCallStart",
    "Turn",
    "Unknown",
    "UnknownDialectError",
    "UnknownWireError",
    "Usage",
    "UsageError",
    "aconsume",
    "classify",
    "collect",
    "consume",
    "decode",
    "extract",
]
