"""Mutations of a stream that keep most of its structure: frames move or vanish, fields change their type."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.protocols import DONE, Frame

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 10**20, 1.5, 1.0, -0.0, 1e300, "", "0", "1", "x", "null", "{}", '{"a": 1}',
    '{"a": ', "\x00", "\ud83d", "\ude00", [], {}, [None], [[]], [{}], {"": None}, {"a": {"b": []}}, "error", "function",
    "tool_use", "text", float("inf"), float("nan"),
]  # fmt: skip
IDENTITY = ("index", "id", "name", "type", "call_id", "item_id", "output_index", "content_index", "toolUseId",
            "contentBlockIndex", "finish_reason", "finishReason", "stop_reason", "stopReason", "status", "arguments",
            "delta", "tool_calls", "function", "input", "args", "willContinue", "done")  # fmt: skip
"""Fields that say what a frame belongs to, or what it is: they are changed most often."""
NEW_TYPES = [
    "future.thing", "content_block_future", "response.future.delta", "response.output_item.future", "function_call",
    "custom_tool_call", "message", "error", "ping", "tool-call-end", "message_stop", "response.completed",
]  # fmt: skip
ERRORS: list[Any] = [
    {"error": {"message": "overloaded", "type": "overloaded_error"}}, {"type": "error", "error": {"message": "boom"}},
    {"error": "boom"}, {"message": "Too many requests"}, {"detail": "gone"}, {"error": {"code": 429}}, {"error": None},
    {"error": {}}, {"error": True}, {"type": "error", "message": "boom", "code": "x"}, {"error": []},
]  # fmt: skip
NOISE = [
    ": keep-alive\n\n", "\n", "\r\n\r\n", "data:\n\n", "data: \n\n", "event: ping\n\n", "event: ping\ndata: {}\n\n",
    "retry: 5\n\n", "id: 7\n\n", ":\n", DONE, "data: [DONE]", "data: hello\n\n", "hello\n", "hello", "data: {\n\n",
    'data: {"a": \n\n', "{", "}", "\x00", "data: null\n\n", "data: 1\n\n", "data: []\n\n", "data: {}\n\n",
    'data: "x"\n\n', "<html>", 'data: : {"a": 1}\n\n', "event: error\ndata: boom\n\n", "event: error\ndata: {}\n\n",
    "error: boom\n\n", "data: [[[[\n\n", "event: \ud800\n\n", "\n\n\n",
    "data: " + "[" * 300 + "]" * 300 + "\n\n", "event: x\nevent: y\ndata: {}\ndata: {}\n\n",
]  # fmt: skip
LINES = [
    "\udcff", "hello", "{", "}", '"x"', "data", "data: ", "data: \udcff", "data: x", "data: {}", "event: \udcff",
    "event: error", "event: message", "id: \udcff", ": \udcff", "odd: word", "odd: {", "error: boom", "[DONE]",
    '{"a": 1}', "\ufeff", "dat", "\x00",
]  # fmt: skip

Frames = list[Frame]


def mutate(chance: Random, frames: Frames, others: Frames) -> Frames:
    """The frames with a few mutations; `others` are frames that may be mixed in."""
    frames = copy.deepcopy(frames)
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3, 5])):
        frames = chance.choice(MUTATIONS)(chance, frames, others) if frames else [chance.choice(NOISE)]
    return frames


# Frames that vanish, repeat and move.


def drop(chance: Random, frames: Frames, others: Frames) -> Frames:
    at = chance.randrange(len(frames))
    return frames[:at] + frames[at + chance.choice([1, 1, 1, 2]) :]


def repeat(chance: Random, frames: Frames, others: Frames) -> Frames:
    at = chance.randrange(len(frames))
    end = at + chance.choice([1, 1, 2, 5])
    to = chance.choice([end, len(frames), chance.randrange(len(frames) + 1)])
    return frames[:to] + copy.deepcopy(frames[at:end]) + frames[to:]


def swap(chance: Random, frames: Frames, others: Frames) -> Frames:
    one, other = chance.randrange(len(frames)), chance.randrange(len(frames))
    if chance.random() < 0.5:
        other = min(one + 1, len(frames) - 1)
    frames[one], frames[other] = frames[other], frames[one]
    return frames


def truncate(chance: Random, frames: Frames, others: Frames) -> Frames:
    return frames[: chance.randrange(len(frames)) + 1]


def behead(chance: Random, frames: Frames, others: Frames) -> Frames:
    return frames[chance.randrange(len(frames)) :]


def mix(chance: Random, frames: Frames, others: Frames) -> Frames:
    """The stream with another one interleaved, or with itself."""
    other = copy.deepcopy(others if chance.random() < 0.5 else frames)
    start = chance.randrange(len(other) + 1)
    other = other[start : start + chance.choice([1, 2, 4, 50])]
    mixed: Frames = []
    while frames or other:
        source = frames if not other or (frames and chance.random() < 0.6) else other
        mixed.append(source.pop(0))
    return mixed


# Things that do not belong to the stream.


def insert_noise(chance: Random, frames: Frames, others: Frames) -> Frames:
    frames.insert(chance.randrange(len(frames) + 1), chance.choice(NOISE))
    return frames


def insert_error(chance: Random, frames: Frames, others: Frames) -> Frames:
    frames.insert(chance.randrange(len(frames) + 1), copy.deepcopy(chance.choice(ERRORS)))
    return frames


def insert_end(chance: Random, frames: Frames, others: Frames) -> Frames:
    """An early end, or a second one."""
    frames.insert(chance.randrange(len(frames) + 1), copy.deepcopy(chance.choice([DONE, *frames[-2:]])))
    return frames


def cut_text(chance: Random, frames: Frames, others: Frames) -> Frames:
    """A frame whose text is damaged, although its framing is not."""
    at = chance.randrange(len(frames))
    frames[at] = damaged_text(chance, frames[at])
    return frames


def damaged_text(chance: Random, frame: Frame) -> str:
    text = frame if isinstance(frame, str) else f"data: {json.dumps(frame, ensure_ascii=False)}\n\n"
    position = chance.randrange(len(text) + 1)
    middle = chance.choice(["", "\x00", "\n", "\n\n", '"', "\\", "\udcff", "\r", "{", "}", text[:3]])
    return text[:position] + middle + text[position + chance.choice([0, 0, 1, 3, 40]) :]


def add_line(chance: Random, frames: Frames, others: Frames) -> Frames:
    """A line that cannot be read before or after the data of a block, or more in the line of the data."""
    at = chance.randrange(len(frames))
    frame = frames[at]
    text = frame if isinstance(frame, str) else f"data: {json.dumps(frame, ensure_ascii=False)}\n\n"
    lines, line = text.rstrip("\n").split("\n"), chance.choice(LINES)
    place = chance.randrange(len(lines) + 1)
    if chance.random() < 0.3:
        lines[min(place, len(lines) - 1)] += line
    else:
        lines.insert(place, line)
    frames[at] = "\n".join(lines) + chance.choice(["\n\n", "\n\n", "\n", ""])
    return frames


# Fields.


def change_field(chance: Random, frames: Frames, others: Frames) -> Frames:
    place = random_place(chance, chance.choice(frames))
    if place is not None:
        container, key = place
        container[key] = odd_value(chance, container[key])
    return frames


def remove_field(chance: Random, frames: Frames, others: Frames) -> Frames:
    place = random_place(chance, chance.choice(frames))
    if place is not None:
        del place[0][place[1]]
    return frames


def rename_field(chance: Random, frames: Frames, others: Frames) -> Frames:
    place = random_place(chance, chance.choice(frames))
    if place is not None and isinstance(place[0], dict):
        container, key = place
        container[chance.choice(["future", "id", "type", "error", "index", "name", "output", "message"])] = (
            container.pop(key)
        )
    return frames


def copy_field(chance: Random, frames: Frames, others: Frames) -> Frames:
    """A value of one frame in a place of another; ids and numbers of calls so become those of others."""
    source, target = (random_place(chance, chance.choice(frames)) for _ in range(2))
    if source is not None and target is not None:
        target[0][target[1]] = copy.deepcopy(source[0][source[1]])
    return frames


def add_field(chance: Random, frames: Frames, others: Frames) -> Frames:
    containers = [container for container, _ in places(chance.choice(frames)) if isinstance(container, dict)]
    if containers:
        key = chance.choice(
            ["future", "error", "type", "id", "index", "output", "name", "finish_reason", "usage", "text"]
        )
        chance.choice(containers)[key] = odd_value(chance, None)
    return frames


def change_type(chance: Random, frames: Frames, others: Frames) -> Frames:
    found = [(container, key) for container, key in places(chance.choice(frames)) if key == "type"]
    if found:
        container, key = chance.choice(found)
        container[key] = chance.choice(NEW_TYPES)
    return frames


def change_everywhere(chance: Random, frames: Frames, others: Frames) -> Frames:
    """One field in all frames: no ids, the same index for all, numbers for names."""
    key, value = chance.choice(IDENTITY), chance.choice(ODD_VALUES)
    is_removed = chance.random() < 0.4
    for frame in frames:
        for container, name in places(frame):
            if name == key and key in container:
                if is_removed:
                    del container[key]
                else:
                    container[key] = copy.deepcopy(value)
    return frames


def respell_arguments(chance: Random, frames: Frames, others: Frames) -> Frames:
    """Arguments that are not one strict object: doubled, cut, with something after them, with a key twice."""
    found = [
        (container, key)
        for frame in frames
        for container, key in places(frame)
        if key in ("arguments", "partial_json", "input", "delta", "args") and isinstance(container[key], str | dict)
    ]
    if found:
        container, key = chance.choice(found)
        text = container[key] if isinstance(container[key], str) else json.dumps(container[key])
        container[key] = chance.choice(
            [text * 2, text[:-1], text + "x", text + "}", "[" + text + "]", json.dumps(text), "{" * 200,
             '{"a": 1, "a": 2}', "null", '{"a": NaN}', text.replace('"', "'"), " " + text, text + "\n", '{"a":"\n"}']
        )  # fmt: skip
    return frames


def odd_value(chance: Random, value: Any) -> Any:
    match chance.randrange(8):
        case 0 if isinstance(value, str):
            return [value]
        case 1 if isinstance(value, str):
            return {"text": value}
        case 2 if isinstance(value, int | float):
            return str(value)
        case 3 if isinstance(value, int) and abs(value) < 10**6:
            return value + chance.choice([-1, 1, 0.0, 7])
        case 4 if isinstance(value, list) and value:
            return [*value, copy.deepcopy(value[0])]
        case 5 if isinstance(value, dict | list):
            return json.dumps(value)
        case 6 if isinstance(value, dict):
            return [value]
    return copy.deepcopy(chance.choice(ODD_VALUES))


Place = tuple[Any, Any]
"""A container and the key of one of its values."""


def places(value: Any) -> list[Place]:
    """All places in a frame."""
    found: list[Place] = []
    pending = [value]
    while pending:
        container = pending.pop()
        keys: Any = (
            container if isinstance(container, dict) else range(len(container)) if isinstance(container, list) else ()
        )
        for key in list(keys):
            found.append((container, key))
            if isinstance(container[key], dict | list):
                pending.append(container[key])
    return found


def random_place(chance: Random, frame: Frame) -> Place | None:
    found = places(frame)
    if not found:
        return None
    weights = [4 if key in IDENTITY else 1 for _, key in found]
    return chance.choices(found, weights)[0]


Mutation = Callable[[Random, Frames, Frames], Frames]

MUTATIONS: list[Mutation] = [
    drop, repeat, swap, truncate, behead, mix, insert_noise, insert_error, insert_end, cut_text, add_line, change_field,
    change_field, change_field, remove_field, rename_field, copy_field, copy_field, add_field, change_type,
    change_everywhere, respell_arguments, repeat, swap,
]  # fmt: skip
