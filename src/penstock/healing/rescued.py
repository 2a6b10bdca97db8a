"""The dialects that are searched for calls in the text of a model with native calls."""

from __future__ import annotations

from penstock.dialects.rescue import LEAKS

RESCUED = (
    *LEAKS, "gigachat3", "granite_20b", "functools", "inkling",
    "gemma_tool_code", "md_json_fence", "bare_json", "llama3_json", "pythonic", "cline_xml",
)  # fmt: skip
"""Dialects without marks are last, so that marks count more."""
