"""The open parts of a response: starts and ends of texts, reasoning, calls and steps."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.serve.ag_ui.messages import AGUIEvent


class OpenParts:
    """The parts that have begun but not ended for a client. Message ids are made from the run and the step."""

    def __init__(self, run_id: str) -> None:
        self.step = 0
        self._run_id = run_id
        self._is_in_step = False
        self._text: str | None = None
        self._reasoning: tuple[int, str] | None = None  # the block, and the id of its message
        self._calls: dict[int, str] = {}  # by block

    @property
    def message_id(self) -> str:
        """The id of the assistant's message of this step."""
        return f"{self.prefix}answer"

    @property
    def prefix(self) -> str:
        """The prefix of all message ids of this step, except results."""
        return f"{self._run_id}.{self.step}."

    def begin_step(self, step: int) -> Iterator[AGUIEvent]:
        yield from self.end_step()
        self.step, self._is_in_step = step, True
        yield {"type": "STEP_STARTED", "stepName": f"step {step}"}

    def end_step(self) -> Iterator[AGUIEvent]:
        yield from self.close()
        if self._is_in_step:
            self._is_in_step = False
            yield {"type": "STEP_FINISHED", "stepName": f"step {self.step}"}

    def close(self) -> Iterator[AGUIEvent]:
        """End all open parts of this step."""
        yield from self.close_texts()
        for block in [*self._calls]:
            yield from self.end_call(block)

    def close_texts(self) -> Iterator[AGUIEvent]:
        if self._text is not None:
            id, self._text = self._text, None
            yield {"type": "TEXT_MESSAGE_END", "messageId": id}
        if self._reasoning is not None:
            (_, id), self._reasoning = self._reasoning, None
            yield {"type": "REASONING_MESSAGE_END", "messageId": id}
            yield {"type": "REASONING_END", "messageId": id}

    def say(self, text: str) -> Iterator[AGUIEvent]:
        if self._text is None:
            yield from self.close_texts()
            self._text = self.message_id
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._text, "role": "assistant"}
        if text:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._text, "delta": text}

    def think(self, block: int, text: str) -> Iterator[AGUIEvent]:
        if self._reasoning is None or self._reasoning[0] != block:
            yield from self.close_texts()
            self._reasoning = block, f"{self.prefix}reasoning.{block}"
            yield {"type": "REASONING_START", "messageId": self._reasoning[1]}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._reasoning[1], "role": "reasoning"}
        if text:
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._reasoning[1], "delta": text}

    def start_call(self, block: int, id: str, name: str) -> Iterator[AGUIEvent]:
        yield from self.close_texts()
        self._calls[block] = id
        names = {"toolCallId": id, "toolCallName": name or "unknown"}
        yield {"type": "TOOL_CALL_START", **names, "parentMessageId": self.message_id}

    def is_open(self, block: int) -> bool:
        """Whether this block is an open call."""
        return block in self._calls

    def grow_call(self, block: int, piece: str) -> Iterator[AGUIEvent]:
        if block in self._calls and piece:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": self._calls[block], "delta": piece}

    def end_call(self, block: int) -> Iterator[AGUIEvent]:
        if (id := self._calls.pop(block, None)) is not None:
            yield {"type": "TOOL_CALL_END", "toolCallId": id}
