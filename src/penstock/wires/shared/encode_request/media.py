"""Images and files, as encoders need them."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import UsageError
from penstock.events import Text
from penstock.messages import File, Image, Media

Written = TypeVar("Written")
_AUDIO = {"mpeg": "mp3", "mpga": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav", "x-m4a": "m4a", "mp4": "m4a"}


def media_type(media: Media) -> str:
    """The media type without parameters: as stated, or from a data URL; empty if unknown."""
    stated = media.url[len("data:") :].partition(",")[0] if media.is_inline else ""
    return (media.media_type or stated).partition(";")[0]


IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The image types that nearly all providers accept."""


def check_type(media: Media, is_accepted: bool, advice: str) -> None:
    """Raise if the provider does not accept the type; without a type, the provider decides."""
    if media_type(media) and not is_accepted:
        raise UsageError(f"{media!r} is {media_type(media)}; {advice}")


def is_uploaded(media: Media) -> bool:
    """Whether the URL is the id of a file that was uploaded to the provider."""
    return media.url.startswith(("file-", "file_"))


def inline_url(media: Media) -> str:
    """The data URL; raises if the data is elsewhere."""
    if not media.is_inline:
        raise UsageError(f"{media!r} has a URL that this provider does not accept; download it and pass its bytes")
    return media.url


def file_name(media: Media) -> str:
    """The file name, or one with the ending of its type: some providers go by the ending."""
    return media.name or "file" + (mimetypes.guess_extension(media_type(media)) or "")


def audio_format(media: Media) -> str:
    """The short name of an audio format, `mp3` for example; empty if it is not audio."""
    kind, _, subtype = media_type(media).partition("/")
    return _AUDIO.get(subtype, subtype) if kind == "audio" else ""


def media_note(media: Media) -> Text:
    """A text in place of an image or file that a provider does not accept."""
    kind = "picture" if isinstance(media, Image) else "file"
    return Text(0, f"(A {kind} was here that cannot be shown{f': {media.name}' if media.name else ''}.)")


def write_or_note(write: Callable[[Text | Image | File], Written], part: Text | Image | File) -> Written:
    """A part of a result as `write` writes it, or a note if the provider does not accept it.

    In a user message that raises, so that the user can send something else; a result comes in the middle of a run.
    """
    try:
        return write(part)
    except UsageError:
        if isinstance(part, Text):
            raise
        return write(media_note(part))
