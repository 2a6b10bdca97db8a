"""Checks a history before it is sent: finds the problems for which a provider would reject it."""

from __future__ import annotations

from typing import Any

from penstock.history.problem import Problem
from penstock.history.provider_rules import find_problems
from penstock.history.repair import read_again
from penstock.history.rules import CheckedHistory
from penstock.providers import ProviderName


def check(messages: Any, provider: ProviderName | None = None) -> list[Problem]:
    """Every problem of a history, in its order. If there is none, every provider accepts it.

    With a `provider`, only what that provider refuses, including what it alone refuses: kinds of media, and, in a
    history that is not a list of `Message`s and may be sent as it stands, ids, names, missing signatures and its own
    rules of order. (`Message`s are encoded for each provider.)
    """
    return find_problems(CheckedHistory(read_again(messages)), provider)
