"""msgflux: its typed chunks and events, a parser with tools as dicts, and its `AgentStreamer`."""

from penstock.adapters.msgflux.agent_streamer import AgentStreamer, StreamEvent
from penstock.adapters.msgflux.chunks import ChatCompletionModel, StreamChunk, ToolCallBuffer, ToolCallComplete
from penstock.adapters.msgflux.parser import ParserState, StreamingXMLParser

__all__ = [
    "AgentStreamer",
    "ChatCompletionModel",
    "ParserState",
    "StreamChunk",
    "StreamEvent",
    "StreamingXMLParser",
    "ToolCallBuffer",
    "ToolCallComplete",
]
