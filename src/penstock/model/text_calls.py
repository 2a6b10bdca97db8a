"""Tool calls in the text of a response: the prompt that asks for them, and the stage that finds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.decoder import Decoder
from penstock.errors import UsageError
from penstock.events import Confirm, Progress, StreamChunk
from penstock.messages import Message
from penstock.providers import Provider
from penstock.transport.exchange import Decoding
from penstock.wires import WireName
from penstock.wires.shared.encode_request.body import chosen_tool
from penstock.wires.shared.request import Request

if TYPE_CHECKING:
    from penstock.dialects.provenance import Provenance
    from penstock.dialects.sources.deferred_text import DeferredText
    from penstock.healing.parts import EventParts
    from penstock.healing.settings import Healing


Calls = str | tuple[str, ...]
"""`native`, or the dialect that the text is read in, or several; the prompt is that of the first."""


def choose_calls(calls: Any, model: str, provider: Provider) -> Calls:
    """The dialects to read; for `auto`, native calls if the provider has them, otherwise the dialect of the model."""
    if isinstance(calls, str) and calls != "auto":
        return calls
    if calls == "auto":
        return "native" if provider.has_native_calls else dialect_of(model)
    names = tuple(calls)
    if not names or any(not isinstance(name, str) or name in ("native", "auto") for name in names):
        raise UsageError(f"calls must be 'native', 'auto', a dialect, or several dialects, not {calls!r}")
    return names[0] if len(names) == 1 else names


def dialect_of(model: str) -> str:
    """The dialect of a model, by its name; raises a `UsageError` if it is not known."""
    from penstock.dialects.by_model import find_dialect_of

    if (dialect := find_dialect_of(model)) is None:
        raise UsageError(f"calls='auto': the dialect of the model {model!r} is not known; try calls='xml'")
    return dialect


class CallOptions(Struct, frozen=True):
    """How calls arrive: natively, or in the text, in the dialects `calls` or by mistake (`rescue`).

    `id_prefix` starts the ids of calls that arrive without one. `confirm` says when a call with raw values counts.
    `healing` repairs more than the text.
    """

    calls: Calls
    rescue: bool | Iterable[str]
    id_prefix: str
    confirm: Confirm = "end"
    healing: Healing | None = None


def prompt_for_calls(calls: Calls, request: Request, messages: list[Message]) -> Request:
    """The request for a model that writes its calls in a dialect: the first, if there are several."""
    from penstock.dialects.prompt import find_prompt, render, with_choice

    dialect, tools = calls if isinstance(calls, str) else calls[0], list(request.tools)
    stop = request.options.get("stop") or ()
    stops = [*([stop] if isinstance(stop, str) else stop), *(find_prompt(dialect).stop if tools else ())]
    rendered = render(messages, tools, dialect)
    if tools:
        chosen_tool(request)  # raises if it is not declared
        rendered = with_choice(rendered, request.tool_choice, request.is_parallel)
    options = {**request.options, "stop": stops} if stops else request.options
    return replace(request, messages=tuple(rendered), tools=(), tool_choice="", is_parallel=None, options=options)


def refuse_rescue(calls: Calls, rescue: bool | Iterable[str]) -> None:
    """Raise if `rescue` is passed together with the dialect that the text is read in."""
    if calls != "native" and rescue:
        raise UsageError(
            f"rescue finds calls that leaked into the text of a model with native calls; with calls={calls!r} all "
            "calls are in the text: remove rescue, or calls"
        )


def check_healing(calls: Calls, rescue: bool | Iterable[str], healing: Any) -> None:
    """Raise if `healing` is passed together with its shorthand, or with the dialect that the text is read in."""
    if healing is None:
        return
    from penstock.healing.settings import Healing

    if not isinstance(healing, Healing):
        raise UsageError(f"healing must be a penstock.Healing, not {healing!r}")
    if rescue:
        raise UsageError("rescue is a part of healing: pass healing=Healing(rescue=…), without rescue")
    if calls != "native":
        raise UsageError(f"healing is for a model with native calls: remove it, or calls={calls!r}")


def conversation(
    calls: Calls, rescue: bool | Iterable[str], messages: list[Message], fields: Mapping[str, Any]
) -> Provenance | None:
    """What calls in the text are compared with: messages, and the fields that the caller added to the request.

    None if there is nothing to find in the text.
    """
    refuse_rescue(calls, rescue)
    if calls == "native" and not rescue:
        return None
    from penstock.dialects.provenance import Provenance

    return Provenance(messages, fields)


def find_calls(
    decoder: Decoder,
    options: CallOptions,
    tools: list[ToolDeclaration],
    provenance: Provenance | None,
    *,
    is_structured: bool,
) -> Decoding:
    """The decoder, with a stage behind it that finds calls in the text if `calls` or `rescue` asks for it."""
    calls, rescue = options.calls, options.rescue
    if calls == "native" and not (rescue and tools):
        return decoder
    from penstock.dialects.rescue import LEAKS, Rescue
    from penstock.dialects.sources.deferred_text import DeferredText
    from penstock.dialects.stage import TextCalls
    from penstock.dialects.wrong_dialect import WrongDialect
    from penstock.healing.parts import EventParts

    if calls != "native":
        text_calls = TextCalls(
            calls, tools, reasoning=True, id_prefix=options.id_prefix, provenance=provenance, confirm=options.confirm,
            is_structured=is_structured,
        )  # fmt: skip
        return StagedDecoding(
            decoder, text_calls, WrongDialect(calls, tools), deferred=DeferredText.of(text_calls, provenance),
            parts=EventParts(),
        )  # fmt: skip
    dialects = LEAKS if rescue is True else rescue or ()
    prefix = f"text_{options.id_prefix}"
    stage = Rescue(tools, dialects, id_prefix=prefix, provenance=provenance, is_structured=is_structured)
    return StagedDecoding(decoder, stage, deferred=DeferredText.of(stage, provenance), parts=EventParts())


def heal_response(
    decoder: Decoder, options: CallOptions, request: Request, wire: WireName, tools: list[ToolDeclaration]
) -> Decoding:
    """The decoder, with the stages behind it that `healing` asks for."""
    from penstock.healing.decoding import HealedDecoding, response_context

    assert options.healing is not None
    context = response_context(
        wire, tuple(tools), request.messages, options.healing, fields=request.extra, id_prefix=options.id_prefix
    )
    return HealedDecoding(decoder, replace(context, calls_allowed=request.tool_choice != "none"))


class Stage(Protocol):
    """A stage behind a decoder: chunks to chunks."""

    def feed(self, event: Any, /) -> list[StreamChunk]: ...
    def close(self) -> list[StreamChunk]: ...


class StagedDecoding:
    """Stages as one: bytes to chunks, and the stages that follow, such as calls out of the text."""

    def __init__(
        self,
        decoder: Decoding,
        *stages: Stage,
        deferred: DeferredText | None = None,
        parts: EventParts | None = None,
    ) -> None:
        self._decoder = decoder
        self._parts = parts if deferred is None else None  # else a thread reads what takes long
        self.parts: EventParts | None = self._parts or getattr(decoder, "parts", None)
        self._stages = stages
        self._deferred = deferred
        self.is_slow = None if deferred is None else self._takes_long

    def feed(self, data: bytes) -> list[StreamChunk]:
        parts = self._parts
        if parts is not None and parts.has_more:
            return self._through(parts.next(), self._stages)
        chunks = self._decoder.feed(data)
        if self._deferred is not None:
            chunks = self._deferred.take(chunks)
        if parts is not None and parts.is_used and chunks:
            chunks = parts.first(chunks)
        return self._through(chunks, self._stages)

    def close(self) -> list[StreamChunk]:
        waiting = [] if self._deferred is None else self._deferred.close()
        chunks = self._through(waiting + self._decoder.close(), self._stages)
        for number, stage in enumerate(self._stages):
            chunks += self._through(stage.close(), self._stages[number + 1 :])
        return chunks

    def progress(self) -> Progress:
        return self._decoder.progress()

    def _takes_long(self, _data: bytes) -> bool:
        return self._deferred is not None and self._deferred.is_due()

    def _through(self, chunks: list[StreamChunk], stages: Iterable[Stage]) -> list[StreamChunk]:
        for stage in stages:
            chunks = [event for chunk in chunks for event in stage.feed(chunk)]
        return chunks
