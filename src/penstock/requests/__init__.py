"""Requests: what is asked of a model, written the way each wire wants it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from penstock.requests.request import Request, Sent

Encode = Callable[[Request, frozenset[str]], Sent]
"""Writes a request; the quirks are those of the provider it goes to."""


def find_encoder(wire: str) -> Encode:
    """The function that writes requests for a wire."""
    encode: Encode = import_module(f"penstock.requests.{wire.replace('-', '_')}").encode
    return encode


__all__ = ["Encode", "Request", "Sent", "find_encoder"]
