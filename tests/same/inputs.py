"""The inputs of a comparison: every vector, text and recording of this tree, one JSON object per line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import vectors
from tests.texts import shared_texts, text_vectors
from tests.wires.test_corpus import ALL, NOT_SPOKEN, SPOKEN


def write_inputs(path: Path) -> None:
    """Write the inputs, each with an id of its own."""
    counts = Counter[str]()
    with path.open("w", encoding="utf-8") as out:
        for item in inputs():
            counts[item["id"]] += 1
            if (count := counts[item["id"]]) > 1:
                item["id"] += f" #{count}"
            out.write(json.dumps(item) + "\n")


def inputs() -> Iterator[dict[str, Any]]:
    for vector in vectors():
        yield _stream(f"vector {vector.wire} {vector.name}", vector.wire, vector.tools, vector.body())
    for case in SPOKEN:
        yield _stream(f"recording {case.meta['id']}", case.wire, case.tools(), case.body())
    for text in text_vectors():
        options = [text.splits_reasoning, text.starts_inside]
        yield _text(f"text {text.dialect} {text.name}", text.dialect, text.tools, text.input, options)
    for shared in shared_texts():
        options = ["expected_reasoning" in shared, bool(shared.get("starts_in_reasoning"))]
        yield _text(f"text {shared['id']}", shared["dialect"], shared.get("tools"), shared["text"], options)
    for case in ALL:
        body = case.meta.get("request")
        if isinstance(body, dict) and case.meta["wire"] not in NOT_SPOKEN:
            yield {"kind": "history", "id": f"history {case.meta['id']}", "body": body}


def _stream(id: str, wire: str, tools: Any, body: bytes) -> dict[str, Any]:
    return {"kind": "stream", "id": id, "name": wire, "tools": tools, "body": body.hex()}


def _text(id: str, dialect: str, tools: Any, text: str, options: list[bool]) -> dict[str, Any]:
    return {"kind": "text", "id": id, "name": dialect, "tools": tools, "text": text, "options": options}
