"""TOML files: changed by tomlkit, which keeps comments and layout, and read by `tomllib`, which checks the change."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, MutableMapping
from typing import Any

from penstock.cli.settings_files.merging import plain


def read(text: str) -> Any:
    """The settings in a text; raises a `ValueError` if it is not TOML."""
    return tomllib.loads(text)


def edit(text: str, content: Any) -> str:
    """The text with settings merged into it; raises a `ValueError` if that is not possible."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        _fill(document, content)
        return tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


def _fill(table: MutableMapping[str, Any], content: Mapping[str, Any]) -> None:
    from tomlkit.items import InlineTable

    for key, value in content.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), MutableMapping):
            _fill(table[key], value)
        else:
            table[key] = _item(value, is_inline=isinstance(table, InlineTable))


def _item(value: Any, *, is_inline: bool) -> Any:
    """A value for a document; a table that only has tables needs no line of its own."""
    import tomlkit

    if not isinstance(value, Mapping):
        return plain(value)
    has_only_tables = bool(value) and all(isinstance(inner, Mapping) for inner in value.values())
    table = tomlkit.inline_table() if is_inline else tomlkit.table(is_super_table=has_only_tables)
    for key, inner in value.items():
        table.append(key, _item(inner, is_inline=is_inline))
    return table


def show(content: Any) -> str:
    """Settings as the text of a new file."""
    return edit("", content)
