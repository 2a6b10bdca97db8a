"""Compare the events of this tree with those of another commit, for a refactoring that must not change any.

`python -m tests.same_events REV` decodes every vector, text and recording with both versions, whole and in pieces, and
lists the inputs whose events differ. With `--ignore-wording` it leaves out our own sentences: the `note` of `Unknown`,
the `message` of `ToolCallInvalid` and `Error`, the `reason` of `Retry`. The inputs are those of this tree; only the
public API is used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

DUMP = """
import hashlib, json, sys, msgspec, penstock

def digest(parser, data):
    events = []
    try:
        for start, end in data:
            events += parser.feed(content[start:end])
        events += parser.close()
    except Exception as error:  # a bug in one version must not hide other differences
        return type(error).__name__, 0
    plain = msgspec.to_builtins(events)
    if "--ignore-wording" in sys.argv:
        for event in plain:
            event.pop("note", None)
            if event["type"] == "retry":
                event.pop("reason")
            if event["type"] in ("tool_call_invalid", "error"):
                event.pop("message", None)
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest(), len(events)

for line in open(sys.argv[1], encoding="utf-8"):
    item = json.loads(line)
    content = item["text"] if item["kind"] == "text" else bytes.fromhex(item["body"])
    for size in (len(content) or 1, 1, 7):
        if item["kind"] == "text":
            parser = penstock.TextParser(item["name"], item["tools"], *item["options"])
        else:
            parser = penstock.Decoder(item["name"], item["tools"])
        pieces = ((start, start + size) for start in range(0, len(content), size))
        print(item["id"], size if size < 8 else "whole", *digest(parser, pieces))
"""


def inputs() -> Iterator[dict[str, Any]]:
    """Every vector, text and recording, as one JSON object each."""
    from tests.support import vectors
    from tests.test_corpus import SPOKEN
    from tests.texts import shared_texts, text_vectors

    for vector in vectors():
        yield _stream(f"vector:{vector.wire}:{vector.name}", vector.wire, vector.tools, vector.body())
    for case in SPOKEN:
        yield _stream(f"recording:{case.meta['id']}", case.wire, case.tools(), case.body())
    for text in text_vectors():
        options = [text.splits_reasoning, text.starts_inside]
        yield _text(f"text:{text.dialect}:{text.name}", text.dialect, text.tools, text.input, options)
    for shared in shared_texts():
        options = ["expected_reasoning" in shared, bool(shared.get("starts_in_reasoning"))]
        yield _text(f"shared:{shared['id']}", shared["dialect"], shared.get("tools"), shared["text"], options)


def _stream(id: str, wire: str, tools: Any, body: bytes) -> dict[str, Any]:
    return {"id": id.replace(" ", "_"), "kind": "stream", "name": wire, "tools": tools, "body": body.hex()}


def _text(id: str, dialect: str, tools: Any, text: str, options: list[bool]) -> dict[str, Any]:
    name = id.replace(" ", "_")
    return {"id": name, "kind": "text", "name": dialect, "tools": tools, "text": text, "options": options}


def dump(source: Path, data: Path) -> list[str]:
    """One line for each input and each way to cut it: the digest and the number of its events."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run(
        [sys.executable, "-c", DUMP, str(data), *sys.argv[2:]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        sys.exit(f"decoding with {source} failed:\n{run.stderr}")
    return run.stdout.splitlines()


def main(revision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "inputs.jsonl"
        data.write_text("".join(json.dumps(item) + "\n" for item in inputs()), encoding="utf-8")
        other = Path(folder) / "other"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(other), revision], check=True)
        try:
            before, after = dump(other / "src", data), dump(ROOT / "src", data)
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    different = [new for old, new in zip(before, after, strict=True) if old != new]
    events = sum(int(line.split()[-1]) for line in after)
    sys.stdout.write("".join(f"differs: {line}\n" for line in different))
    sys.stdout.write(f"{len(after)} decodings, {events} events, {len(different)} differ from {revision}\n")
    sys.exit(bool(different))


if __name__ == "__main__":
    main(sys.argv[1])
