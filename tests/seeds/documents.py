"""The five documents, if they are available, and the rows of what they claim.

The documents are not part of the repository. Their code samples are read in place, and run with only their import lines
changed.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.support import SHARED

F = TypeVar("F", bound=Callable[..., Any])
FOLDER = SHARED / "seeds"
NO_DOCUMENTS = "the five documents are not available: they are not part of the repository"
needs_documents = pytest.mark.skipif(not FOLDER.is_dir(), reason=NO_DOCUMENTS)
IMPORT = re.compile(r"^(?:from [\w.]+ import .*|import [\w., ]+)$", re.MULTILINE)


def row(number: int, decision: str = "") -> Callable[[F], F]:
    """Marks the test of a row; `decision` names the page that says why the row is not as the document has it."""

    def mark(test: F) -> F:
        test.row, test.decision = number, decision  # type: ignore[attr-defined]
        return test

    return mark


def document(number: int) -> str:
    """The text of a document."""
    [path] = FOLDER.glob(f"{number:03}_*.txt")
    return path.read_text(encoding="utf-8")


def fenced(number: int, language: str) -> list[str]:
    """The code blocks of a document in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document(number), re.DOTALL | re.MULTILINE)


def indented(number: int) -> list[str]:
    """The indented code blocks of a document."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", document(number), re.MULTILINE)
    return [textwrap.dedent(block).strip("\n") + "\n" for block in blocks if block.strip()]


def block_with(blocks: list[str], words: str) -> str:
    """The only block that contains these words."""
    [block] = [block for block in blocks if words in block]
    return block


async def run_sample(code: str, names: dict[str, Any], imports: str = "") -> dict[str, Any]:
    """Runs a sample with other import lines; it may use `await` and `async for`. Returns its names."""
    changed = IMPORT.sub("", code)
    program = compile(f"{imports}\n{changed}", "<sample>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(program, names)
    if inspect.isawaitable(result):
        await result
    return names
