"""What Claude models reject, on every wire."""

from __future__ import annotations

import re

from penstock.testing.wires.rejection import version_of

PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_NEWEST = (99, 0)
_WITH_FORMATS, _WITHOUT_PREFILL, _WITH_SYSTEM = (4, 5), (4, 6), (4, 8)


def takes_prefill(model: str) -> bool:
    """Whether a history may end with an assistant message: up to Claude 4.5, and with models of other vendors."""
    return "claude" not in model or version_of(model, _VERSION, _NEWEST) < _WITHOUT_PREFILL


def takes_format(model: str) -> bool:
    """Whether the model has response formats: from Claude 4.5 on."""
    return "claude" in model and version_of(model, _VERSION, _NEWEST) >= _WITH_FORMATS


def takes_system(model: str) -> bool:
    """Whether system messages may stand among the others: from Claude 4.8 on."""
    return version_of(model, _VERSION, _NEWEST) >= _WITH_SYSTEM
