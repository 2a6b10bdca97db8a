"""`Dialect`: the marks of a dialect, and the grammar that reads what follows an opening mark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from penstock.dialects.reading.marks import NO_TAGS, CallTags
from penstock.dialects.reading.source import Reading, Source

Block = Callable[[Source, str], Reading[None]]
"""Reads what follows an opening mark, up to the closing mark. Raises `Mismatch` where that is not a call."""

THINK = (("<think>", "</think>"),)
LLAMA_ENDS = ("<|eom_id|>", "<|eot_id|>")
"""The control tokens that end a message in the chat template of Llama 3."""
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", *LLAMA_ENDS, "<|end|>", "<|return|>", "<|end_of_turn|>",
    "<|end_of_msg|>", "<|END_OF_TURN_TOKEN|>", "<|assistant_end|>", "<end_of_turn>", "<turn|>", "<end_code>", "<eos>",
    "</s>", "<SPECIAL_12>", "[e~[", "<｜end▁of▁sentence｜>", "<｜end_of_sentence｜>", "<|end▁of▁sentence|>",
    "<|end_of_sentence|>",
)  # fmt: skip
"""The tokens with which models end their turn. At the end of a text they are removed in every dialect."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One way of writing calls into text.

    - `block` reads what follows an opening mark.
    - `opens` are the opening marks, or a function that returns them for the names of the declared tools.
    - `closes` are the closing marks. They are removed after a call; without a call, both marks stay text.
    - `tags` are the tags around calls, in pairs. A malformed call owns the text up to its end tag, or if there is none
      the rest of the text.
    - `tokens` are the control tokens around its messages, which are always removed from the text: with an opening token
      also the closing one. END_TOKENS are removed at the end of a text, in every dialect.
    - `think` are the pairs of marks around reasoning, the most frequent first.
    - `is_marked` is False if prose and code also have its opening marks.
    - `begins_inside`: the text may start inside a block, because the prompt ended with the opening mark. At the start,
      `block` is tried with an empty mark.
    """

    block: Block
    opens: tuple[str, ...] | Callable[[Sequence[str]], tuple[str, ...]] = ()
    closes: tuple[str, ...] = ()
    tags: CallTags = NO_TAGS
    tokens: tuple[str, ...] = ()
    think: tuple[tuple[str, str], ...] = THINK
    begins_inside: bool = False
    is_marked: bool = True

    def opening_marks(self, tool_names: Sequence[str]) -> tuple[str, ...]:
        return self.opens(tool_names) if callable(self.opens) else self.opens


class Dialects(Struct, frozen=True, eq=False):
    """The dialects that a text is read in, by name. They are compared by identity, so that their marks can be kept."""

    rows: Mapping[str, Dialect]


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
