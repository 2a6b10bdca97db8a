"""Repeated calls: an agent that makes the same calls with the same results again and again is reminded, then ended.

A step is a message with calls, and their results. It brings nothing new if each of its calls, with equal arguments and
an equal result, was made since the user's last message. A call is repeated as often as it was made in a row of steps
that bring nothing new, and once before.

| repeated | then |
|---|---|
| fewer than n times | nothing |
| n times or more | a reminder stands after the results |
| 2 n times | the response is a text with the reason, and no request is sent |

Reminders depend only on the messages before them, so that each later request has them at the same places, and the
prompt cache of the server stays valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import msgspec

from penstock.events import ToolCall
from penstock.gateway.watch.reminders import is_reminder, reminder
from penstock.messages import Message, ToolResult

END = 2
"""How many times the number of a reminder ends the conversation."""
SHOWN_NAME = 64
"""How many characters of the name of a tool are shown."""

_encode = msgspec.json.Encoder(enc_hook=str, order="deterministic").encode


class RepeatedCalls:
    """The messages of a request with reminders of repeated calls; `limit` is how often a call may be made, 0: any."""

    def __init__(self, messages: Sequence[Message], limit: int) -> None:
        self.messages = tuple(messages)
        self.times = 0  # how often the calls of the last step are repeated
        self.name = ""  # a tool that they call
        self._limit = limit
        if limit and any(message.tool_calls for message in messages):
            self.messages = tuple(self._with_reminders(messages))

    @property
    def note(self) -> str:
        """What is noted of the request; empty if its last step is not repeated too often."""
        if not self._limit or self.times < self._limit:
            return ""
        return f"the call of {self.name!r} had the same result {self.times} times: the model was reminded"

    @property
    def end(self) -> str:
        """The reason to end the conversation; empty if it may go on."""
        if not self._limit or self.times < END * self._limit:
            return ""
        return (
            f"Stopped by the gateway: the tool {self.name!r} was called {self.times} times with the same arguments, "
            "and the result was the same each time. Say how to go on."
        )

    def _with_reminders(self, messages: Sequence[Message]) -> Iterator[Message]:
        seen, row = set[int](), Counter[int]()  # calls since the user's last message, and since something new
        calls: dict[str, ToolCall] = {}
        step: dict[int, str] = {}  # the calls whose results have come, with their names
        for message, following in zip_longest(messages, messages[1:]):
            yield message
            if message.role == "assistant":
                calls, step, self.times = {call.id: call for call in message.tool_calls}, {}, 0
            elif message.results:
                known = [result for result in message.results if result.call_id in calls]
                step |= {_digest(calls[one.call_id], one): calls[one.call_id].name for one in known}
                if step and (following is None or not following.results):
                    self._end_step(step, seen, row)
                    if self.times >= self._limit:
                        yield reminder(_text(self.name, self.times))
            elif not is_reminder(message):
                seen.clear()
                row.clear()
                self.times = 0

    def _end_step(self, step: dict[int, str], seen: set[int], row: Counter[int]) -> None:
        """Count the calls of a step."""
        if seen.issuperset(step):
            row.update(step.keys())
        else:
            row.clear()
            seen.update(step)
        most = max(step, key=row.__getitem__)
        self.name, self.times = step[most][:SHOWN_NAME], 1 + row[most]


def _digest(call: ToolCall, result: ToolResult) -> int:
    return hash(_encode((call.name, call.arguments, result.content, result.is_error)))


def _text(name: str, times: int) -> str:
    return (
        f"You have called {name} {times} times with the same arguments, and the result was the same each time. It will "
        "not change. Do something else: use another tool or other arguments, answer with what you know, or say what is "
        "missing."
    )
