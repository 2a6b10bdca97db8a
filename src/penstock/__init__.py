"""Streaming tool calls: any provider's stream as one typed event stream.

Names are imported when they are first used, so that `import penstock` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__: str

if TYPE_CHECKING:
    from penstock import gateway as gateway
    from penstock import hooks as hooks
    from penstock import log as log
    from penstock import serve as serve
    from penstock.adapters.accumulator import StreamingToolCallAccumulator
    from penstock.adapters.consume import aconsume, consume
    from penstock.adapters.xml_parser import StreamingXMLParser
    from penstock.agent.agent import Agent
    from penstock.agent.agent_run import AgentRun, AsyncAgentRun
    from penstock.agent.pending_call import PendingCall
    from penstock.agent.run_result import RunResult
    from penstock.agent.step import Step
    from penstock.agent.streamer import AgentStreamer
    from penstock.calls.partial_calls import PartialToolCall
    from penstock.calls.sources import Source, Sources
    from penstock.decoder import Decoder, decode
    from penstock.dialects.parser import TextParser
    from penstock.dialects.provenance import Provenance
    from penstock.dialects.rescue import Rescue
    from penstock.dialects.stage import TextCalls
    from penstock.errors import (
        AlreadyReadError,
        ArgumentsError,
        AuthenticationError,
        BadRequestError,
        ConnectionFailed,
        ContextLengthError,
        GuardError,
        HookError,
        MissingKeyError,
        NotFoundError,
        OutputError,
        OverloadedError,
        PenstockError,
        ProgramError,
        ProviderError,
        RateLimitError,
        ReplayMissError,
        TimedOut,
        ToolError,
        UnexpectedReplyError,
        UnknownDialectError,
        UnknownNameError,
        UnknownOptionError,
        UnknownProviderError,
        UnknownWireError,
        UsageError,
    )
    from penstock.events import (
        ArgumentDelta,
        Error,
        Finish,
        JSONValue,
        Opaque,
        OutputDelta,
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
    from penstock.guard.guard import Guard, GuardContext, StopRun
    from penstock.healing.settings import Healing
    from penstock.history.check import check
    from penstock.history.export import export_messages
    from penstock.history.problem import Problem
    from penstock.history.read import as_messages
    from penstock.history.repair import Repaired, repair
    from penstock.jsontext.partial import JSONPiece, PartialJSON
    from penstock.log.store import DamagedRunError, LostRunError, RunExistsError, StoreError, UnknownRunError
    from penstock.messages import File, History, Image, Message, ToolResult
    from penstock.model.known_models import KnownModel
    from penstock.model.model import Model
    from penstock.model.options import RequestOptions
    from penstock.model.render import render
    from penstock.model.stream import AsyncStream, Stream
    from penstock.prices import Prices
    from penstock.providers import ProviderName
    from penstock.run.events import (
        ApprovalRequest,
        Decision,
        Done,
        HistoryReplaced,
        Nested,
        OutputInvalid,
        Reset,
        Said,
        StepEnd,
        StepStart,
        StreamEvent,
        ToolEnd,
        ToolPrepare,
        ToolProgress,
        ToolResults,
        ToolStart,
    )
    from penstock.run.limits import Limits
    from penstock.runs.runs import Runs
    from penstock.tools.growing import Growing
    from penstock.tools.prepare import Prepared
    from penstock.tools.tool import Context, Tool, ToolOutput, as_tool, tool
    from penstock.transport.policy import Retries, Timeouts
    from penstock.transport.shared import aclose, close
    from penstock.turn import Turn, classify, collect, extract
    from penstock.wires import WireName
    from penstock.wires.shared.request import ModelOptions

_HOMES = {
    "adapters.accumulator": ("StreamingToolCallAccumulator",),
    "agent.agent": ("Agent",),
    "agent.agent_run": ("AgentRun", "AsyncAgentRun"),
    "agent.run_result": ("RunResult",),
    "agent.pending_call": ("PendingCall",),
    "agent.step": ("Step",),
    "agent.streamer": ("AgentStreamer",),
    "adapters.consume": ("aconsume", "consume"),
    "calls.partial_calls": ("PartialToolCall",),
    "calls.sources": ("Source", "Sources"),
    "decoder": ("Decoder", "decode"),
    "dialects.parser": ("TextParser",),
    "dialects.provenance": ("Provenance",),
    "dialects.rescue": ("Rescue",),
    "dialects.stage": ("TextCalls",),
    "adapters.xml_parser": ("StreamingXMLParser",),
    "errors": (
        "AlreadyReadError", "ArgumentsError", "AuthenticationError", "BadRequestError",
        "ConnectionFailed", "ContextLengthError", "GuardError", "HookError", "MissingKeyError", "NotFoundError",
        "OutputError", "OverloadedError", "PenstockError", "ProgramError", "ProviderError", "RateLimitError",
        "ReplayMissError", "TimedOut", "ToolError", "UnexpectedReplyError",
        "UnknownDialectError", "UnknownNameError", "UnknownOptionError", "UnknownProviderError", "UnknownWireError",
        "UsageError",
    ),
    "events": (
        "ArgumentDelta", "Error", "Finish", "JSONValue", "Opaque", "OutputDelta", "Reasoning", "Refusal", "Retry",
        "StreamChunk", "Text", "ToolCall", "ToolCallClosed", "ToolCallDelta", "ToolCallInvalid", "ToolCallStart",
        "Unknown", "Usage",
    ),
    "run.events": (
        "ApprovalRequest", "Decision", "Done", "HistoryReplaced", "Nested", "OutputInvalid", "Reset", "Said", "StepEnd",
        "StepStart", "StreamEvent",
        "ToolEnd", "ToolPrepare", "ToolProgress", "ToolResults", "ToolStart",
    ),
    "guard.guard": ("Guard", "GuardContext", "StopRun"),
    "healing.settings": ("Healing",),
    "history.check": ("check",),
    "history.export": ("export_messages",),
    "history.problem": ("Problem",),
    "history.read": ("as_messages",),
    "history.repair": ("Repaired", "repair"),
    "jsontext.partial": ("JSONPiece", "PartialJSON"),
    "log.store": ("DamagedRunError", "LostRunError", "RunExistsError", "StoreError", "UnknownRunError"),
    "messages": ("File", "History", "Image", "Message", "ToolResult"),
    "model.known_models": ("KnownModel",),
    "model.model": ("Model",),
    "model.options": ("RequestOptions",),
    "model.render": ("render",),
    "providers": ("ProviderName",),
    "prices": ("Prices",),
    "run.limits": ("Limits",),
    "runs.runs": ("Runs",),
    "model.stream": ("AsyncStream", "Stream"),
    "tools.growing": ("Growing",),
    "tools.prepare": ("Prepared",),
    "tools.tool": ("Context", "Tool", "ToolOutput", "as_tool", "tool"),
    "transport.policy": ("Retries", "Timeouts"),
    "transport.shared": ("aclose", "close"),
    "turn": ("Turn", "classify", "collect", "extract"),
    "wires": ("WireName",),
    "wires.shared.request": ("ModelOptions",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = ("gateway", "hooks", "log", "mcp", "serve", "tracing")  # which have public names of their own


if not TYPE_CHECKING:  # type checkers see only the names above

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("penstock-llm")
        if name in _PACKAGES:
            return import_module(f"penstock.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"penstock.{_HOME[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Agent",
    "AgentRun",
    "AgentStreamer",
    "AlreadyReadError",
    "ApprovalRequest",
    "ArgumentDelta",
    "ArgumentsError",
    "AsyncAgentRun",
    "AsyncStream",
    "AuthenticationError",
    "BadRequestError",
    "ConnectionFailed",
    "Context",
    "ContextLengthError",
    "DamagedRunError",
    "Decision",
    "Decoder",
    "Done",
    "Error",
    "File",
    "Finish",
    "Growing",
    "Guard",
    "GuardContext",
    "GuardError",
    "Healing",
    "History",
    "HistoryReplaced",
    "HookError",
    "Image",
    "JSONPiece",
    "JSONValue",
    "KnownModel",
    "Limits",
    "LostRunError",
    "Message",
    "MissingKeyError",
    "Model",
    "ModelOptions",
    "Nested",
    "NotFoundError",
    "Opaque",
    "OutputDelta",
    "OutputError",
    "OutputInvalid",
    "OverloadedError",
    "PartialJSON",
    "PartialToolCall",
    "PendingCall",
    "PenstockError",
    "Prepared",
    "Prices",
    "Problem",
    "ProgramError",
    "Provenance",
    "ProviderError",
    "ProviderName",
    "RateLimitError",
    "Reasoning",
    "Refusal",
    "Repaired",
    "ReplayMissError",
    "RequestOptions",
    "Rescue",
    "Reset",
    "Retries",
    "Retry",
    "RunExistsError",
    "RunResult",
    "Runs",
    "Said",
    "Source",
    "Sources",
    "Step",
    "StepEnd",
    "StepStart",
    "StopRun",
    "StoreError",
    "Stream",
    "StreamChunk",
    "StreamEvent",
    "StreamingToolCallAccumulator",
    "StreamingXMLParser",
    "Text",
    "TextCalls",
    "TextParser",
    "TimedOut",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolCallClosed",
    "ToolCallDelta",
    "ToolCallInvalid",
    "ToolCallStart",
    "ToolEnd",
    "ToolError",
    "ToolOutput",
    "ToolPrepare",
    "ToolProgress",
    "ToolResult",
    "ToolResults",
    "ToolStart",
    "Turn",
    "UnexpectedReplyError",
    "Unknown",
    "UnknownDialectError",
    "UnknownNameError",
    "UnknownOptionError",
    "UnknownProviderError",
    "UnknownRunError",
    "UnknownWireError",
    "Usage",
    "UsageError",
    "WireName",
    "aclose",
    "aconsume",
    "as_messages",
    "as_tool",
    "check",
    "classify",
    "close",
    "collect",
    "consume",
    "decode",
    "export_messages",
    "extract",
    "render",
    "repair",
    "tool",
]
