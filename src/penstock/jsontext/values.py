"""What is done to JSON values: they are copied, compared and written for people to read."""

from __future__ import annotations

import json
from typing import Any

from penstock.jsontext.surrogates import heal

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def copied(value: Any) -> Any:
    """A copy, however deep the value is nested; what is neither a dict nor a list is taken as it is."""
    whole: list[Any] = [value]
    due: list[Any] = [whole]
    while due:
        box = due.pop()
        for key, item in box.items() if isinstance(box, dict) else enumerate(box):
            if isinstance(item, dict | list):
                box[key] = item.copy()
                due.append(box[key])
    return whole[0]


def canonical(value: Any) -> str:
    """JSON as a text that is the same for the same value, however it was written; 1, 1.0 and true differ."""
    return _encoder.encode(value)


def written(arguments: dict[str, Any]) -> str:
    """Arguments as JSON, for people and models to read."""
    return heal(json.dumps(arguments, ensure_ascii=False))
