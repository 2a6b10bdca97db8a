"""Functions on JSON values: copy, comparison, canonical form, readable form."""

from __future__ import annotations

import json
from typing import Any

from penstock.jsontext.surrogates import join_surrogates

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def deep_copy(value: Any) -> Any:
    """Copies dicts and lists at any depth, without recursion; other values are shared."""
    root: list[Any] = [value]
    pending: list[Any] = [root]
    while pending:
        container = pending.pop()
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(item, dict | list):
                container[key] = item.copy()
                pending.append(container[key])
    return root[0]


def canonical_json(value: Any) -> str:
    """JSON text that is equal for equal values, whatever the order of their keys; 1, 1.0 and true differ."""
    return _encoder.encode(value)


def equal_values(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal, without recursion; in Python 1 and true are equal, here they are not."""
    if left != right:
        return False
    pending = [(left, right)]
    while pending:
        first, second = pending.pop()
        if isinstance(first, dict):
            pending.extend((value, second[key]) for key, value in first.items())
        elif isinstance(first, list):
            pending.extend(zip(first, second, strict=True))
        elif isinstance(first, bool) != isinstance(second, bool):
            return False
    return True


def readable_json(arguments: dict[str, Any]) -> str:
    """Arguments as JSON text for people and models to read, with characters unescaped."""
    return join_surrogates(json.dumps(arguments, ensure_ascii=False))
