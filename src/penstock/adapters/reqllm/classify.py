"""The functions of ReqLLM: classify a stream, extract its calls, and stream a response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict, Unpack

from penstock.adapters.reqllm.chunks import read_events
from penstock.adapters.responses import find_error
from penstock.agent.config import checked_model
from penstock.errors import ProviderError
from penstock.events import Error, FinishReason, ToolCall, Usage
from penstock.model.model import Model
from penstock.model.options import RequestOptions
from penstock.model.stream import Stream
from penstock.turn import Turn, collect
from penstock.wires import WireName


class StreamResult(TypedDict):
    """A classified response. `error` is why it is an "error": the request or the stream failed, or a call is broken."""

    type: Literal["tool_calls", "final_answer", "error"]
    text: str
    tool_calls: list[ToolCall]
    finish_reason: FinishReason | None
    error: ProviderError | Error | None


def classify(chunks: Iterable[Any], wire: WireName | None = None) -> StreamResult:
    """Classifies a stream: Penstock's events, ReqLLM's chunks as dicts, or, with `wire`, a provider's own chunks."""
    return _result(collect(read_events(chunks, wire)))


def extract(chunks: Iterable[Any], wire: WireName | None = None) -> list[ToolCall]:
    """The complete calls of a stream, with parsed arguments."""
    return classify(chunks, wire)["tool_calls"]


def stream_text_and_classify(
    model: Model | str, messages: Any, *, tools: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
) -> StreamResult:
    """Sends a request and classifies the response; a provider's failure is a result of the type "error"."""
    try:
        with checked_model(model).stream(messages, tools, **options) as stream:
            return _result(collect(stream))
    except ProviderError as error:
        return StreamResult(type="error", text="", tool_calls=[], finish_reason="error", error=error)


def _result(turn: Turn) -> StreamResult:
    """The turn in the three types that there are here: what is neither calls to run nor an answer is an error."""
    error = find_error(turn)
    kind: Any = turn.type if error is None else "error"
    return StreamResult(
        type=kind, text=turn.text, tool_calls=turn.tool_calls, finish_reason=turn.finish_reason, error=error
    )


class StreamResponse:
    """A response that is being streamed: iterate over `stream`; the other properties are None until they are known."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __repr__(self) -> str:
        return f"StreamResponse({self.stream!r})"

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the model stopped; None while it streams."""
        return self.stream.finish_reason

    @property
    def model(self) -> str | None:
        """The model that answered, as the provider names it."""
        return self.stream.model or None

    @property
    def usage(self) -> Usage | None:
        """The token counts."""
        return self.stream.usage


def stream_text(
    model: Model | str, messages: Any, *, tools: Iterable[Any] | None = None, **options: Unpack[RequestOptions]
) -> StreamResponse:
    """Sends a request; a failure before the first event is raised by reading the stream."""
    return StreamResponse(checked_model(model).stream(messages, tools, **options))
