"""`sim:` models: a model that needs neither key nor network, and answers with whatever tools it is given."""

from __future__ import annotations

from penstock.errors import UsageError
from penstock.providers import Provider
from penstock.testing.demo import demo
from penstock.testing.in_process import Scripted

PACES = {"demo": 0.02, "fast": 0.0}
"""The names of the models, and how long each waits between two pieces."""


def line(name: str, wire: str | None) -> tuple[str, Provider, Scripted]:
    """The model of this name, the provider that it stands for, and the way to it."""
    if name not in PACES:
        raise UsageError(f"there is no sim:{name}; there are: {', '.join(f'sim:{known}' for known in PACES)}")
    return name, Provider(wire=wire or "openai-chat"), Scripted(demo, pace=PACES[name])
