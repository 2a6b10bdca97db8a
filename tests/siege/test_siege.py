"""A few attacks on the servers, with a good client beside each: the short form of `make siege`.

Nothing here is measured in time: another process that takes the core makes only a client wait.
"""

from __future__ import annotations

import sys

import pytest

from tests.siege.__main__ import BUSY, run
from tests.siege.attacks import ATTACKS, SHORT, by_name

linux = pytest.mark.skipif(sys.platform != "linux", reason="the watch reads /proc, and attackers use 127.0.0.2")


def test_attacks_have_names() -> None:
    assert len(by_name()) == len(ATTACKS) >= 40
    assert set(SHORT) <= set(by_name())


@linux
@pytest.mark.parametrize("name", SHORT)
def test_a_good_client_is_answered_under_attack(name: str) -> None:
    assert run([name], 0.5, BUSY) == []
