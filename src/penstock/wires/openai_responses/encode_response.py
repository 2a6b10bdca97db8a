"""Encodes responses for the Responses API: SSE events, and whole responses.

Every item is added, sent in deltas, done, and repeated in the final response. Consecutive texts are the parts of one
message, and consecutive pieces of reasoning the summary of one reasoning item, until vendor state ends the item. Items
keep the id with which they were added: clients find them by it, so an id in vendor state is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.calls.arguments import strict_object
from penstock.calls.rope import Rope
from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, ToolCallInvalid
from penstock.turn import Turn, TurnPart
from penstock.wires.openai_responses.facts import ECHOED, FACTS, USAGE
from penstock.wires.shared.encode_response.json_writing import named_sse, quote, split_around
from penstock.wires.shared.encode_response.openai_errors import OPENAI_ERRORS, OPENAI_OVERFLOW, openai_error
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_errors import too_large
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames, ResponseLimit
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import with_starts
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
_MARK = "\x00"
_NUMBER = "\x01"
MAX_RESPONSE = 64 * 1024 * 1024
"""How many characters of texts and arguments a response may have: its last frame repeats them all."""


class OpenItem:
    """A message or reasoning item that is being written; `blocks` are the blocks of its parts."""

    __slots__ = ("blocks", "id", "index", "parts", "type")

    def __init__(self, type: str, id: str, index: int) -> None:
        self.type = type
        self.id = id
        self.index = index
        self.parts: list[Json] = []
        self.blocks: set[int] = set()

    def whole(self, status: str) -> Json:
        """The item as it is when it is done."""
        if self.type == "reasoning":
            return {"id": self.id, "type": "reasoning", "summary": self.parts}
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": self.parts}


class OpenPart:
    """The part of an item that is being written: the names of its frames, and its text so far."""

    __slots__ = ("field", "frames", "part", "place", "rope", "stem")

    def __init__(self, event: Content, item: OpenItem) -> None:
        self.rope = Rope()
        self.part: Json
        item_place: Json = {"item_id": item.id, "output_index": item.index}
        number = len(item.parts)
        if isinstance(event, Reasoning):
            self.stem, self.frames, self.field = "reasoning_summary_text", "reasoning_summary_part", "text"
            self.place, self.part = {**item_place, "summary_index": number}, {"type": "summary_text", "text": ""}
        elif isinstance(event, Refusal):
            self.stem, self.frames, self.field = "refusal", "content_part", "refusal"
            self.place, self.part = {**item_place, "content_index": number}, {"type": "refusal", "refusal": ""}
        else:
            self.stem, self.frames, self.field = "output_text", "content_part", "text"
            part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self.place, self.part = {**item_place, "content_index": number}, part

    @property
    def more(self) -> Json:
        """The fields that the frames of this text have in addition."""
        return {"logprobs": []} if self.stem == "output_text" else {}


FINISH_REASONS = {
    "stop": "completed", "tool_calls": "completed", "length": "max_output_tokens", "content_filter": "content_filter",
    "other": "other",
}  # fmt: skip
"""The provider's finish reasons by ours."""


