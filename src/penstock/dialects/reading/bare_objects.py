"""Call objects without marks: JSON objects that only their keys and, if tools were declared, their name make a call.

A call begins when both are known, and everything before that is held back.

| the model writes | what we do |
|---|---|
| a name, then the arguments | the call begins at the arguments, which stream; later fields are ignored |
| the arguments, then a name | the call begins at the end of the object |
| only the name of a declared tool | a call without arguments |
| only the name of any other tool | text |
| a name that is not accepted: tools were declared, and it is not one of them | text, with all the fields that follow |
| a key that calls do not have | text, with all the fields that follow |
| a value that its key does not have in a call | text, with all the fields that follow |
| `id`, or `type` with a value of `TYPES` | the id of the call; `type` is ignored |
| the fields of the call in an object (`INNER`): `"function": {…}` | the same as without it |
| a list of calls (`LIST`): `{"tool_calls": […]}`, and nothing else | these calls |
| a thought (`FENCED.thoughts`) | reasoning, before the call |
| an input (`FENCED.text`) that is an object, or a string with one | the arguments |
| any other input | the only argument of the tool |
| `"action": "Final Answer"` | the input is text, and the object around it is markup |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from msgspec import Struct

from penstock.calls.arguments import strict_object
from penstock.dialects.reading.call_objects import (
    ALIASES,
    ARGUMENTS,
    Keys,
    arguments,
    call_array,
    object_end_ahead,
    only_key,
    skip_fields,
)
from penstock.dialects.reading.json import (
    as_text,
    at_key,
    colon,
    ignore,
    json_text,
    next_key,
    short_string,
    string_text,
    unwrapped,
    value,
)
from penstock.dialects.reading.raw_values import write_value
from penstock.dialects.reading.schema import quote
from penstock.dialects.reading.source import Reading, Source
from penstock.dialects.reading.text_call import TextCall
from penstock.dialects.unmarked import admits
from penstock.events import Reasoning, Text


class BareKeys(Keys, frozen=True):
    """The names of the fields of a bare call object.

    The value of a `text` field is the arguments if it is an object, else the tool's only argument. `answers` are values
    of the name with which the model gives its answer instead of a call. A `thoughts` field is reasoning.
    """

    arguments: tuple[str, ...] = (*ARGUMENTS, *ALIASES)
    text: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()


NAMES = ("name", "tool", "function", "tool_name")
IDS = ("id", "call_id")
INNER = ("function", "function_call", "tool_call")
LIST = "tool_calls"
TYPES = ("function", "function_call", "tool_call", "tool_use")
USUAL = BareKeys(NAMES, id=IDS)
FENCED = BareKeys((*NAMES, "action"), (*ARGUMENTS, "args", "params", "kwargs"), IDS,
                  text=("action_input", "tool_input", "input"), answers=("final answer", "final_answer"),
                  thoughts=("thought", "thoughts", "reasoning"))  # fmt: skip

ONE_ARGUMENT = "__arg1"
"""The name of the only argument if neither the model nor the tool names it."""

_OBJECT = ('{"', "{}", "{ ", "{\n", "{\r", "{\t")
_NUMBER = tuple("-0123456789")

Accepts = Callable[[Source, str], bool]
"""Returns whether a name can be a tool's."""


class NotACall(Exception):
    """The object is not a call, and has been emitted as text."""


def declared(source: Source, name: str) -> bool:
    """Accepts the declared tools; any name if no tools were declared."""
    return source.tool_name(name) in source.tools if source.tools else bool(name)


def anything(source: Source, name: str) -> bool:
    """Accepts any name, where the position of an object shows that it is a call."""
    return bool(name)


@cache
def beginnings(keys: BareKeys) -> dict[str, tuple[str, ...]]:
    """Returns the keys of a call, with their quotes, and what the value of each begins with."""
    begins = dict.fromkeys(keys.name, ('"',)) | dict.fromkeys(keys.id, ('"', *_NUMBER)) | {"index": _NUMBER}
    begins |= {key: (*begins.get(key, ()), *_OBJECT) for key in INNER}
    begins |= {"type": tuple(f'"{kind}"' for kind in TYPES), LIST: ("[",)}
    begins |= dict.fromkeys(keys.arguments, (*_OBJECT, '"{', "null"))
    begins |= dict.fromkeys(keys.thoughts, ('"',))
    begins |= dict.fromkeys(keys.text, (*_OBJECT, '"', "[", "true", "false", "null", *_NUMBER))
    return {f'"{key}"': begin for key, begin in begins.items()}


