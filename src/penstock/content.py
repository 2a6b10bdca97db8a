"""Content of messages and of tool results: images, files, and the vendor state on a part."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

from penstock.errors import UsageError
from penstock.events import Event, Opaque

PART_FIELDS = "fields"
"""The kind of vendor state that holds the fields of a part that ours does not have, `cache_control` for example."""
MESSAGE_FIELDS = "message"
"""The kind of vendor state that holds the fields of a message that ours does not have."""
RESULT_CONTENT = "content"
"""The kind of vendor state that holds the content of a result, if ours cannot hold all of it."""
WHOLE_BLOCK = "block"
"""The kind of vendor state that holds a whole block of the vendor; our part is its text for other vendors.

If a block becomes several parts, the state is on the first, and the others have such a state without data.
"""


class Media(Event, frozen=True):
    """An image or a file, by its URL: on the web, or a data URL (`data:image/png;base64,…`)."""

    url: str
    media_type: str = ""
    name: str = ""
    state: tuple[Opaque, ...] = ()

    def state_of(self, wire: str) -> dict[str, Any]:
        """The vendor state of this wire, by its kind."""
        return states_by_kind(self.state, wire)

    @property
    def is_inline(self) -> bool:
        """Whether the URL is a data URL."""
        return self.url.startswith("data:")

    @property
    def base64(self) -> str:
        """The data as base64 text."""
        head, _, data = self.url.partition(",")
        if not self.is_inline or not head.endswith(";base64"):
            raise UsageError(f"{self!r} has no base64 data; download it and pass its bytes")
        return data

    @property
    def data(self) -> bytes:
        """The data."""
        return base64.b64decode(self.base64)

    def __repr__(self) -> str:
        url = self.url if len(self.url) <= 60 else f"{self.url[:40]}… ({len(self.url)} characters)"
        return f"{type(self).__name__}({url!r})"


class Image(Media, frozen=True, tag="image"):
    """An image."""

    type: ClassVar[Literal["image"]] = "image"


class File(Media, frozen=True, tag="file"):
    """A file that is not an image: a PDF, an audio recording."""

    type: ClassVar[Literal["file"]] = "file"


def image(source: str | bytes | Path, media_type: str = "") -> Image:
    """An image from a URL, a file path, or bytes."""
    return Image(*_locate(source, media_type or "image/png"))


def file(source: str | bytes | Path, media_type: str = "", name: str = "") -> File:
    """A file from a URL, a file path, or bytes."""
    url, kind, file_name = _locate(source, media_type or "application/octet-stream")
    return File(url, kind, name or file_name)


def _locate(source: str | bytes | Path, media_type: str) -> tuple[str, str, str]:
    """The URL, the media type and the file name of a source."""
    match source:
        case str() if source.startswith(("http://", "https://", "gs://", "s3://", "file-", "data:")):
            declared = source[5:].partition(";")[0] if source.startswith("data:") else mimetypes.guess_type(source)[0]
            return source, declared or media_type, ""
        case bytes():
            return _data_url(source, media_type), media_type, ""
        case _:
            path = Path(source)
            kind = mimetypes.guess_type(path.name)[0] or media_type
            return _data_url(path.read_bytes(), kind), kind, path.name


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def states_by_kind(states: Iterable[Opaque], wire: str) -> dict[str, Any]:
    """The state of a wire by its kind; fields that are not an object are left out, as stored histories may hold any."""
    return {
        state.kind: state.data
        for state in states
        if state.wire == wire and (state.kind != PART_FIELDS or isinstance(state.data, dict))
    }
