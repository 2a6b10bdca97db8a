"""A call's fragments as Chat Completions sends them, and the calls that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.events import CallKind
from penstock.wires.openai_chat.routing import Label, Router
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.loose import arguments_text, is_empty
from penstock.wires.shared.open_call import OpenCall

LEGACY: Label = "function_call"
"""The label of the one call that the older protocol allows (QUIRKS 52)."""
_ENTRY = ("index", "id", "type", "function", "custom", "extra_content")
_INNER = {"function": ("name", "arguments", "index", "parsed_arguments"), "custom": ("name", "input")}
FIELDS = "fields"
"""The kind of state that goes back in the fields in which it came (`penstock.messages.FIELDS`)."""


class Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str | None = None
    arguments: str | None = None


class Custom(Struct, gc=False, forbid_unknown_fields=True):
    name: str | None = None
    input: str | None = None


class Fragment(Struct, gc=False, forbid_unknown_fields=True):
    """What one entry of `tool_calls` adds to a call."""

    index: int | str | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: Any = None


class SignedFragment(Fragment, gc=False, kw_only=True):
    """A fragment with a signature in fields that are not the protocol's."""

    fields: dict[str, Any]


class ChatCalls:
    """The calls of one answer, put together from fragments. What belongs to no call that is known is given back."""

    __slots__ = ("_by_label", "_reply", "_router", "_seen", "has_newer")

    def __init__(self, reply: AnswerWriter, tools: Sequence[str]) -> None:
        self._reply = reply
        self._router = Router(reply, tools)
        self._by_label = self._router.by_label
        self._seen = 0  # how many calls a loss has met: it damaged them, or found them closed
        self.has_newer = False  # something came that is not of the older protocol

    def add(self, fragments: list[Fragment]) -> list[Fragment]:
        """Take fragments in, in the narrow shape."""
        orphans: list[Fragment] = []
        for fragment in fragments:
            function = fragment.function
            if function is not None and not fragment.id and not function.name:
                call = self._by_label.get(fragment.index)  # type: ignore[arg-type]  # None is no label
                if call is not None and fragment.extra_content is None and fragment.custom is None:
                    if function.arguments:  # what nearly all fragments are: more arguments for a known index
                        call.add(function.arguments)
                    continue
            orphan = self.add_one(fragment)
            if orphan is not None:
                orphans.append(orphan)
        return orphans

    def add_one(self, fragment: Fragment) -> Fragment | None:
        """Take in a fragment of any shape."""
        if _says_nothing(fragment):
            return None
        self.has_newer = True
        kind, name, piece = _said(fragment)
        label, id = fragment.index, fragment.id or ""
        if id == "null":  # QUIRKS 164: made up by an SDK, and the index with it if this is a whole call
            id, label = "", None if name else label
        return self._give(self._router.route(label, id, name, piece, kind), piece, fragment)

    def add_whole(self, fragment: Fragment) -> Fragment | None:
        """Take in an entry of a whole message: its place makes it a call, whatever its id (QUIRKS 19, 21)."""
        if _says_nothing(fragment):
            return None
        self.has_newer = True
        kind, name, piece = _said(fragment)
        id = "" if fragment.id in (None, "null") else fragment.id
        return self._give(self._router.open(None, id, name, kind), piece, fragment)

    def add_older(self, fragment: Fragment) -> Fragment | None:
        """Take in a piece of the one call of the older protocol, whose name may come after it (QUIRKS 16, 52)."""
        kind, name, piece = _said(fragment)
        if LEGACY in self._by_label:
            call = self._router.route(LEGACY, "", name, piece, kind)
        else:
            call = self._router.open(LEGACY, "", name, kind)
        return self._give(call, piece, fragment)

    def _give(self, call: OpenCall | None, piece: str, fragment: Fragment) -> Fragment | None:
        """Give the call what the fragment has for it, and give back what belongs to none."""
        if call is None:
            if not piece:
                return None
            self.lose()
            self._reply.is_short = True
            return fragment
        if fragment.extra_content is not None:  # QUIRKS 149
            self._reply.opaque("extra_content", fragment.extra_content, call.block)
        if isinstance(fragment, SignedFragment):
            self._reply.opaque(FIELDS, fragment.fields, call.block)
        if piece:
            call.add(piece)
        custom = fragment.custom
        is_unused = custom is not None and call.kind == "function" and (custom.name or custom.input)
        return Fragment(fragment.index, custom=custom) if is_unused else None

    def lose(self, label: Label | None = None, id: str = "") -> None:
        """A piece could not be read: the call it was for is damaged, and if nothing tells which, all that are open."""
        owner = self._by_label.get(label) if label is not None else None
        if owner is None and id:
            owner = self._router.by_id.get(id)
        if owner is not None:
            owner.damage()
        elif not id and label != LEGACY:
            for call in self._reply.calls[self._seen :]:
                call.damage()
            self._seen = len(self._reply.calls)

    def close(self) -> None:
        """Nothing more comes: what a call lacks may be in another, one without a name or one written before it."""
        for call, before in self._router.nameless:
            before.is_damaged |= not call.name and call.has_arguments
        for call in self._router.doubtful:
            call.is_damaged |= not call.has_arguments
        self._reply.is_short |= any(not call.name and call.has_arguments for call in self._reply.calls)

    def has_given_id(self, call: OpenCall) -> bool:
        """Whether the call's id is the provider's, and not made up."""
        return self._router.has_given_id(call)


