"""The page in the box when the log loses events that it shows: it forgets them, and shows those that the log has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.clients.conftest import ROOT, run_node


def texts(word: str) -> str:
    return " ".join(f"{word} {number}." for number in range(6))


def test_the_page_shows_what_the_log_has_and_says_so(chromium: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.clients.lossy_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/"
            seen = run_node("reset_page.mjs", url, str(chromium), str(tmp_path / "page.png"))
        finally:
            process.terminate()
            process.wait(20)
    assert seen["problems"] == []
    assert seen["before"] == texts("first")
    assert seen["during"]["text"] == texts("second"), "a reader that stayed connected"
    assert len(seen["during"]["notes"]) == 1
    assert "lost" in seen["during"]["notes"][0]
    assert "lost" in seen["during"]["announced"]
    assert seen["after"] == {"text": texts("third"), "prompts": ["Tell me a story."]}, "a reader that reconnected"
    assert seen["end"] == {"text": f"{texts('third')} The end.", "summaries": 1, "rows": 1}
