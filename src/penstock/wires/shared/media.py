"""What encoders ask of pictures and files."""

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
    """Its type: as it was given, or as a URL that holds the data says; empty if neither does."""
    stated = media.url[len("data:") :].partition(",")[0] if media.is_inline else ""
    return (media.media_type or stated).partition(";")[0]


IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The pictures that are taken nearly everywhere."""


def check_type(media: Media, is_taken: bool, advice: str) -> None:
    """Refuse what is not of a type that the provider takes; of what has no type, it will see for itself."""
    if media_type(media) and not is_taken:
        raise UsageError(f"{media!r} is {media_type(media)}; {advice}")


def is_uploaded(media: Media) -> bool:
    """Whether its URL is the id of a file that the provider already has."""
    return media.url.startswith(("file-", "file_"))


def inline_url(media: Media) -> str:
    """Its URL, if it holds the data; if the data is elsewhere, an error says what to do."""
    if not media.is_inline:
        raise UsageError(f"{media!r} has a URL that this provider does not accept; download it and pass its bytes")
    return media.url


def file_name(media: Media) -> str:
    """Its name, or one that fits its type: some providers go by the ending."""
    return media.name or "file" + (mimetypes.guess_extension(media_type(media)) or "")


def audio_format(media: Media) -> str:
    """The short name of a sound's format, `mp3` or `wav` say; empty if it is no sound."""
    kind, _, subtype = media_type(media).partition("/")
    return _AUDIO.get(subtype, subtype) if kind == "audio" else ""


def media_note(media: Media) -> Text:
    """A text in the place of what a provider cannot be shown."""
    kind = "picture" if isinstance(media, Image) else "file"
    return Text(0, f"(A {kind} was here that cannot be shown{f': {media.name}' if media.name else ''}.)")


def write_or_note(write: Callable[[Text | Image | File], Written], part: Text | Image | File) -> Written:
    """A part of a result as it is written, or, if the provider does not take it, a note of it.

    What a person gives is refused, so that they can give something else. A result comes in the middle of a run.
    """
    try:
        return write(part)
    except UsageError:
        if isinstance(part, Text):
            raise
        return write(media_note(part))
