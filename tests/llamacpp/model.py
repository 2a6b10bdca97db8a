"""A handwritten language model of four megabytes: the next token depends only on the last one.

It is a legal llama model of one layer that adds nothing. A token's embedding is a vector with a single one in it, so
the output matrix is a table of the scores of each token after each other. Left to itself the model says `SENTENCE`;
where a grammar leaves it no such choice, as in a tool call, it babbles, and likes to come to an end. A script is
another text that it says, in pieces that differ.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

SENTENCE = "The gate is open – water, 水, eau, 🌊 runs down to its turbine."
WIDTH = 384
HIDDEN = 32
CONTEXT = 4096
CALL, CALL_END = "<tool_call>", "</tool_call>"
LAST = "<|im_end|>"
LINE_END = "<0x0A>"

WORDS = re.findall(r" ?[^ .]+", SENTENCE)
TEMPLATE = Path(__file__).with_name("template.jinja")


class Text:
    """What a model says, and its vocabulary: characters, bytes for other characters, special tokens, and its words."""

    def __init__(self, script: Sequence[str] = ()) -> None:
        words = [piece for piece in script if piece not in (CALL, CALL_END)] if script else WORDS
        kinds = {
            gguf.TokenType.UNKNOWN: ["<unk>"],
            gguf.TokenType.CONTROL: ["<s>", "<|im_start|>", LAST],
            gguf.TokenType.USER_DEFINED: [CALL, CALL_END],
            gguf.TokenType.BYTE: [f"<0x{byte:02X}>" for byte in range(256)],
            gguf.TokenType.NORMAL: [*map(chr, range(32, 127)), *words],
        }
        self.tokens = {token: kind for kind, tokens in kinds.items() for token in tokens}
        self.places = {token: place for place, token in enumerate(self.tokens)}
        self.sequences = dict.fromkeys(itertools.pairwise([LINE_END, *script, LAST]), 40.0) if script else _sequences()


def write_model(path: Path, script: Sequence[str] = (), template: Path = TEMPLATE) -> None:
    """Writes the model, with its chat template, as a GGUF file."""
    text = Text(script)
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, text, template)
    for name, values in _tensors(text).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, text: Text, template: Path) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // 4)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.replace(" ", "▁") for token in text.tokens])
    writer.add_token_scores([0.0] * len(text.tokens))
    writer.add_token_types(list(text.tokens.values()))
    writer.add_unk_token_id(text.places["<unk>"])
    writer.add_bos_token_id(text.places["<s>"])
    writer.add_eos_token_id(text.places[LAST])
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(template.read_text(encoding="utf-8"))


def _tensors(text: Text) -> dict[str, Any]:
    square, up, down = (WIDTH, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN)
    idle = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
    idle |= {"ffn_gate": up, "ffn_up": up, "ffn_down": down}
    ones = np.ones(WIDTH, np.float32)
    return {
        "token_embd.weight": np.eye(len(text.tokens), WIDTH, dtype=np.float32),
        **{f"blk.0.{name}.weight": np.zeros(shape, np.float32) for name, shape in idle.items()},
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        "output_norm.weight": ones * WIDTH**-0.5,  # the norm of a single one is the root of the width
        "output.weight": np.pad(_scores(text), [(0, 0), (0, WIDTH - len(text.tokens))]),
    }


def _scores(text: Text) -> Any:
    """The score of each token (row) after each other token (column)."""
    scores = np.random.default_rng(0).normal(0, 0.5, (len(text.tokens),) * 2).astype(np.float32)
    for liked, tokens in {2: string.ascii_lowercase, 4: '"]'}.items():
        scores[[text.places[token] for token in tokens]] += liked
    scores[[text.places[token] for token, kind in text.tokens.items() if kind is not gguf.TokenType.NORMAL]] -= 20
    for (token, following), score in text.sequences.items():
        scores[text.places[following], text.places[token]] = score
    return scores


def _sequences() -> dict[tuple[str, str], float]:
    """The scores of the likely next tokens; a lower score is used where a grammar forbids the higher one."""
    return {
        **dict.fromkeys(itertools.pairwise([LINE_END, *WORDS, ".", LAST]), 40),
        (".", CALL): 30,
        (CALL, LINE_END): 40,
        ("}", CALL_END): 30,
        (" ", CALL_END): 30,
        (LINE_END, CALL_END): 30,
        (CALL_END, LAST): 40,
        (CALL_END, CALL): 39.5,  # now and then another call
    }