def bare_call(source: Source, keys: BareKeys = USUAL) -> Reading[None]:
    """Reads `{"name": …, "arguments": {…}}`."""
    yield from source.expect("{")
    yield from bare_fields(source, keys)


def bare_fields(source: Source, keys: BareKeys = USUAL, accepts: Accepts = declared) -> Reading[None]:
    """Reads a bare call object, after its brace."""
    fields = EarlyFields()
    while (yield from at_key(source)) or (yield from fields.close_inner(source)):
        key = yield from call_key(source, keys)
        if key == LIST:
            yield from listed_calls(source, keys, fields)
            return
        if key in INNER and (yield from source.accept("{")):
            fields.open_inner(source)
        elif key in keys.name:
            fields.name = yield from short_string(source)
            if is_answer(source, keys, fields):
                yield from answer(source, keys, fields.thought)
                return
            if not accepts(source, fields.name):
                yield from refuse(source)
        elif fields.name and (key in keys.arguments or key in keys.text):
            yield from late_arguments(source, fields, is_text=key in keys.text)
            return
        else:
            yield from fields.read(source, keys, key)
    early_call(source, fields)


class EarlyFields(Struct):
    """The fields of a call object that were read before the call began. `arguments` are JSON."""

    name: str = ""
    id: str = ""
    thought: str = ""
    arguments: str = ""
    is_text: bool = False  # whether the arguments were a `BareKeys.text` field
    is_inner: bool = False  # whether the fields are those of an object inside the call object

    def open_inner(self, source: Source) -> None:
        """Begins the object inside the call object; there is only one, and it has the name."""
        if self.is_inner or self.name or self.arguments:
            source.fail("expected one call")
        self.is_inner = True

    def close_inner(self, source: Source) -> Reading[bool]:
        """At the end of an object: whether it was the inner one, and another field follows."""
        is_inner, self.is_inner = self.is_inner, False
        return is_inner and (yield from at_key(source))

    def read(self, source: Source, keys: BareKeys, key: str) -> Reading[None]:
        """Reads the value of a field other than the name."""
        raw = yield from json_text(source)
        if key in keys.id:
            self.id = as_text(raw)
        elif key in keys.thoughts:
            self.thought = as_text(raw)
        elif key not in ("type", "index"):
            self.arguments, self.is_text = raw, key in keys.text


def is_answer(source: Source, keys: BareKeys, fields: EarlyFields) -> bool:
    """Returns whether the object is the model's answer and not a call."""
    is_named_so = fields.name.lower() in keys.answers and fields.name not in source.tools
    return is_named_so and not (fields.arguments or source.only_declared)


def late_arguments(source: Source, fields: EarlyFields, *, is_text: bool) -> Reading[None]:
    """Reads the rest of a call object after its name, from the value of its arguments."""
    if not admits(source, fields.name):
        yield from emit_value(source)
        yield from refuse(source)
    emit_thought(source, fields.thought)
    call = source.begin(fields.name, fields.id)
    yield from (one_argument if is_text else arguments)(source, call)
    yield from skip_fields(source)
    if fields.is_inner:
        yield from skip_fields(source)
    yield from object_end_ahead(source)
    source.end()


def listed_calls(source: Source, keys: BareKeys, fields: EarlyFields) -> Reading[None]:
    """Reads the rest of `{"tool_calls": […]}`, from the list; it has no other fields."""
    if fields != EarlyFields():
        source.fail("expected one call")
    yield from source.expect("[")
    yield from source.space()
    yield from call_array(source, partial(bare_call, keys=keys))
    yield from source.space()
    yield from source.expect("}")


