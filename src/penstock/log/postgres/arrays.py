"""Columns of many rows as arrays of PostgreSQL: each is encoded in one pass.

psycopg looks at every element of a list several times, in Python, to find its type. This module needs psycopg, and is
imported with it.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from psycopg import adapters
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from penstock.log.postgres.columns import Blobs, Floats, Integers, Texts

_pack_size = Struct(">i").pack
_pack_integer = Struct(">iq").pack
_pack_float = Struct(">id").pack
_pack_head = Struct(">iiIii").pack  # dimensions, whether there is a NULL, type of the elements, length, lower bound
_NULL = _pack_size(-1)


def _array(oid: int, length: int, elements: list[bytes], has_null: bool = False) -> bytes:
    """An array of elements that stand with their sizes before them."""
    return _pack_head(1, has_null, oid, length, 1) + b"".join(elements)


class _IntegersDumper(Dumper):
    format, oid = Format.BINARY, 1016

    def dump(self, obj: Integers) -> bytes:
        return _array(20, len(obj), [_pack_integer(8, number) for number in obj])


class _FloatsDumper(Dumper):
    format, oid = Format.BINARY, 1022

    def dump(self, obj: Floats) -> bytes:
        elements = [_NULL if number is None else _pack_float(8, number) for number in obj]
        return _array(701, len(obj), elements, None in obj)


class _TextsDumper(Dumper):
    format, oid = Format.BINARY, 1009

    def dump(self, obj: Texts) -> bytes:
        return _array(25, len(obj), _sized([text.encode() for text in obj]))


class _BlobsDumper(Dumper):
    format, oid = Format.BINARY, 1001

    def dump(self, obj: Blobs) -> bytes:
        return _array(17, len(obj), _sized(obj))


def _sized(blobs: list[bytes]) -> list[bytes]:
    elements: list[bytes] = []
    for blob in blobs:
        elements += (_pack_size(len(blob)), blob)
    return elements


def adapters_with_columns() -> AdaptersMap:
    """How psycopg encodes values, columns among them."""
    known = AdaptersMap(adapters)
    dumpers: dict[type[Any], type[Dumper]] = {
        Integers: _IntegersDumper, Floats: _FloatsDumper, Texts: _TextsDumper, Blobs: _BlobsDumper,
    }  # fmt: skip
    for kind, dumper in dumpers.items():
        known.register_dumper(kind, dumper)
    return known
