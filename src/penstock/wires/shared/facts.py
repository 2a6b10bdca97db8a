"""The facts of a wire, as data. Each wire's `facts.py` fills in one `WireFacts`; shared rules read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_letters, digits
from typing import Any, Literal

from msgspec import Struct

from penstock.schemas import SchemaRules
from penstock.wires.shared.remembered import ServerMemory

LETTERS_AND_DIGITS = digits + ascii_letters
WORD = LETTERS_AND_DIGITS + "_-"
MEDIA_IN_RESULTS = "media-in-results"
"""The quirk that a result may hold images and files, on a wire where `results_are_text`."""


class IdRules(Struct, frozen=True, kw_only=True):
    """The call ids that a provider accepts. An empty alphabet allows any character, a length of 0 any length."""

    alphabet: str = ""
    length: int = 0
    max_length: int = 0


RunsHere = Callable[[Mapping[str, Any]], bool | None]
"""Whether the client must act on an item of vendor state; None if only the rest of the response shows it."""


class StateFacts(Struct, frozen=True):
    """A kind of vendor state: which part it belongs to, and what its data is.

    `text`: which model text the data contains: `reasoning`, `any` text of the response, or `own` (text that appears
    nowhere else).
    """

    kind: str
    on: Literal["any", "reasoning", "text", "call"] = "any"
    data: Literal["object", "list", "text", "any"] = "object"
    is_signature: bool = False
    text: Literal["", "reasoning", "any", "own"] = ""


class HostedTool(Struct, frozen=True, kw_only=True):
    """The blocks in which hosted tools are called, and the blocks of their results.

    A block is known by its `type`, or by its only key where blocks have no type. `results` may begin with a `*`.
    """

    calls: tuple[str, ...]
    results: str
    call_id: str
    result_id: str


class Deferral(Struct, frozen=True, kw_only=True):
    """How clients defer tools, and how histories load them.

    A deferred tool has the `flag`. A block of the type `reference` loads the tool in its field `name`; `results` is how
    the types of blocks end whose content has a list of `references`. `searches` are the names of the hosted tools that
    search among deferred ones. Blocks of a system message with the types `addition` and `removal` change the tools.
    """

    flag: str
    reference: str
    name: str
    results: str
    references: str
    searches: tuple[str, ...]
    addition: str
    removal: str


LossName = Literal[
    "block_borders", "cache_counts", "cache_write_counts", "call_pieces", "call_reasons", "calls_before_errors",
    "changed_arguments", "changed_names", "choices", "content_filters", "custom_calls", "cut_calls", "explanations",
    "failed_choices", "finish_messages", "invalid_calls", "item_ids", "late_ids", "line_breaks", "reasoning_counts",
    "reasoning_details", "reasoning_text", "refusals", "seeming_calls", "text_signatures", "vendor_calls",
]  # fmt: skip


class Loss(Struct, frozen=True):
    """Something in events that a response of a wire cannot express: what becomes of it, and why.

    It is `dropped`, `changed` into something else, or it `ends` the response with an error.
    """

    what: LossName
    effect: Literal["dropped", "changed", "ends"]
    why: str


BLOCK_BORDERS = Loss("block_borders", "changed", "texts of one kind in a row are one text")
CACHE_COUNTS = Loss("cache_counts", "dropped", "cached tokens are not counted")
CACHE_WRITE_COUNTS = Loss("cache_write_counts", "dropped", "tokens that are written to a cache are not counted")
CALL_PIECES = Loss("call_pieces", "dropped", "calls are written when they are whole")
CALL_REASONS = Loss("call_reasons", "changed", "the end of a response does not say whether there are calls")
CHANGED_ARGUMENTS = Loss("changed_arguments", "ends", "what was sent of the arguments cannot change")
CHANGED_NAMES = Loss("changed_names", "ends", "the name of a call cannot change after it was sent")
CHOICES = Loss("choices", "dropped", "a response is one answer")
CUSTOM_CALLS = Loss("custom_calls", "changed", "free text is the argument `input` of a function")
CUT_CALLS = Loss("cut_calls", "dropped", "the arguments of a call are an object, which a cut call does not have")
FAILED_CHOICES = Loss("failed_choices", "ends", "an error is one of the whole response")
FINISH_MESSAGES = Loss("finish_messages", "dropped", "an end has no explanation")
INVALID_CALLS = Loss("invalid_calls", "ends", "the arguments of a call are an object")
LATE_IDS = Loss("late_ids", "changed", "the id of a call is the one that it was started with")
LINE_BREAKS = Loss("line_breaks", "changed", "a line is a frame: those between the values of arguments are spaces")
REASONING_COUNTS = Loss("reasoning_counts", "dropped", "tokens of reasoning are not counted")
REFUSALS = Loss("refusals", "changed", "a refusal is text")
SEEMING_CALLS = Loss(
    "seeming_calls", "ends", "the end of the response would confirm an invalid call that looks complete"
)
VENDOR_CALLS = Loss("vendor_calls", "dropped", "only the provider that defines a tool has a form for its calls")
"""Losses of several wires."""


class PassedPaths(Struct, frozen=True):
    """Where servers of a wire have endpoints that a gateway passes on: completions, embeddings and lists of models.

    `chat` ends the URL of a chat; the others are in its place, below `root`.
    """

    chat: str
    root: str = ""


class WireFacts(Struct, frozen=True, kw_only=True):
    """What the rules for histories and requests have to know about a wire."""

    wire: str

    ids: IdRules = IdRules()
    quirk_ids: Mapping[str, IdRules] = {}
    """The id rules of providers with a certain quirk."""
    max_name: int = 64
    name_characters: str = ""
    """Characters allowed in tool names in addition to letters, digits, `_` and `-`."""

    states: tuple[StateFacts, ...] = ()
    """The kinds of vendor state with rules of their own; any other is an object, on a part of any kind."""
    hosted_tools: tuple[HostedTool, ...] = ()
    deferral: Deferral | None = None
    """How clients defer tools; None if they cannot."""
    system_blocks: tuple[str, ...] = ()
    """The types of blocks that a system message may have besides text."""
    caller: tuple[str, str] | None = None
    """The state on a call that a hosted tool made: its kind, and the path to the id of the hosted call."""
    callers_need_calls: bool = False
    """Whether a call is refused if the hosted call that made it is not in the history."""
    continued_by: tuple[str, ...] = ()
    """The fields of a request that continues a history which the provider keeps: results may have their calls there."""
    item_id: str = ""
    """The field with the id of an item, which may occur once in a history."""
    reference: str = ""
    """The kind of an item that stands for another one, which the provider keeps, by its id."""
    kept_fields: tuple[str, ...] = ()
    """The fields of a request that stand for a part of the prompt which the provider keeps."""
    system_headers: str = ""
    """How a line begins that a client writes before its system prompt for the provider, and not for the model."""
    passed_headers: tuple[str, ...] = ()
    """The headers of a client that ask its provider for features; a gateway passes them on to the same protocol."""

    passed_paths: PassedPaths | None = None
    """Where completions and embeddings are passed on to; None if servers of the wire do not have them."""

    system_field: str = ""
    """How the request field begins that alone may hold system messages; empty if they stand among the messages."""
    takes_blank: bool = True
    """Whether text that is white space is accepted."""
    needs_answers: bool = False
    """Whether each user message but the last must be answered by an assistant message with content."""
    results_are_text: bool = False
    """Whether results hold only text; see `MEDIA_IN_RESULTS`."""
    results_need_names: bool = False
    """Whether a result needs the name of its tool."""
    results_may_lack_ids: bool = False
    """Whether a result without a call id answers the next call."""
    results_may_come_late: bool = False
    """Whether results may come anywhere after their calls."""
    marked_messages: int = 0
    """How many messages of the user, the last ones, are marked for prompt caching (the option `cache`)."""
    takes_message_fields: bool = True
    """Whether a message may have other fields than its role and content."""
    export_extra: Mapping[str, Any] = {}
    """Request fields with which the whole history is written when only the history is exported."""
    losses: tuple[Loss, ...] = ()
    """What `encode_response` cannot express; `ResponseEncoder` says what holds for every wire."""
    window_path: tuple[str, ...] = ()
    """The field of a request that sets the context window; empty if the protocol has none."""
    whole_prompt: Mapping[str, Any] = {}
    """The fields of a request whose prompt must not be cut: the server refuses it if it is too long."""
    has_chat_parts: bool = False
    """Whether images and files are written as in Chat Completions."""

    memory: ServerMemory | None = None
    """How servers remember responses, so that requests continue from them; None if they do not."""

    output: SchemaRules = SchemaRules()
    """What the schema of a response format may have."""
