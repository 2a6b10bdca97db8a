"""A call's fragments as Chat Completions sends them, and the calls that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.wires.call import OpenCall
from penstock.wires.loose import arguments_text
from penstock.wires.reply import Reply
from penstock.wires.routing import Label, Router

LEGACY: Label = "function_call"
"""The label of the one call that the older protocol allows (QUIRKS 52)."""


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class Custom(Struct, gc=False):
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


class ChatCalls:
    """The calls of one answer, put together from fragments."""

    __slots__ = ("_by_label", "_reply", "_router")

    def __init__(self, reply: Reply, tools: Sequence[str]) -> None:
        self._reply = reply
        self._router = Router(reply, tools)
        self._by_label = self._router.by_label

    def add(self, fragments: list[Fragment]) -> list[Fragment]:
        """Take fragments in; those that belong to no call that is known are given back."""
        orphans: list[Fragment] = []
        for fragment in fragments:
            function = fragment.function
            if function is not None and not fragment.id and not function.name and fragment.extra_content is None:
                call = self._by_label.get(fragment.index)  # type: ignore[arg-type]  # None is no label
                if call is not None:  # what nearly all fragments are: more arguments for a known index
                    if function.arguments:
                        call.add(function.arguments)
                    continue
            if not self.add_one(fragment, fragment.index):
                orphans.append(fragment)
                self._reply.is_short = True
        return orphans

    def add_one(self, fragment: Fragment, label: Label | None) -> bool:
        """Take in a fragment under a label; whether it belongs to a call."""
        function, custom = fragment.function, fragment.custom
        if function is None and custom is None and not fragment.id:
            return True  # an entry that says nothing (QUIRKS 28)
        name = (function.name if function else custom.name if custom else "") or ""
        piece = (function.arguments if function else custom.input if custom else "") or ""
        id = fragment.id or ""
        if id == "null":  # QUIRKS 164: made up by an SDK, and the index with it if this is a whole call
            id, label = "", None if name else label
        call = self._router.route(label, id, name, "custom" if custom else "function")
        if call is None:
            return not piece
        if fragment.extra_content is not None:  # QUIRKS 149
            self._reply.opaque("extra_content", fragment.extra_content, call.block)
        if piece:
            call.add(piece)
        return True

    def has_given_id(self, call: OpenCall) -> bool:
        """Whether the call's id is the provider's, and not made up."""
        return self._router.has_given_id(call)


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


def _label(index: Any) -> Label | None:
    """An index of any kind, as the label that it is; a whole number may be spelled as a fraction."""
    if isinstance(index, float) and index.is_integer():
        return int(index)
    return index if isinstance(index, int | str) and not isinstance(index, bool) else None


def _name(fields: dict[str, Any]) -> str:
    name = fields.get("name")
    return "" if name is None else str(name)
