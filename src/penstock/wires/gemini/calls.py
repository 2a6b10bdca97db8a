"""Gemini's function calls: whole in one part, or begun by one part and continued by others (`partialArgs`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, Struct

from penstock.events import SealedBy
from penstock.wires.gemini.partial_args import PartialArgs
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.loose import is_empty, items, raw_of, take, text_of
from penstock.wires.shared.open_call import OpenCall

SIGNATURE = "thought_signature"
_SNAKE = re.compile(r"(?<=[a-z])_([a-z])")
_NOTHING = ("", "{}", "null")  # how arguments that say nothing are written
_ABSENT = Raw()  # one object, so that what is not there is known without a look at it


class PartialArg(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A value, or a piece of a string, at a place within the arguments."""

    json_path: str = ""
    string_value: str | None = None
    number_value: Raw = _ABSENT
    bool_value: bool | None = None
    null_value: Any = UNSET
    will_continue: bool | None = None


class FunctionCall(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A call, or a piece of one: with `will_continue` it goes on in another part."""

    name: str | None = None
    args: Raw = _ABSENT
    id: str | None = None
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class Streamed:
    """A call that goes on in the parts to come."""

    __slots__ = ("args", "call", "given_id", "is_at_rest", "is_over", "is_stated", "signature")

    def __init__(self, call: OpenCall, given_id: str) -> None:
        self.call = call
        self.given_id = given_id
        self.args = PartialArgs()
        self.signature: list[str] = []
        self.is_at_rest = True  # whether the last value is complete
        self.is_over = False  # whether its end mark came
        self.is_stated = False  # whether the arguments were told as a whole after all

    def sign(self, signature: str) -> None:
        """Large signatures come in pieces, others are sent again and again (QUIRKS 147)."""
        if self.signature != [signature]:
            self.signature.append(signature)


class GeminiCalls:
    """The calls of one answer."""

    def __init__(self, answer: AnswerWriter, unknown: Callable[[Any, str], None]) -> None:
        self._answer = answer
        self._unknown = unknown
        self._open: list[Streamed] = []  # those that go on; the last one does, others may have ended
        self._by_id: dict[str, Streamed] = {}
        self._last: Streamed | None = None  # of those that go on
        self.doubtful: list[Streamed] = []  # those that ended without arguments: what comes next has a say

    def add(self, part: FunctionCall, signature: str) -> None:
        """A part that is a call, or a piece of one."""
        if self.doubtful and (part.name or part.id or part.partial_args):
            self.settle()
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
            self._put(streamed, part.partial_args)
        if part.args is not _ABSENT:
            self._state(streamed, part)
        if part.will_continue:
            self._answer.raw_reason = None  # there is more to come, so that was not the finish (QUIRKS 154)
        else:
            self._end(streamed)

    def end(self, is_stop: bool) -> None:
        """The answer is over. A call that was to go on is whole only if the model stopped of itself, between values."""
        for streamed in self._open:
            if streamed.is_over:
                continue
            if is_stop and streamed.is_at_rest:
                self._seal(streamed, "finish")
            else:
                self._cut(streamed, "the answer ended before the call did")
        self._open.clear()

    def settle(self, is_interrupted: bool = False) -> None:
        """The answer goes on, or has ended: calls without arguments are whole, unless it was broken off (QUIRKS 33)."""
        for streamed in self.doubtful:
            if is_interrupted:
                self._cut(streamed, "the answer broke off before the call had any arguments")
            else:
                self._seal(streamed, "call_end")
        self.doubtful.clear()

    def _whole(self, part: FunctionCall, signature: str) -> None:
        arguments = text_of(part.args)
        if not part.name and not part.id and arguments in _NOTHING:  # the end mark of a call that has ended already
            if signature:
                self._answer.opaque(SIGNATURE, signature)
            return
        call = self._answer.call(part.id or "", part.name or "")
        if signature:
            self._answer.opaque(SIGNATURE, signature, call.block)
        if arguments:
            call.add(arguments)
        self._answer.seal(call, "whole")

    def _begin(self, part: FunctionCall) -> Streamed:
        streamed = self._last = Streamed(self._answer.call(part.id or "", part.name or ""), part.id or "")
        self._open.append(streamed)
        if part.id:
            self._by_id[part.id] = streamed
        return streamed

    def _end(self, streamed: Streamed) -> None:
        streamed.is_over = True
        if not streamed.is_at_rest:
            self._cut(streamed, "the call ended within a value")
        elif not streamed.call.size and streamed.args.is_written and not streamed.args.fault:
            self.doubtful.append(streamed)
        else:
            self._seal(streamed, "call_end")
        self._by_id.pop(streamed.given_id, None)
        while self._open and self._open[-1].is_over:
            self._open.pop()
        self._last = self._open[-1] if self._open else None

    def _continued(self, part: FunctionCall, last: Streamed | None) -> Streamed | None:
        """The open call that the part continues: by its id, else the last one, unless the part is plainly another."""
        if part.id and part.id in self._by_id:
            return self._by_id[part.id]
        if last is None or (part.id and (last.given_id or part.name)):
            return None
        is_whole = not part.partial_args and not part.will_continue and text_of(part.args) not in _NOTHING
        if part.name and (is_whole or (last.call.name and part.name != last.call.name)):
            return None  # QUIRKS 153: a call that is sent again is another call
        last.call.name = last.call.name or part.name or ""
        return last

    def _put(self, streamed: Streamed, args: list[PartialArg]) -> None:
        for arg in args:
            value = string = arg.string_value
            streamed.is_at_rest = not arg.will_continue
            if value is None and (value := literal_of(arg)) is None:
                continue  # it only says that the value ends, or that one will come
            text = streamed.args.put(arg.json_path, value, string is not None)
            if text:
                streamed.call.add(text)
            elif text is None:
                self._unknown({"jsonPath": arg.json_path, "value": value}, f"no place for it: {streamed.args.fault}")

    def _state(self, streamed: Streamed, part: FunctionCall) -> None:
        """The arguments as a whole, though they were to come in pieces: they count, if there is no doubt."""
        arguments, call = text_of(part.args), streamed.call
        if arguments in _NOTHING:
            return
        if part.partial_args or (call.size and part.will_continue):
            streamed.args.fail("the arguments came both as a whole and in pieces")
            self._unknown({"args": arguments}, streamed.args.fault)
        else:
            call.replace(arguments)
            call.is_damaged = False
            streamed.is_stated = streamed.is_at_rest = True

    def _seal(self, streamed: Streamed, sealed_by: SealedBy) -> None:
        args, call = streamed.args, streamed.call
        rest = "" if streamed.is_stated and not args.fault else args.end()
        self._sign(streamed)
        if rest is None:
            call.fail(args.why, args.fault)
            return
        if rest and args.is_written:
            call.add(rest)
        elif rest:
            call.replace(rest)
        self._answer.seal(call, sealed_by)

    def _cut(self, streamed: Streamed, message: str) -> None:
        self._sign(streamed)
        streamed.call.fail("cut", message)

    def _sign(self, streamed: Streamed) -> None:
        if streamed.signature:
            self._answer.opaque(SIGNATURE, "".join(streamed.signature), streamed.call.block)


def literal_of(arg: PartialArg) -> str | None:
    """A value that is no string, as JSON; None if there is none. Neither 0 nor false is none (QUIRKS 151)."""
    if (number := bytes(arg.number_value).decode("utf-8", "replace")) not in ("", "null"):
        return number
    if arg.bool_value is not None:
        return "true" if arg.bool_value else "false"
    return None if arg.null_value is UNSET else "null"


def function_call_of(fields: dict[str, Any], unknown: Callable[[Any, str], None]) -> FunctionCall:
    """A call that does not fit the usual shape, brought to it; `unknown` is told what is left over."""
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
    """A value of a kind that we have not met is JSON as it stands; one without a path will find no place."""
    fields = camel(value) if isinstance(value, dict) else {"oddValue": value}
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


def camel(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields under the names that the wire uses; Python clients write `usage_metadata` for `usageMetadata`."""
    return {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in fields.items()}
