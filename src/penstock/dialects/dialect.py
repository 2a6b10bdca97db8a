"""What there is to know about a dialect: a row of facts, and one function that reads what follows its opening mark."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from penstock.dialects.reading.cursor import Reading
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.source import Source

Block = Callable[[Source, str], Reading[None]]
"""Reads what follows an opening mark, up to the mark that closes it. It raises `Mismatch` where that is no call."""

THINK = (("<think>", "</think>"),)
LLAMA_ENDS = ("<|eom_id|>", "<|eot_id|>")
"""The control tokens that end a message of Llama 3, and of the models that use its template."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One way of writing calls into text.

    `opens` are the marks at which the block is read; a function if they depend on the declared tools. `closes` are
    closing marks, which are markup also where they stand alone, once the dialect has made a call; `tokens` are control
    tokens, which are markup wherever they stand. `begins_inside` says that the text starts within a block, the opening
    mark of which was in the prompt: the block is tried there with the empty mark. `think` lists the marks around
    reasoning, the usual ones first; where `call_ends_reasoning`, a call within it is a call and ends it.
    """

    block: Block
    opens: tuple[str, ...] | Callable[[Tools], tuple[str, ...]] = ()
    closes: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    think: tuple[tuple[str, str], ...] = THINK
    begins_inside: bool = False
    call_ends_reasoning: bool = False

    def opening_marks(self, tools: Tools) -> tuple[str, ...]:
        return self.opens(tools) if callable(self.opens) else self.opens


def no_calls(source: Source, mark: str) -> Reading[None]:
    """Text without calls."""
    yield from ()


PLAIN = Dialect(
    block=no_calls,
    think=(
        *THINK,
        ("<thinking>", "</thinking>"),
        ("<seed:think>", "</seed:think>"),
        ("<mm:think>", "</mm:think>"),
        ("[THINK]", "[/THINK]"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel|>analysis<|message|>", "<|end|>"),
    ),
)
"""No dialect: reasoning marks of all kinds, and no calls."""
