"""Fragments of calls: the entries of `tool_calls`, and how entries of any shape become fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.events import CallKind
from penstock.wires.openai_chat.routing import Label
from penstock.wires.shared.decode_response.indexes import Index, as_label
from penstock.wires.shared.decode_response.loose import arguments_text, is_empty

LEGACY: Label = "function_call"
"""The label of the one call that the legacy protocol allows (QUIRKS 52)."""
_ENTRY = ("index", "id", "type", "function", "custom", "extra_content")
_INNER = {"function": ("name", "arguments", "index", "parsed_arguments"), "custom": ("name", "input")}
_CARRIERS = ("function", "custom", "arguments", "input", "name")
FIELDS = "fields"
"""The kind of state that goes back in its own fields: `content.PART_FIELDS`, whose import would slow down decoders."""


class Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str | None = None
    arguments: str | None = None


class Custom(Struct, gc=False, forbid_unknown_fields=True):
    name: str | None = None
    input: str | None = None


class Fragment(Struct, gc=False, forbid_unknown_fields=True):
    """One entry of `tool_calls`: a piece of a call."""

    index: Index | str | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: Any = None

    def is_empty(self) -> bool:
        return self.function is None and self.custom is None and not self.id  # QUIRKS 28

    def content(self) -> tuple[CallKind, str, str]:
        """The kind of the call, its name, and a piece of its arguments.

        An empty function next to a custom call does not count.
        """
        function, custom = self.function, self.custom
        if custom is not None and not (function is not None and (function.name or function.arguments)):
            return "custom", custom.name or "", custom.input or ""
        if function is None:
            return "function", "", ""
        return "function", function.name or "", function.arguments or ""


class SignedFragment(Fragment, gc=False, kw_only=True):
    """A fragment with a signature in fields that are not part of the protocol."""

    fields: dict[str, Any]


def is_call(entry: Any) -> bool:
    """Whether an entry of `tool_calls` is a call, or a piece of one, of a known kind."""
    if not isinstance(entry, dict):
        return False
    inner = [entry.get(kind) for kind in _INNER]
    if any(fields and not isinstance(fields, dict) for fields in inner):
        return False
    return any(inner) or all(key in _ENTRY or is_empty(value) for key, value in entry.items())


def is_misshapen(entry: Any) -> bool:
    """Whether an entry that is not a call may be a piece of one: a field with arguments has another type or place."""
    return not isinstance(entry, dict) or any(not is_empty(entry.get(key)) for key in _CARRIERS)


def label_and_id(entry: Any) -> tuple[Label | None, str]:
    """The label and the id of an entry of any kind; for a call of an unknown kind its type stands for the id."""
    if not isinstance(entry, dict):
        return None, ""
    fragment = fragment_of({"index": entry.get("index"), "id": entry.get("id")})
    kind = entry.get("type")
    is_foreign = isinstance(kind, str) and kind not in ("", "function", "custom")
    return fragment.index, fragment.id or (str(kind) if is_foreign and fragment.index is not None else "")


def read_entry(entry: dict[str, Any]) -> tuple[Fragment, dict[str, Any]]:
    """Returns an entry as a fragment, with its signed fields, and the fields that are unknown."""
    signed, unknown = _other_fields(entry, _ENTRY)
    for kind, known in _INNER.items():
        inner_signed, inner_unknown = _other_fields(entry.get(kind) or {}, known)
        if inner_signed:
            signed[kind] = inner_signed
        if inner_unknown:
            unknown[kind] = inner_unknown
    fragment = fragment_of(entry)
    return (SignedFragment(*msgspec.structs.astuple(fragment), fields=signed) if signed else fragment), unknown


def fragment_of(entry: dict[str, Any]) -> Fragment:
    """Converts an entry with fields of any type to a fragment."""
    index, id, function, custom = (entry.get(key) for key in ("index", "id", "function", "custom"))
    if index is None and isinstance(function, dict):
        index = function.get("index")
    return Fragment(
        as_label(index),
        None if id is None else str(id),  # QUIRKS 20
        None,
        Function(_name(function), arguments_text(function.get("arguments"))) if isinstance(function, dict) else None,
        Custom(_name(custom), arguments_text(custom.get("input"))) if isinstance(custom, dict) else None,
        entry.get("extra_content"),
    )


def _other_fields(fields: dict[str, Any], known: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that hold a signature, and the others that are neither known nor empty."""
    signed: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for key, value in fields.items():
        if key not in known and not is_empty(value):
            (signed if isinstance(value, dict) and _is_signed(value) else unknown)[key] = value
    return signed, unknown


def _is_signed(fields: dict[str, Any]) -> bool:
    pending = list(fields.items())
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.items())
        elif value and "signature" in key:
            return True
    return False


def _name(fields: dict[str, Any]) -> str:
    name = fields.get("name")
    return "" if name is None else str(name)
