"""`Dialect`: the marks of a dialect, and the grammar that reads what follows an opening mark."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from penstock.dialects.reading.cursor import Reading
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.source import Source

Block = Callable[[Source, str], Reading[None]]
"""Reads what follows an opening mark, up to the closing mark. Raises `Mismatch` where that is not a call."""

THINK = (("<think>", "</think>"),)
LLAMA_ENDS = ("<|eom_id|>", "<|eot_id|>")
"""The control tokens that end a message in the chat template of Llama 3."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One way of writing calls into text.

    - `block` reads what follows an opening mark.
    - `opens` are the opening marks, or a function that returns them for the declared tools.
    - `closes` are the closing marks. After the first call they are removed from the text, wherever they are.
    - `tokens` are control tokens, which are always removed from the text.
    - `think` are the pairs of marks around reasoning, the most frequent first.
    - `begins_inside`: the text may start inside a block, because the prompt ended with the opening mark. At the start,
      `block` is tried with an empty mark.
    """

    block: Block
    opens: tuple[str, ...] | Callable[[Tools], tuple[str, ...]] = ()
    closes: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    think: tuple[tuple[str, str], ...] = THINK
    begins_inside: bool = False

    def opening_marks(self, tools: Tools) -> tuple[str, ...]:
        return self.opens(tools) if callable(self.opens) else self.opens


def no_calls(source: Source, mark: str) -> Reading[None]:
    """Reads nothing: there are no calls."""
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
"""The dialect `plain`: all kinds of reasoning marks, and no calls."""