class OpenAIResponsesFrames(ResponseFrames):
    """The frames of the Responses API. Reasoning is written as a summary."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        has_custom_calls=True,
        states_final_arguments=True,
        marks_cut_calls=True,
        one_block_at_a_time=True,
        finish_reasons=FINISH_REASONS,
        error_codes=OPENAI_ERRORS,
        overflow=OPENAI_OVERFLOW,
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._number = 0  # sequence number of the next frame
        self._size = 0  # characters that the last frame will repeat
        self._output: list[Json | None] = []  # the items that are done, at their index
        self._item: OpenItem | None = None
        self._part: OpenPart | None = None
        self._ended: Json = {}
        self._added: dict[WrittenCall, tuple[Json, int]] = {}  # the items of calls as they were added, and their index
        self._blocks: dict[str, set[int]] = {}  # blocks of messages, reasoning and vendor items, by item id

    # The stream.

    def opening(self) -> None:
        for status in ("created", "in_progress"):
            self._frame(status, response=self._response("in_progress"))

    def begin_content(self, event: Content) -> Write:
        type = "reasoning" if isinstance(event, Reasoning) else "message"
        if self._item is None or self._item.type != type:
            self._end_item()
            self._item = self._begin_item(type)
        item = self._item
        item.blocks.add(event.block)
        self._part = part = OpenPart(event, item)
        self._frame(f"{part.frames}.added", **part.place, part=part.part)
        write_frame, add = self._writer(f"{part.stem}.delta", **part.place, delta=_MARK, **part.more), part.rope.append

        def write(piece: str) -> None:
            add(piece)
            write_frame(piece)

        return write

    def end_content(self) -> None:
        part, item = self._part, self._item
        if part is None or item is None:
            return
        self._part, text = None, part.rope.text()
        whole = {**part.part, part.field: text}
        item.parts.append(whole)
        self._frame(f"{part.stem}.done", **part.place, **{part.field: text}, **part.more)
        self._frame(f"{part.frames}.done", **part.place, part=whole)

    def begin_call(self, call: WrittenCall) -> Write:
        self._end_item()
        stem, field, item = self._call_item(call)
        index = self._next_index()
        self._added[call] = item, index
        self._frame("output_item.added", output_index=index, item={**item, "status": "in_progress", field: ""})
        return self._writer(f"{stem}.delta", item_id=item["id"], output_index=index, delta=_MARK)

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._end_call_item(call, arguments, "completed")

    def leave_call(self, call: WrittenCall, event: ToolCallInvalid) -> None:
        seems_whole = bool(call.name) and call.kind == "function" and strict_object(event.arguments_raw) is not None
        is_cut = event.why == "cut" or seems_whole
        self._end_call_item(call, event.arguments_raw, "incomplete" if is_cut else "completed")

    def _end_call_item(self, call: WrittenCall, arguments: str, status: str) -> None:
        item, index = self._added.pop(call)
        stem, field, _ = self._call_item(call)
        done = {**call.states.get(item["type"], {}), **item, "status": status, field: arguments}
        item_place = {"item_id": item["id"], "output_index": index}
        if status == "completed":
            self._frame(f"{stem}.done", **item_place, **{field: arguments})
        self._done(done, index)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if self.ends_content(event):
            self._end_item(event.data)
        elif isinstance(event.data, dict) and not _is_part_of_item(event):
            self._end_item()
            index = self._next_index()
            begun = {"status": "in_progress"} if "status" in event.data else {}
            self._blocks[str(event.data.get("id"))] = {event.block}
            self._frame("output_item.added", output_index=index, item={**event.data, **begun})
            self._done(event.data, index)

    def ends_content(self, event: Opaque) -> bool:
        """Whether vendor state has the fields of the open item: it comes when the item is done."""
        item = self._item
        return item is not None and event.block in item.blocks and event.kind == item.type

    def failure(self, error: Error) -> None:
        code = self.in_band_code(error)
        fields = {"code": code, "message": error.message}
        self._write_frame({"type": "error", **fields, "param": None})
        self._frame("failed", response=self._response("failed", error=fields))

    def finish(self, event: Finish) -> None:
        self._end_item()
        self._ended = self._ending(event)
        self._frame(str(self._ended["status"]), response=self._ended)

    def expresses_work(self, client_work: str) -> bool:
        return any(item is not None and item["type"] == client_work for item in self._output)

    def _frame(self, name: str, /, **fields: Any) -> None:
        self._write_frame({"type": f"response.{name}", **fields})

    def _write_frame(self, frame: Json) -> None:
        self.out.append(named_sse({**frame, "sequence_number": self._number}))
        self._number += 1

    def _writer(self, name: str, /, **fields: Any) -> Write:
        """Writes frames of this name with a piece in the place of the mark; frames are numbered."""
        frame = {"type": f"response.{name}", **fields, "sequence_number": _NUMBER}
        before, rest = split_around(frame, _MARK)
        middle, _, after = rest.partition(quote(_NUMBER))
        before, after, append = f"event: response.{name}\ndata: ".encode() + before, after + b"\n\n", self.out.append

        def write(piece: str) -> None:
            number = self._number
            self._number = number + 1
            self._size += len(piece)
            if self._size > MAX_RESPONSE:
                raise ResponseLimit(too_large("the response"))
            append(b"%b%b%b%d%b" % (before, quote(piece), middle, number, after))

        return write

    # Items.

    def _next_index(self) -> int:
        self._output.append(None)
        return len(self._output) - 1

    def _begin_item(self, type: str) -> OpenItem:
        index = self._next_index()
        item = OpenItem(type, f"{'rs' if type == 'reasoning' else 'msg'}_{self.head.id}_{index}", index)
        self._blocks[item.id] = item.blocks
        self._frame("output_item.added", output_index=index, item={**item.whole("in_progress"), **_no_parts(type)})
        return item

    def _end_item(self, state: Any = None) -> None:
        """Ends the open message or reasoning; `state` are the fields that the provider gave it."""
        item, self._item = self._item, None
        if item is not None:
            whole = item.whole("completed")
            kept = state if isinstance(state, dict) else {}
            if item.type == "reasoning" and kept.get("summary"):
                whole.pop("summary")  # as the provider spelled it
            self._done({**kept, **whole}, item.index)

    def _done(self, item: Json, index: int) -> None:
        self._output[index] = item
        self._frame("output_item.done", output_index=index, item=item)

    def _call_item(self, call: WrittenCall) -> tuple[str, str, Json]:
        """The name of a call's frames, the field of its arguments, and its item without them."""
        path = self.head.namespaces.get(call.name)
        name = {"name": call.name} if path is None else {"name": path.name, "namespace": path.namespace}
        id = f"{self.head.id}_{call.index}"
        if call.kind == "custom":
            item = {"id": f"ctc_{id}", "type": "custom_tool_call", "call_id": call.id, **name}
            return "custom_tool_call_input", "input", item
        return "function_call_arguments", "arguments", {
            "id": f"fc_{id}", "type": "function_call", "call_id": call.id, **name,
        }  # fmt: skip

    def item_blocks(self, parts: Iterable[TurnPart]) -> dict[str, set[int]]:
        encoder = ResponseEncoder(self)
        encoder.feed(with_starts(parts))
        return self._blocks | {self._call_item(call)[2]["id"]: {block} for block, call in encoder.calls.items()}

    # The response.

    def _ending(self, finish: Finish) -> Json:
        counts = None if self.usage is None else written_usage(USAGE, self.usage)
        word = self.reason_of(finish)
        if word == "completed":
            return self._response("completed", usage=counts)
        return self._response("incomplete", usage=counts, incomplete_details={"reason": word})

    def _response(self, status: str, **fields: Any) -> Json:
        head = self.head
        echoed = {key: head.echo.get(key, usual) for key, usual in ECHOED.items()}
        return {
            "id": f"resp_{head.id}", "object": "response", "created_at": head.created, "status": status, "error": None,
            "incomplete_details": None, "model": head.model,
            "output": [item for item in self._output if item is not None], "usage": None, **echoed, **fields,
        }  # fmt: skip

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        [turn] = turns
        self.usage = turn.usage
        reason = turn.finish_reason or "cut"
        end = Finish(reason, turn.raw_finish_reason, client_work=turn.client_work)
        ResponseEncoder(self).feed([*with_starts(turn.parts), end])
        return self._ended

    def error_body(self, error: Error, status: int) -> Json:
        return openai_error(self.code_of(error, status), error.message, status)


def _is_part_of_item(event: Opaque) -> bool:
    """Whether state is only the fields of a message or call without its content."""
    content = {"message": "content", "function_call": "arguments", "custom_tool_call": "input"}.get(event.kind)
    return content is not None and content not in event.data


def _no_parts(type: str) -> Json:
    return {"summary": []} if type == "reasoning" else {"content": []}
