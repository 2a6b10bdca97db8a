"""Habits of servers: what their frames show that decoding heals, by the numbers of the quirks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

FindHabits = Callable[[Iterable[Any]], Counter[int]]
"""Finds habits in the frames of a response, which are any JSON; returns how often each quirk was seen."""
