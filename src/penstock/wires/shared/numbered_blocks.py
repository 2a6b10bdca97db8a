"""Answers that come as numbered blocks, each begun, continued and ended by its number: Anthropic's way, and Converse's.

A wire says what it saw (`begin`, `words`, `arguments`, `keep`, `stop`, `finish`); this says what that means. Vendor
state comes out when its block ends: what belongs to a text, a thought or a call as an `Opaque` on the same block, named
for its field (a signature, citations); what is a block of its own as an `Opaque` whose data is that block, ready to be
sent back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.events import SealedBy
from penstock.jsontext.surrogates import join_surrogates
from penstock.wires.shared.answer_writer import NO_ARGUMENTS
from penstock.wires.shared.loose import is_empty
from penstock.wires.shared.open_block import OpenPart, OpenText, OpenThought, OpenTool, OpenVendor, OpenWords
from penstock.wires.shared.wire import INTERRUPTED, Wire

Label = int | float | str | None
"""The number of a block as the vendor gave it: a label, not a position. None stands for a block without one."""


class NumberedWire(Wire):
    """A wire whose blocks are numbered."""

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self.answer = self.answer_for()
        self.parts: dict[Label, OpenPart] = {}
        self._tools: dict[OpenTool, None] = {}  # those that may get more; some of them may have ended
        self._last: Label = None
        self._doubtful: list[tuple[OpenTool, SealedBy]] = []  # ended calls on which the turn's end has a say

    # What wires say.

    def label(self, number: Any) -> Label:
        """The label of a block; one that was left out means the block that was begun last."""
        return number if isinstance(number, int | float | str) else self._last

    def begin(self, number: Any, part: OpenPart) -> None:
        """A block began; one that has its number already can get no more."""
        self._go_on()
        label = number if isinstance(number, int | float | str) else None
        if label in self.parts:
            self._displace(self.parts[label], label)
        self.parts[label] = part
        self._last = label

    def begin_call(self, number: Any, id: Any, name: Any, input: str = "") -> OpenTool | None:
        """A call for the client began, unless that was told before; `input` is what its start said of the arguments."""
        given_id, name = (
            "" if id is None else join_surrogates(str(id)),
            join_surrogates(name) if isinstance(name, str) else "",
        )
        self._go_on()
        known = self.parts.get(number) if isinstance(number, int | float | str) else None
        if isinstance(known, OpenTool) and known.is_begun_again(given_id, name, input):
            return None
        part = OpenTool(self.answer.call(given_id, name), given_id, input)
        self.begin(number, part)
        self._tools[part] = None
        return part

    def begin_vendor(self, number: Any, kind: str, body: dict[str, Any], is_state: bool, wrap: str = "") -> None:
        """A block that is none of ours began; `is_state` if it must be sent back."""
        self.begin(number, OpenVendor(kind, body, self.answer.new_block() if is_state else -1, wrap))

    def words(self, label: Label, kind: type[OpenWords], piece: str) -> None:
        """A piece of a text or of a thought; it may be the first that is heard of its block (QUIRKS 161)."""
        if not piece:
            return
        part = self.parts.get(label)
        if part is None:
            part = kind()
            self.begin(label, part)
        if isinstance(part, kind):
            self._say(part, part.fresh("text", piece))
        elif kind is OpenText:
            self.answer.text(piece)
        else:
            self.answer.reasoning(piece)

    def arguments(self, label: Label, piece: str) -> None:
        """A piece of a call's arguments, or of the input of a tool that the provider runs."""
        part = self.parts.get(label)
        if isinstance(part, OpenVendor):
            self.keep(label, "input", piece)
        elif piece:
            tool = part if isinstance(part, OpenTool) else self._only_open_tool()
            if tool is None or tool.call.is_ended:
                self.answer.is_short = True
                self.unknown({"index": label, "input": piece}, "a piece of a call that is not open")
            else:
                tool.call.add(piece)

    def strange_delta(self, label: Label, delta: dict[str, Any], note: str) -> None:
        """A piece of a kind that we do not know."""
        if not is_empty(delta):
            self.harm(label)
        self.leftover(delta, (), note)

    def harm(self, number: Any) -> None:
        """Something that we do not know was said of a block: if it is a call, it may lack it."""
        part = self.parts.get(number) if isinstance(number, int | float | str) else None
        if isinstance(part, OpenTool):
            part.call.damage()

    def keep(self, label: Label, field: str, value: Any, kind: type[OpenWords] = OpenThought) -> None:
        """A piece of state that belongs to a part; `kind` is what the part is if nothing was heard of it before."""
        if value is None or value == "":
            return
        part = self.parts.get(label)
        if part is None:
            part = kind()
            self.begin(label, part)
        if not part.keep(field, value):
            self.unknown({field: value}, "a piece of state that goes beyond MAX_STATE")

    def stop(self, label: Label, sealed_by: SealedBy = "call_end") -> None:
        """A block ended. It stays known by its number: some send more of it all the same (QUIRKS 163)."""
        part = self.parts.get(label)
        if isinstance(part, OpenVendor):
            del self.parts[label]
        if isinstance(part, OpenTool):
            self._stop_call(part, sealed_by)
        elif part is not None:
            self._leave(part)

    def finish(self, raw_reason: Any, message: Any = "") -> None:
        """The provider said why it stopped."""
        self.answer.finish(
            join_surrogates(str(raw_reason)), join_surrogates(message) if isinstance(message, str) else ""
        )
        if not self._is_interrupted():
            self._settle()

    def withdraw(self, why: str) -> None:
        """The provider began the answer anew (QUIRKS 123)."""
        self.answer.withdraw()
        self.parts.clear()
        self._tools.clear()
        self._doubtful.clear()
        self.restart(why)

    def end(self, by_mark: bool = False) -> None:
        is_whole = self.is_finished(self.answer)
        if self._is_interrupted():
            self._cut_calls()
        self._settle()  # those whose end came; of the others a bare end mark does not say that they have no arguments
        for label, part in list(self.parts.items()):
            if is_whole or (by_mark and not self._errors):
                self.stop(label, "finish" if is_whole else "done")
            else:
                self._cut(part)
        if is_whole:
            self._settle()
        super().end(by_mark)

    def leftover(self, value: Mapping[Any, Any], known: Collection[str], note: str) -> None:
        """Tell the fields of an object that we have no word for."""
        for key, field in value.items():
            if key not in known and not is_empty(field):
                self.unknown({key: field}, note)

    # How a block ends.

    def _go_on(self) -> None:
        """Another block begins: what was held of those before it is told first."""
        self._settle()
        last = self.parts.get(self._last)
        if isinstance(last, OpenWords):
            self._flush(last)

    def _say(self, part: OpenWords, piece: str) -> None:
        if part.block < 0:
            part.block = self.answer.new_block()
        self.out.append(part.make(part.block, piece))

    def _leave(self, part: OpenPart) -> None:
        """Tell what a part still holds. A call that is left is still open: the turn's end decides."""
        if isinstance(part, OpenVendor):
            self._tell_vendor(part)
        else:
            self._flush(part)
            self._tell_state(part)

    def _displace(self, part: OpenPart, label: Label) -> None:
        """Another block has a part's number: a call that has not ended can get no more, and nothing can end it."""
        self._leave(part)
        if isinstance(part, OpenTool):
            self._tools.pop(part, None)
            if label is not None:
                part.call.fail("cut", "another block took the call's number before the call ended")

    def _flush(self, part: OpenPart) -> None:
        """No more pieces come: what the part's start said stands."""
        match part:
            case OpenTool():
                part.take_input()
            case OpenWords() if text := part.given.pop("text", ""):
                self._say(part, text)

    def _tell_state(self, part: OpenPart) -> None:
        for field, pieces in part.take_state().items():
            if part.block < 0:
                part.block = self.answer.new_block()
            self.answer.opaque(field, self.joined(field, pieces), part.block)

    def joined(self, field: str, pieces: list[Any]) -> Any:
        """The pieces of a part's state as one: text is joined, anything else is a list."""
        return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces

    def _tell_vendor(self, part: OpenVendor) -> None:
        if part.is_state:
            self.answer.opaque(part.kind, part.whole(), part.block)
        else:
            self.unknown(part.whole(), "a block of a type that we do not know")

    def _stop_call(self, part: OpenTool, sealed_by: SealedBy) -> None:
        part.take_input()
        self._tell_state(part)
        if part.call.is_closed or (not part.is_stopped and part.is_plainly_whole()):  # parsed once, not at each stop
            self.answer.seal(part.call, sealed_by)
        elif not part.is_stopped:
            self._doubtful.append((part, sealed_by))
        part.is_stopped = True

    def _settle(self) -> None:
        """The answer goes on or ended well: ended calls are what they are, also without arguments (QUIRKS 33)."""
        for part, sealed_by in self._doubtful:
            if self.answer.is_short and not part.call.has_arguments:
                part.call.fail("cut", NO_ARGUMENTS)
            part.take_input(even_empty=True)
            self.answer.seal(part.call, sealed_by)
        self._doubtful.clear()

    def _is_interrupted(self) -> bool:
        return self.FINISH.get(self.answer.raw_reason or "") in INTERRUPTED

    def _cut_calls(self) -> None:
        """The answer was broken off: a call that has not its arguments whole was too, ended or not (QUIRKS 125)."""
        for part in self.parts.values():
            if isinstance(part, OpenTool):
                part.take_input()
                if not part.is_plainly_whole():
                    reason = self.answer.raw_reason
                    part.call.fail("cut", f"the answer ended ({reason}) before the arguments did")

    def _cut(self, part: OpenPart) -> None:
        """The bytes ended within a block: its words stand, but state that may be cut must not be sent back."""
        if isinstance(part, OpenVendor):
            self.unknown(part.whole(), "a block that was cut")
            return
        self._flush(part)
        if state := {field: self.joined(field, pieces) for field, pieces in part.take_state().items()}:
            self.unknown(state, "state of a block that was cut")

    def _only_open_tool(self) -> OpenTool | None:
        found: list[OpenTool] = []
        while self._tools and len(found) < 2:
            tool, _ = self._tools.popitem()
            if not tool.call.is_ended:
                found.append(tool)
        self._tools |= dict.fromkeys(reversed(found))
        return found[0] if len(found) == 1 else None