def _says_nothing(fragment: Fragment) -> bool:
    return fragment.function is None and fragment.custom is None and not fragment.id  # QUIRKS 28


def _said(fragment: Fragment) -> tuple[CallKind, str, str]:
    """The kind of the call, its name, and a piece of its arguments. An empty function beside a custom call is none."""
    function, custom = fragment.function, fragment.custom
    if custom is not None and not (function is not None and (function.name or function.arguments)):
        return "custom", custom.name or "", custom.input or ""
    if function is None:
        return "function", "", ""
    return "function", function.name or "", function.arguments or ""


def is_call(entry: Any) -> bool:
    """Whether an entry of `tool_calls` is a call, or a piece of one, of a kind that we know."""
    if not isinstance(entry, dict):
        return False
    inner = [entry.get(kind) for kind in _INNER]
    if any(fields and not isinstance(fields, dict) for fields in inner):
        return False
    return any(inner) or all(key in _ENTRY or is_empty(value) for key, value in entry.items())


def place_of(entry: Any) -> tuple[Label | None, str]:
    """The label and the id of an entry that may be anything."""
    if not isinstance(entry, dict):
        return None, ""
    fragment = fragment_of({"index": entry.get("index"), "id": entry.get("id")})
    kind = entry.get("type")
    is_other = isinstance(kind, str) and kind not in ("", "function", "custom")  # it was for no call of ours
    return fragment.index, fragment.id or (str(kind) if is_other and fragment.index is not None else "")


def read_entry(entry: dict[str, Any]) -> tuple[Fragment, dict[str, Any]]:
    """An entry as a fragment, with what is signed beside it, and what is left of it."""
    signed, left = _beside(entry, _ENTRY)
    for kind, read in _INNER.items():
        for fields, found in zip((signed, left), _beside(entry.get(kind) or {}, read), strict=True):
            if found:
                fields[kind] = found
    fragment = fragment_of(entry)
    return (SignedFragment(*msgspec.structs.astuple(fragment), fields=signed) if signed else fragment), left


def fragment_of(entry: dict[str, Any]) -> Fragment:
    """An entry whose fields may be of any type, as a fragment."""
    index, id, function, custom = (entry.get(key) for key in ("index", "id", "function", "custom"))
    if index is None and isinstance(function, dict):
        index = function.get("index")
    return Fragment(
        _label(index),
        None if id is None else str(id),  # QUIRKS 20
        None,
        Function(_name(function), arguments_text(function.get("arguments"))) if isinstance(function, dict) else None,
        Custom(_name(custom), arguments_text(custom.get("input"))) if isinstance(custom, dict) else None,
        entry.get("extra_content"),
    )


def _beside(fields: dict[str, Any], read: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that hold a signature, and the others, without those that are read elsewhere or say nothing."""
    signed: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for key, value in fields.items():
        if key not in read and not is_empty(value):
            (signed if isinstance(value, dict) and _is_signed(value) else left)[key] = value
    return signed, left


def _is_signed(fields: dict[str, Any]) -> bool:
    pending = list(fields.items())
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.items())
        elif value and "signature" in key:
            return True
    return False


def _label(index: Any) -> Label | None:
    """An index of any kind, as the label that it is; a whole number may be spelled as a fraction."""
    if isinstance(index, float) and index.is_integer():
        return int(index)
    return index if isinstance(index, int | str) and not isinstance(index, bool) else None


def _name(fields: dict[str, Any]) -> str:
    name = fields.get("name")
    return "" if name is None else str(name)
