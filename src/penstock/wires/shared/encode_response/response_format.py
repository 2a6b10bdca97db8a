"""The format of a protocol's responses: its words for ends and errors, and what its frames can express."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from penstock.wires.shared.facts import Loss


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """What an encoder has to know about a protocol, besides how each frame is written.

    - `finish_reasons`: the provider's finish reasons by ours. `error_codes`: the provider's error codes by HTTP status.
    - `losses`: what the protocol cannot express.
    - `keep_alive`: bytes that clients ignore, to be sent while the model is silent; empty if the protocol has none.
    - `has_closed_errors`: clients know only the provider's error codes, so a server must not send codes of its own.
    - `one_block_at_a_time`: a block ends before the next one begins.
    - `streams_arguments`: arguments are sent in pieces; if not, a call is sent when it is whole.
    - `has_text_arguments`: arguments are text, so those of an invalid call can be written as they came.
    - `waits_for_call_state`: the start of a call contains vendor state, which comes after it.
    - `states_final_arguments`: the end of a call states its arguments, which may differ from the pieces.
    - `marks_cut_calls`: a cut call is written as such, so that the end of the response does not confirm it.
    - `overflow`: the provider's message for a prompt that is too long, with `{tokens}` and `{window}`; without these
      numbers, `overflow_start` begins the message. Clients recognise the error by these words.
    """

    wire: str
    losses: tuple[Loss, ...]
    finish_reasons: Mapping[str, str]
    error_codes: Mapping[int, str]
    content_type: str = "text/event-stream"
    keep_alive: bytes = b": keep-alive\n\n"
    has_closed_errors: bool = False
    has_choices: bool = False
    has_custom_calls: bool = False
    one_block_at_a_time: bool = False
    streams_arguments: bool = True
    has_text_arguments: bool = True
    waits_for_call_state: bool = False
    states_final_arguments: bool = False
    marks_cut_calls: bool = False
    overflow: str = ""
    overflow_start: str = ""