def early_call(source: Source, fields: EarlyFields) -> None:
    """Emits the call of an object that has ended; its arguments came before its name, or there are none."""
    if not fields.name or not (fields.arguments or source.tool_name(fields.name) in source.tools):
        source.fail("expected a call")
    if not admits(source, fields.name):
        source.release()
        raise NotACall
    emit_thought(source, fields.thought)
    call = source.begin(fields.name, fields.id)
    raw = one_argument_of(call, fields.arguments) if fields.is_text else unwrapped(fields.arguments)
    call.add(raw or "{}")
    source.end()


def call_key(source: Source, keys: BareKeys) -> Reading[str]:
    """Reads the next key and its colon. If calls have no such key or no such value, the object is text."""
    begins = beginnings(keys)
    quoted = yield from source.accept(*begins)
    if not quoted:
        yield from emit_field(source)
        yield from refuse(source)
    yield from colon(source)
    if not (yield from source.sees(*begins[quoted])):
        if (yield from source.sees("{")) and not (yield from source.sees(*_OBJECT)):
            source.fail("expected a JSON value")
        yield from emit_value(source)
        yield from refuse(source)
    return quoted.strip('"')


def one_argument(source: Source, call: TextCall) -> Reading[None]:
    """Reads a value that is the arguments if it is an object, else the tool's only argument."""
    if (yield from source.peek()) == "{":
        yield from value(source, call.add)
    elif (yield from source.sees('"{')):  # an object in a string, or text that begins like one
        yield from write_value(call, partial(one_argument_of, call), partial(quoted, source))
    else:
        call.key(only_key(call, ONE_ARGUMENT))
        if (yield from source.accept('"')):
            call.add('"')
            yield from string_text(source, call.string)
            call.add('"')
        else:
            yield from value(source, call.add)
        call.end_keys()


def quoted(source: Source, sink: Callable[[str], None]) -> Reading[str]:
    """Reads a string as it is written, with its quotes."""
    yield from value(source, sink)
    return ""


def one_argument_of(call: TextCall, raw: str) -> str:
    """Returns the arguments for such a value that has been read before."""
    raw = raw if strict_object(inner := unwrapped(raw)) is None else inner
    return raw if raw.startswith("{") else f"{{{quote(only_key(call, ONE_ARGUMENT))}:{raw}}}"


def emit_thought(source: Source, thought: str) -> None:
    """Emits a thought as reasoning; the object that contains it is a call."""
    if thought:
        source.drop()
        source.output.kind = Reasoning
        source.output.add(thought)
        source.output.kind = Text


def answer(source: Source, keys: BareKeys, thought: str) -> Reading[None]:
    """Reads the rest of `{"action": "Final Answer", "action_input": "…"}`, and emits the input as text.

    The values of other fields are text too, each on a line of its own.
    """
    is_empty = True
    while (key := (yield from next_key(source))) is not None:
        if key in keys.id or key == "type":
            yield from value(source, ignore)
            continue
        if key in keys.thoughts and (yield from source.sees('"')):
            emit_thought(source, as_text((yield from json_text(source))))
            source.hold()
            continue
        emit_thought(source, thought if is_empty else "")
        source.drop()
        if not is_empty:
            source.output.add("\n")
        is_empty = False
        if (yield from source.accept('"')):
            yield from string_text(source, source.output.add)
        else:
            yield from value(source, source.output.add)
        source.hold()
    if is_empty:
        source.release()
        raise NotACall


# -- objects that are not calls ------------------------------------------------------------------------------------


def refuse(source: Source) -> Reading[None]:
    """Emits the rest of an object that is not a call as text, so that nothing in it is taken for a call."""
    while (yield from at_key(source)):
        yield from emit_field(source)
    source.release()
    raise NotACall


def emit_field(source: Source) -> Reading[None]:
    """Emits a field as text, and what was held before it."""
    source.release()
    if (yield from source.peek()) != '"':
        source.fail("expected a key")
    yield from source.value(source.output.add)
    source.hold()
    yield from colon(source)
    yield from emit_value(source)


def emit_value(source: Source) -> Reading[None]:
    """Emits the value of a field as text, and what was held before it."""
    source.release()
    yield from source.value(source.output.add)
    source.hold()
