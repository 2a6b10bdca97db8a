"""One start, one run: SDKs in Node that time out and retry, and pages that send a message again after a cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import run_node
from tests.one_start import desk


@pytest.mark.parametrize("client", ["chat", "responses", "messages", "useChat", "agUI"])
def test_a_client_that_sends_its_start_again_has_one_effect_and_the_whole_answer(
    clients: Path, tmp_path: Path, client: str
) -> None:
    with desk(tmp_path, slow=2.5) as server:
        text = run_node("one_start.mjs", server.url, client)
        server.until_idle()
        assert text.replace("\n", "") == "I pay.Paid. Done."
        assert server.effects == 1
        assert len(server.get("/runs")["runs"]) == 1
