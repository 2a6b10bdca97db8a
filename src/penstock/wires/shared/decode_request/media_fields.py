"""Reads the fields of files and images that two wires share."""

from __future__ import annotations

import mimetypes
from typing import Any

from penstock.messages import File
from penstock.wires.shared.decode_request.fields import Json, data_url, type_of_url, unreadable

FILE_FIELDS = ("type", "file", "filename", "file_data", "file_url", "file_id")


def read_file(file: Json, place: str) -> File:
    """The file that these fields hold, locate or name."""
    name = str(file.get("filename") or "")
    usual = mimetypes.guess_type(name)[0] or "application/octet-stream"
    match file:
        case {"file_id": str(id)}:
            return File(id, name=name)
        case {"file_data": str(url)} | {"file_url": str(url)} if url.startswith(("data:", "http:", "https:")):
            return File(url, type_of_url(url, usual), name)
        case {"file_data": str(data)}:
            return File(data_url(usual, data), usual, name)
        case _:
            raise unreadable(place, "a file needs its file_data, file_url or file_id")


def without_usual_detail(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an image without the default of its `detail`."""
    return {key: value for key, value in fields.items() if (key, value) != ("detail", "auto")}
