"""Token counts in one meaning: `input_tokens` is all input, `output_tokens` all output, the others are parts of these.

Providers count differently. Some leave the cache out of the input or the reasoning out of the output, and one wire can
have both kinds behind it. A wire's `UsageTable` names its fields and what they leave out. Where servers of one wire
differ, the counts themselves tell: a part cannot be larger than the whole, and the total adds up in one way only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from penstock.events import USAGE_COUNTS, USAGE_PARTS, StreamChunk, Usage
from penstock.jsontext.portable import as_json_value

Extent = Literal["included", "left_out"]
"""Whether a part is included in the count of the whole."""
_DIGITS = re.compile("[0-9]{1,18}")


class WrittenCount(Struct, frozen=True):
    """A field of the usage that a server writes.

    `path` is its place, such as `prompt_tokens_details.cached_tokens`. `count` is what it says: a field of `Usage`,
    `total` (input and output), `plain_input` (without the cache) or `plain_output` (without the reasoning). It is left
    out if all counts of `unless_zero` are 0.
    """

    path: str
    count: str
    unless_zero: tuple[str, ...] = ()


class UsageTable(Struct, frozen=True, kw_only=True):
    """The fields of a wire's usage, as paths such as `prompt_tokens_details.cached_tokens`; the first that has a count.

    `parts` has the paths of the parts, by the field of `Usage`. `more_input` is input that is never part of `input`.
    `cache_extent` and `reasoning_extent` are what the protocol says; with a `total`, a server that counts in the other
    way is recognised. `written` is the usage that a server of the wire writes, in order.
    """

    input: tuple[str, ...]
    output: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]] = {}
    more_input: tuple[str, ...] = ()
    total: tuple[str, ...] = ()
    cache_extent: Extent = "included"
    reasoning_extent: Extent = "included"
    written: tuple[WrittenCount, ...] = ()


class UsageWriter:
    """Emits the token counts of a response to `out`."""

    def __init__(self, out: list[StreamChunk], table: UsageTable) -> None:
        self._out = out
        self._table = table
        self._usage = Usage()

    def add(self, raw: Mapping[str, Any]) -> None:
        """Emits token counts; each field of the provider's replaces its earlier value (QUIRKS 88, 90)."""
        merged = {**self._usage.raw, **{key: value for key, value in raw.items() if value is not None}}
        portable = as_json_value(merged)
        usage = Usage(**count_tokens(self._table, merged), raw=portable if isinstance(portable, dict) else {})
        if usage != self._usage:
            self._usage = usage
            self._out.append(usage)

    def restart(self) -> None:
        """Forgets the counts: the provider started the response again."""
        self._usage = Usage()


def count_tokens(table: UsageTable, raw: dict[str, Any]) -> dict[str, int]:
    """The counts of a provider's usage as fields of `Usage`."""
    parts = {part.field: _count(raw, table.parts.get(part.field, ())) for part in USAGE_PARTS}
    cache, reasoning = parts["cached_tokens"] + parts["cache_write_tokens"], parts["reasoning_tokens"]
    input, output, total = (_count(raw, paths) for paths in (table.input, table.output, table.total))
    input += _count(raw, table.more_input)
    expected = (
        cache if table.cache_extent == "left_out" else 0,
        reasoning if table.reasoning_extent == "left_out" else 0,
    )
    pairs = ((0, 0), (0, reasoning), (cache, 0), (cache, reasoning))
    rest = total - input - output  # what the total has besides the two
    more_input, more_output = next((pair for pair in pairs if total and sum(pair) == rest), expected)
    return {
        "input_tokens": input + (cache if cache > input else more_input),
        "output_tokens": output + (reasoning if reasoning > output else more_output),
        **parts,
    }


def written_usage(table: UsageTable, usage: Usage) -> dict[str, Any]:
    """The usage of a response in the fields and the arithmetic of a wire."""
    counts = {name: getattr(usage, name) for name in USAGE_COUNTS}
    counts["total"] = usage.input_tokens + usage.output_tokens
    counts["plain_input"] = max(usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens, 0)
    counts["plain_output"] = usage.output_tokens - usage.reasoning_tokens
    written: dict[str, Any] = {}
    for row in table.written:
        if not row.unless_zero or any(counts[name] for name in row.unless_zero):
            *path, field = row.path.split(".")
            place = written
            for key in path:
                place = place.setdefault(key, {})
            place[field] = counts[row.count]
    return written


def _count(raw: dict[str, Any], paths: tuple[str, ...]) -> int:
    """The first count at these paths that is not 0; some servers send 0 in one place and the count in another."""
    for path in paths:
        if count := _at(raw, path):
            return count
    return 0


def _at(raw: dict[str, Any], path: str) -> int:
    value: Any = raw
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    is_float = isinstance(value, float) and value.is_integer()  # some SDKs return counts as floats
    if is_float or (isinstance(value, str) and _DIGITS.fullmatch(value)):  # Protocol Buffers: text for large numbers
        value = int(value)
    return value if type(value) is int and value > 0 else 0


JSONObject = Mapping[str, Any]


class TokenCounter(Struct, frozen=True):
    """The endpoint of a wire that counts the input tokens of a request.

    `request` returns its URL and body, given those of the request; `counted` the body of the request, given that of the
    endpoint. `field` has the number in its response.
    """

    field: str
    request: Callable[[str, JSONObject], tuple[str, JSONObject]]
    counted: Callable[[JSONObject], JSONObject]

    def read(self, response: Any) -> int | None:
        """The number in a response; None if it has none."""
        tokens = response.get(self.field) if isinstance(response, Mapping) else None
        is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
        return tokens if is_count else None
