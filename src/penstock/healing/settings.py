"""`Healing`: what is healed in the responses of a model server."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Repair = Literal["off", "safe", "guess"]


class Healing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is healed in the responses of a model server. Each part can be switched off.

    | switch | what it does |
    |---|---|
    | `rescue` | calls of declared tools in the text become calls; a list names the dialects |
    | `quoted` | also calls that repeat a user message or a tool result: they may be injected |
    | `reasoning` | `<think>` marks in the text become reasoning |
    | `inside_reasoning` | the text begins inside of reasoning, as the prompt has the opening mark |
    | `reasoning_calls` | a call that ends the reasoning of a response without text and calls becomes a call |
    | `repair` | damaged arguments: `safe` if there is only one repair and it changes no value, `guess` also others |
    | `finish_reasons` | a response with calls ends with the reason for calls, whatever reason the server sent |
    | `usage` | token counts are estimated where the server sends none |

    Ids, indexes, names in pieces, arguments that are objects, missing finish reasons and the fields of reasoning are
    always healed: a response is decoded, and encoded again.
    """

    rescue: bool | tuple[str, ...] = True
    quoted: bool = False
    reasoning: bool = True
    inside_reasoning: bool = False
    reasoning_calls: bool = False
    repair: Repair = "safe"
    finish_reasons: bool = True
    usage: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.rescue, tuple):
            from penstock.dialects.registry import find_dialect  # most programs heal nothing, and need no dialect

            for name in self.rescue:
                find_dialect(name)  # raises if there is none

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects to search for calls."""
        if isinstance(self.rescue, tuple):
            return self.rescue
        if not self.rescue:
            return ()
        from penstock.healing.rescued import RESCUED

        return RESCUED
