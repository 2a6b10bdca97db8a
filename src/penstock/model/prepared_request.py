"""Prepares a request: calls and output are requested natively or in the prompt, and decoded accordingly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.decoder import Decoder
from penstock.model.output_request import OutputCall, ask_for_output, with_prompt
from penstock.model.text_calls import CallOptions, StagedDecoding, conversation, find_calls, prompt_for_calls
from penstock.output.output_type import OutputType
from penstock.transport.exchange import Decoding
from penstock.wires import WireName
from penstock.wires.shared.request import OutputForm, Request

if TYPE_CHECKING:
    from penstock.dialects.provenance import Provenance


class PreparedRequest(Struct, frozen=True):
    """A request as it is sent on a wire, and how its response is decoded.

    `declarations` are the tools that may be called, also those that only the prompt describes. `provenance` has the
    messages that calls in the text are compared with, `form` says how the output was asked for.
    """

    request: Request
    wire: WireName
    call_options: CallOptions
    declarations: list[ToolDeclaration]
    provenance: Provenance | None
    form: OutputForm | None = None

    def new_decoding(self) -> Decoding:
        """The stages for one attempt of the request: bytes to chunks."""
        options = self.call_options
        decoder = Decoder(self.wire, self.declarations, id_prefix=options.id_prefix)
        decoding = find_calls(decoder, options, self.declarations, self.provenance)
        return StagedDecoding(decoding, OutputCall()) if self.form == "tool" else decoding


def prepare(
    request: Request, options: CallOptions, output: OutputType[Any] | None, wire: WireName, quirks: frozenset[str]
) -> PreparedRequest:
    """Prepares a request, with its declared tools, for a provider with these quirks."""
    declarations, messages = list(request.tools), list(request.messages)
    provenance = conversation(options.calls, options.rescue, messages, request.extra)
    if options.calls != "native":
        if output is not None:
            messages = with_prompt(messages, output.declaration)
        messages, settings = prompt_for_calls(options.calls, messages, declarations, dict(request.options))
        request = replace(request, messages=tuple(messages), tools=(), options=settings)
    elif output is not None:
        request, form = ask_for_output(request, output.declaration, wire, quirks)
        return PreparedRequest(request, wire, options, list(request.tools), provenance, form)
    return PreparedRequest(request, wire, options, declarations, provenance)
