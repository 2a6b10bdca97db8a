"""The report of healing for a response, by quirk."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from penstock.events import Fault, ToolCall, Unknown

REPEATED_ID, STOP_WITH_CALLS, NO_REASON, REASONING_MARKS, CALL_IN_TEXT, DATA_KEEP_ALIVE, CALL_IN_REASONING = (
    22,
    53,
    55,
    85,
    86,
    104,
    181,
)

ESTIMATED = "the usage is an estimate: the server sent none"
"""The note of a response whose token counts are not those of its server."""

RESCUED_HEADER = "x-penstock-rescued"
"""The header of a response with calls that were found in its text: their ids."""

IN_WORDS = {
    1: "calls without an index",
    3: "several calls with the same index",
    13: "the id of a call in every chunk",
    14: "the name of a call in every chunk",
    15: "the name of a call in pieces",
    16: "the name of a call after its first arguments",
    19: "calls without an id",
    20: "ids that are numbers",
    22: "ids of earlier calls of the conversation",
    26: "calls that are an object instead of a list",
    31: "control tokens in the name of a call",
    35: "arguments that are an object instead of text",
    36: "the arguments of a call twice",
    37: "pieces that repeat all arguments so far",
    41: "raw control characters in arguments",
    43: "arguments as a JSON string that contains the object",
    44: "text after the arguments",
    46: "arguments that are not JSON",
    52: "function_call instead of tool_calls",
    53: "calls, but a finish reason that is not the one for calls",
    55: "calls, but no finish reason",
    85: "reasoning between marks in the text",
    86: "a call in the text",
    104: "a keep-alive that was sent as data",
    171: "a comma before a closing bracket in arguments",
    172: "arguments in a code fence",
    173: "arguments in the notation of Python",
    174: "the name of a call as templates write it",
    180: "an empty object before the arguments",
    181: "a call at the end of the reasoning, and nothing after it",
    182: "arguments inside another object",
}
"""What a server sent, by the number of the quirk."""

IN_TEXT: dict[Fault, str] = {
    "quoted": "it repeats a message or a tool result (see the switch `quoted`)",
    "cut": "the response ended in it",
    "ambiguous": "its end tags are also in the text after it",
    "malformed": "its arguments are not JSON",
}
"""Why a call in the text stays text."""


class Healed(Struct, frozen=True):
    """A healed quirk: its number in docs/quirks.md, its description, and how often it occurred."""

    quirk: int
    what: str
    count: int


class RescuedCall(Struct, frozen=True):
    """A call that was found in the text of a response, with the id that the client gets."""

    id: str
    name: str


class HealingReport:
    """Counts healed quirks of one response, and notes what was passed on unchanged."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.notes: list[str] = []
        self.rescued: list[RescuedCall] = []
        self._kept = 0  # rescued calls of complete responses

    def begin(self) -> None:
        """Begin with a response: what was rescued of one that was withdrawn does not count."""
        del self.rescued[self._kept :]

    def keep(self) -> None:
        """Keep what was rescued so far: the next response continues the one that has ended."""
        self._kept = len(self.rescued)

    def rescue(self, call: ToolCall) -> None:
        """Note a call that was found in the text."""
        if len(self.rescued) < MAX_RESCUED:
            self.rescued.append(RescuedCall(call.id, call.name))

    def add(self, quirk: int, count: int = 1) -> None:
        """Count a healed quirk."""
        self._counts[quirk] += count

    def note(self, text: str) -> None:
        """Add a note about something left unchanged; duplicates are ignored."""
        if len(self.notes) < MAX_NOTES and text not in self.notes:
            self.notes.append(text)

    def note_text(self, name: str, fault: Fault | None) -> None:
        """Note a call in the text that stays text: it has a fault, or its tool is not declared."""
        why = "no such tool is declared" if fault is None else IN_TEXT.get(fault, fault)
        self.note(f"the call of {_shown(name)} stays text: {why}")

    def note_unsettled(self, name: str, why: str) -> None:
        """Note a call without marks in the text that stays text."""
        self.note(f"the call of {_shown(name)} stays text: {why}")

    def note_limited(self, name: str) -> None:
        """Note a call in the text that stays text, because its tool may have side effects."""
        self.note(
            f"the call of {_shown(name)} stays text: only read-only tools are rescued (see the switch `read_only`)"
        )

    def note_unwanted(self, name: str, _fault: Fault | None) -> None:
        """Note a call in the text that stays text, because `rescue` is off."""
        self.note(f"the call of {_shown(name)} stays text: the switch `rescue` is off")

    def note_forbidden(self, name: str, _fault: Fault | None) -> None:
        """Note a call in the text that stays text, because the client has forbidden calls."""
        self.note(f"the call of {_shown(name)} stays text: the request allows no calls")

    def note_reasoning(self, name: str) -> None:
        """Note a call in reasoning, which does not run."""
        self.note(f"the call of {_shown(name)} stays reasoning: the model wrote nothing after it")

    def note_call(self, name: str, fault: Fault) -> None:
        """Note a native call that is damaged and was not repaired."""
        self.note(f"the call of {_shown(name)} was {'cut' if fault == 'cut' else f'passed on as it came ({fault})'}")

    def note_undeclared(self, name: str) -> None:
        """Note a native call of a tool that is not declared."""
        self.note(f"the call of {_shown(name)} was passed on: no such tool is declared")

    def note_unknown(self, event: Unknown) -> None:
        """Note a part of the response that is not passed on, because the client's protocol has no form for it."""
        names = [_shown(str(name)) for name in event.raw] if isinstance(event.raw, dict) else []
        listed = f" ({', '.join(names[:MAX_FIELDS])})" if names else ""
        self.note(f"left out of the response: {event.note or 'something unknown'}{listed}")

    def build(self) -> list[Healed]:
        """The healed quirks so far, by number."""
        return [Healed(quirk, IN_WORDS.get(quirk, ""), count) for quirk, count in sorted(self._counts.items())]


MAX_RESCUED = 64
"""How many rescued calls a report names."""
MAX_NOTES = 32
"""How many notes a report has."""
MAX_FIELDS = 3
"""How many fields of something unknown are named in a note."""
MAX_NAME = 64
"""How many characters of the name of a tool are noted."""


def rescued_ids(report: HealingReport) -> str:
    """The ids of the rescued calls, for a header. They are generated, so that a header can have them."""
    return ",".join(call.id for call in report.rescued)


def _shown(name: str) -> str:
    """The name of a tool as a model wrote it, for a note."""
    return repr(name[:MAX_NAME]) if name else "a tool without a name"
