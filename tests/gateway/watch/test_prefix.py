"""Each request upstream begins with the one before it; `python -m tests.gateway.prefix` plays longer sessions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway import prefix
from tests.gateway import test_gateway_pairs as pairs


@pytest.mark.parametrize("server", prefix.SERVERS)
@pytest.mark.parametrize("client", pairs.CLIENTS, ids=lambda client: client.__name__)
def test_the_history_upstream_is_never_changed(client: Any, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "run_command", prefix.run_command)
    session = prefix.play(client, server, 8, is_streamed=True)
    assert (session.pairs, session.changed) == (8, [])


def test_a_changed_message_is_found() -> None:
    earlier, later = ({"messages": [{"role": "user", "content": text}]} for text in ("a", "b"))
    assert [*prefix._changes([earlier, earlier])] == []
    assert len([*prefix._changes([earlier, later])]) == 1
    assert len([*prefix._changes([earlier, {**earlier, "tools": [1]}])]) == 1
    assert len([*prefix._changes([earlier, {"messages": []}])]) == 1
