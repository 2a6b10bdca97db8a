"""Gemini's function calls: whole in one part, or streamed in several parts (`partialArgs`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, Struct

from penstock.events import SealedBy
from penstock.wires.gemini.partial_args import PartialArgs
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.loose import is_empty, items, raw_of, take, text_of
from penstock.wires.shared.decode_response.open_call import OpenCall

SIGNATURE = "thought_signature"
_SNAKE = re.compile(r"(?<=[a-z])_([a-z])")
_NOTHING = ("", "{}", "null")  # spellings of empty arguments
_ABSENT = Raw()  # one object, so that a missing field is recognised by identity


class PartialArg(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A value, or a piece of a string, at a path of the arguments."""

    json_path: str = ""
    string_value: str | None = None
    number_value: Raw = _ABSENT
    bool_value: bool | None = None
    null_value: Any = UNSET
    will_continue: bool | None = None


class FunctionCall(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A call, or a piece of one; with `will_continue` more parts follow."""

    name: str | None = None
    args: Raw = _ABSENT
    id: str | None = None
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class StreamedCall:
    """A call that is streamed in several parts."""

    __slots__ = ("args", "call", "has_whole_args", "is_between_values", "is_ended", "provider_id", "signature")

    def __init__(self, call: OpenCall, provider_id: str) -> None:
        self.call = call
        self.provider_id = provider_id
        self.args = PartialArgs()
        self.signature: list[str] = []
        self.is_between_values = True  # the last value is complete
        self.is_ended = False  # its end mark came
        self.has_whole_args = False  # the arguments came as a whole after all

    @property
    def has_values(self) -> bool:
        """Whether any arguments have come."""
        return self.call.size > 0 or not self.args.is_written

    def sign(self, signature: str) -> None:
        """Adds a piece of the signature; small ones are repeated in every part (QUIRKS 147)."""
        if self.signature != [signature]:
            self.signature.append(signature)


class GeminiCalls:
    """The calls of one answer."""

    def __init__(self, answer: AnswerWriter, unknown: Callable[[Any, str], None]) -> None:
        self._answer = answer
        self._unknown = unknown
        self._open: list[StreamedCall] = []  # the last one is open, others may have ended
        self._by_id: dict[str, StreamedCall] = {}
        self._last: StreamedCall | None = None  # the open call that began last

    def add(self, part: FunctionCall, signature: str) -> None:
        """Adds a part: a call, or a piece of one."""
        streamed = self._last
        if streamed is None or part.name or part.id:
            streamed = self._continued(part, streamed)
            if streamed is None and not part.will_continue and not part.partial_args:
                self._whole(part, signature)
                return
            streamed = streamed or self._begin(part)
        if signature:
            streamed.sign(signature)
        if part.partial_args:
            self._add_values(streamed, part.partial_args)
        if part.args is not _ABSENT:
            self._set_whole_args(streamed, part)
        if part.will_continue:
            self._answer.raw_reason = None  # an earlier finish reason was premature (QUIRKS 154)
        else:
            self._end(streamed)

    def end(self, is_stop: bool) -> None:
        """Ends the open calls. A call with arguments is whole if the model stopped normally and between values."""
        for streamed in self._open:
            if streamed.is_ended:
                continue
            if is_stop and streamed.is_between_values and streamed.has_values:
                self._seal(streamed, "finish")
            else:
                self._cut(streamed, "the response ended before the call did")
        self._open.clear()

    def _whole(self, part: FunctionCall, signature: str) -> None:
        arguments = text_of(part.args)
        if not part.name and not part.id and arguments in _NOTHING:  # the end mark of a call that has ended before
            if signature:
                self._answer.opaque(SIGNATURE, signature)
            return
        call = self._answer.call(part.id or "", part.name or "")
        if signature:
            self._answer.opaque(SIGNATURE, signature, call.block)
        if arguments:
            call.add(arguments)
        self._answer.seal(call, "whole")

    def _begin(self, part: FunctionCall) -> StreamedCall:
        streamed = self._last = StreamedCall(self._answer.call(part.id or "", part.name or ""), part.id or "")
        streamed.call.is_damaged = self._answer.has_loss  # it may have begun earlier, in what was lost
        self._open.append(streamed)
        if part.id:
            self._by_id[part.id] = streamed
        return streamed

    def _end(self, streamed: StreamedCall) -> None:
        streamed.is_ended = True
        if not streamed.is_between_values:
            self._cut(streamed, "the call ended within a value")
        else:
            self._seal(streamed, "call_end")
        self._by_id.pop(streamed.provider_id, None)
        while self._open and self._open[-1].is_ended:
            self._open.pop()
        self._last = self._open[-1] if self._open else None

    def _continued(self, part: FunctionCall, last: StreamedCall | None) -> StreamedCall | None:
        """The open call that the part continues: by its id, else the last one, unless the part begins another."""
        if part.id and part.id in self._by_id:
            return self._by_id[part.id]
        if last is None or (part.id and (last.provider_id or part.name)):
            return None
        is_whole = not part.partial_args and not part.will_continue and text_of(part.args) not in _NOTHING
        if part.name and (is_whole or (last.call.name and part.name != last.call.name)):
            return None  # QUIRKS 153: a repeated call is another call
        last.call.name = last.call.name or part.name or ""
        return last

    def _add_values(self, streamed: StreamedCall, args: list[PartialArg]) -> None:
        for arg in args:
            value = string = arg.string_value
            streamed.is_between_values = not arg.will_continue
            if value is None and (value := literal_of(arg)) is None:
                continue  # it only marks the end of a value, or announces one
            text = streamed.args.put(arg.json_path, value, string is not None)
            if text:
                streamed.call.add(text)
            elif text is None:
                self._unknown(
                    {"jsonPath": arg.json_path, "value": value},
                    f"a value without a place in the arguments: {streamed.args.error}",
                )

    def _set_whole_args(self, streamed: StreamedCall, part: FunctionCall) -> None:
        """Sets arguments that came as a whole for a streamed call, unless pieces came too."""
        arguments, call = text_of(part.args), streamed.call
        if arguments in _NOTHING:
            return
        if part.partial_args or (call.size and part.will_continue):
            streamed.args.fail("the arguments came both as a whole and in pieces")
            self._unknown({"args": arguments}, streamed.args.error)
        else:
            call.replace(arguments)
            call.is_damaged = False
            streamed.has_whole_args = streamed.is_between_values = True

    def _seal(self, streamed: StreamedCall, sealed_by: SealedBy) -> None:
        args, call = streamed.args, streamed.call
        rest = "" if streamed.has_whole_args and not args.error else args.end()
        self._sign(streamed)
        if rest is None:
            call.fail(args.why, args.error)
            return
        if rest and args.is_written:
            call.add(rest)
        elif rest:
            call.replace(rest)
        self._answer.seal(call, sealed_by)

    def _cut(self, streamed: StreamedCall, message: str) -> None:
        self._sign(streamed)
        streamed.call.fail("cut", message)

    def _sign(self, streamed: StreamedCall) -> None:
        if streamed.signature:
            self._answer.opaque(SIGNATURE, "".join(streamed.signature), streamed.call.block)


def literal_of(arg: PartialArg) -> str | None:
    """A value other than a string as JSON; None if there is none. 0 and false are values (QUIRKS 151)."""
    if (number := bytes(arg.number_value).decode("utf-8", "replace")) not in ("", "null"):
        return number
    if arg.bool_value is not None:
        return "true" if arg.bool_value else "false"
    return None if arg.null_value is UNSET else "null"


def read_function_call(fields: dict[str, Any], unknown: Callable[[Any, str], None]) -> FunctionCall:
    """Converts a call of any shape to the narrow one; reports the rest to `unknown`."""
    id, args, partial_args = (fields.pop(key, None) for key in ("id", "args", "partialArgs"))
    call = FunctionCall(
        take(fields, "name", str),
        raw_of(args),
        None if id is None else str(id),
        [_partial_arg(arg, unknown) for arg in items(partial_args)],
        take(fields, "willContinue", bool),
    )
    if not is_empty(fields):
        unknown(fields, "unknown fields of a call")
    return call


def _partial_arg(value: Any, unknown: Callable[[Any, str], None]) -> PartialArg:
    """Converts a partial argument of any shape: a value of an unknown kind is taken as JSON."""
    fields = camel_case(value) if isinstance(value, dict) else {"unknownValue": value}
    arg = PartialArg(
        json_path=take(fields, "jsonPath", str) or "",
        string_value=take(fields, "stringValue", str),
        bool_value=take(fields, "boolValue", bool),
        null_value=fields.pop("nullValue", UNSET),
        will_continue=take(fields, "willContinue", bool),
    )
    for key, field in fields.items():
        if key.endswith("Value") and field is not None:
            arg.number_value = raw_of(field)
        elif not is_empty(field):
            unknown({key: field}, "an unknown field of an argument")
    return arg


def camel_case(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields under camel-case names; Python clients write `usage_metadata` for `usageMetadata`."""
    return {_SNAKE.sub(lambda match: match[1].upper(), key): value for key, value in fields.items()}
