"""The response that a stream has read so far: what `Stream` and `AsyncStream` share."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import AlreadyReadError, ProviderError
from penstock.events import Error, FinishReason, JSONValue, StreamChunk, ToolCall, Usage
from penstock.model.logs import log_wait
from penstock.redaction import without_secrets
from penstock.transport.commands import (
    Authorize,
    CloseConnection,
    Command,
    Commands,
    Deliver,
    OpenRequest,
    ReadBytes,
    Sleep,
    SteadyBody,
)
from penstock.transport.exchange import Exchange
from penstock.turn import Turn, TurnBuilder

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.output.output_type import OutputType
    from penstock.output.partial import PartialView

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")  # which has no default before Python 3.13

FOLD_SIZE = 50
"""How many chunks are folded into the turn at once, which is much faster than one by one."""


class Derived(Struct, frozen=True):
    """What is derived from a response: the output of a type, and the view of values while they stream."""

    output: OutputType[Any] | None = None
    view: PartialView | None = None


NOTHING = Derived()
"""Nothing is derived from the response."""


class StreamedResponse(Generic[Output]):
    """The response that a stream has read so far, and the loop over the commands of its exchange."""

    def __init__(self, exchange: Exchange, derived: Derived) -> None:
        self._view = derived.view
        self._output = derived.output
        self._outcome: Any = None  # the validated output or its error, once the response has ended
        self._commands: Commands = exchange.commands()
        self._clock = exchange.clock
        self._builder: TurnBuilder | None = None  # builds the turn, once somebody reads the chunks or asks for it
        self._unfolded: list[StreamChunk] = []  # chunks that are not yet in the builder
        self._before_loop: list[StreamChunk] | None = []  # chunks that entering `with` read; None at the end
        self._body: SteadyBody | None = None  # the rest of the response, when it has begun
        self._is_read = False
        self._is_closed = False
        self._url = without_secrets(exchange.request.url)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} from {self._url}: {'read' if self._is_read else 'not read yet'}>"

    @property
    def turn(self) -> Turn[Output]:
        """The response as a `Turn`; while it is read, what has come so far."""
        turn: Any = self._fold().build(is_live=not self._is_closed)
        if self._output is not None:
            turn = replace(turn, outcome=self._find_outcome(self._output, turn))
        response: Turn[Output] = turn
        return response

    @property
    def output(self) -> Output:
        """The text, or the structured output, which raises an `OutputError` if there is none that is valid yet."""
        return self.turn.output

    @property
    def partial(self) -> JSONValue | None:
        """The structured output so far: JSON that grows in place, in which complete fields have their types."""
        return None if self._view is None else self._view.value

    @property
    def text(self) -> str:
        """The visible text."""
        return self.turn.text

    @property
    def reasoning(self) -> str:
        """The reasoning, if the provider shows it."""
        return self.turn.reasoning

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The complete tool calls, in order."""
        return self.turn.tool_calls

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the model stopped; None until the response has ended, "cut" if you closed the stream before."""
        return self.turn.finish_reason

    @property
    def model(self) -> str:
        """The model that answered, as the provider names it; empty until the response has ended, or if it does not."""
        return self.turn.model

    @property
    def usage(self) -> Usage | None:
        """The token counts, if the provider has sent them."""
        return self.turn.usage

    @property
    def error(self) -> Error | None:
        """The first error in the response, if any."""
        return self.turn.error

    def _find_outcome(self, output: OutputType[Any], turn: Turn[Any]) -> Any:
        """The outcome of the output, which is validated once."""
        if self._outcome is not None:
            return self._outcome
        from penstock.output.find import outcome_of

        outcome = outcome_of(output, turn)
        self._outcome = outcome if self._is_closed else None
        return outcome

    def _fold_many(self) -> None:
        if len(self._unfolded) >= FOLD_SIZE:
            self._fold()

    def _fold(self) -> TurnBuilder:
        self._builder = builder = self._builder or TurnBuilder()
        for chunk in self._unfolded:
            builder.add(chunk)
        self._unfolded.clear()
        return builder

    def _begin_reading(self) -> None:
        if self._is_read:
            raise AlreadyReadError(
                "a stream can be read only once; send the request again, or keep the chunks in a list"
            )
        self._is_read = True

    async def _advance(self, result: Any = None, error: ProviderError | None = None) -> list[StreamChunk] | None:
        """Carry out commands until there are chunks to deliver; None at the end of the exchange."""
        while (command := await self._step(result, error)) is not None:
            if isinstance(command, Deliver):
                self._body = command.body
                return command.chunks
            if isinstance(command, Sleep):
                log_wait(self._url, command)
            try:
                result, error = await self._carry_out(command), None
            except ProviderError as failure:
                result, error = None, failure
        return None

    async def _step(self, result: Any, error: ProviderError | None) -> Command | None:
        """The next command, in sync code at once."""
        return self._next(result, error)

    def _next(self, result: Any, error: ProviderError | None) -> Command | None:
        """The next command; None at the end of the exchange."""
        try:
            return self._commands.throw(error) if error is not None else self._commands.send(result)
        except StopIteration:
            return None

    def _carry_out(self, command: Authorize | OpenRequest | ReadBytes | Sleep | CloseConnection) -> Awaitable[Any]:
        raise NotImplementedError
