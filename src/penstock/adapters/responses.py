"""What the adapters share: arguments as JSON text, and failed responses as errors."""

from __future__ import annotations

from penstock.agent.run_errors import provider_error
from penstock.events import Error, Finish, Retry, StreamChunk, ToolCall, ToolCallInvalid
from penstock.sentences import invalid_call
from penstock.turn import Turn


def json_arguments(call: ToolCall) -> str:
    """The arguments as a JSON object; providers may write nothing or `null` for a call without arguments."""
    return call.arguments_raw if call.arguments else "{}"


def find_error(turn: Turn) -> Error | None:
    """Why a response is neither calls to run nor an answer; None if it is one of them."""
    match turn.type:
        case "tool_calls" | "final_answer":
            return None
        case "invalid_calls":
            return _invalid(turn.invalid_calls[0])
        case "paused":
            return Error(f"the provider waits for the client: {turn.client_work}", turn.client_work)
        case "error":
            message = turn.finish_message or "the provider ended the response with an error"
            return turn.error or Error(message, turn.raw_finish_reason or "")


class Failures:
    """Raises what a stream of another shape has no chunk for: an error, and calls of which none can run."""

    def __init__(self) -> None:
        self._invalid: ToolCallInvalid | None = None
        self._has_calls = False

    def check(self, event: StreamChunk) -> None:
        """Raises a `ProviderError` for an error, or at the end of a response with nothing but invalid calls."""
        match event:
            case Error():
                raise provider_error(event)
            case ToolCall():
                self._has_calls = True
            case ToolCallInvalid():
                self._invalid = self._invalid or event
            case Retry():
                self._invalid, self._has_calls = None, False
            case Finish() if self._invalid is not None and not self._has_calls:
                raise provider_error(_invalid(self._invalid))
            case _:
                pass


def _invalid(call: ToolCallInvalid) -> Error:
    return Error(invalid_call(call), call.why)
