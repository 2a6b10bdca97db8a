"""YAML files: changed by ruamel.yaml, which keeps comments, and read again by its safe loader."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from penstock.cli.settings_files.merging import Rows, plain

if TYPE_CHECKING:
    from ruamel.yaml import YAML

WIDTH = 10_000
"""The length at which lines would be wrapped: long lines of a file stay as they are."""


def read(text: str) -> Any:
    """The settings in a text; raises a `ValueError` if it is not one YAML document."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from None


def edit(text: str, content: Any) -> str:
    """The text with settings merged into it; raises a `ValueError` if that is not possible."""
    from ruamel.yaml.error import YAMLError

    yaml = _round_trip(text)
    stream = StringIO()
    try:
        document = yaml.load(text)
        if document is None:  # only comments
            return text.rstrip("\n") + "\n" + show(content)
        yaml.dump(_filled(document, content), stream)
    except YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    return stream.getvalue()


def _round_trip(text: str) -> YAML:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    lines = [line for line in text.splitlines() if line.lstrip().startswith("- ")]
    if any(line.startswith(" ") for line in lines) and not any(line.startswith("-") for line in lines):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _filled(old: Any, content: Any) -> Any:
    match content:
        case Mapping() if isinstance(old, dict):
            for key, value in content.items():
                old[key] = _filled(old.get(key), value)
            return old
        case Rows() if isinstance(old, list):
            for table in content.tables:
                position = content.position(old, table)
                if position is None:
                    old.append(_new(table))
                else:
                    _filled(old[position], table)
            return old
        case _:
            return _new(content)


def _new(content: Any) -> Any:
    """New settings, with texts in quotes: versions of YAML differ in what else a word such as `no` may be."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    match plain(content):
        case dict() as table:
            return {key: _new(value) for key, value in table.items()}
        case list() as items:
            return [_new(item) for item in items]
        case str() as text:
            return DoubleQuotedScalarString(text)
        case value:
            return value


def show(content: Any) -> str:
    """Settings as the text of a new file."""
    from ruamel.yaml import YAML

    stream = StringIO()
    yaml = YAML()
    yaml.width = WIDTH
    yaml.dump(_new(content), stream)
    return stream.getvalue()
