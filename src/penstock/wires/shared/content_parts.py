"""What a model is shown, in the parts of OpenAI's and of Anthropic's messages, and of those who write like them."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping

from penstock.messages import File, Image
from penstock.wires.shared.fields import (
    Json,
    contents,
    data_url,
    json_text,
    kind_of,
    mapping,
    nested,
    plain,
    refused,
    rest,
    stated_type,
)
from penstock.wires.shared.foreign_blocks import words_of
from penstock.wires.shared.message_parts import Parts

_WHOLE = ("search_result", "container_upload", "tool_reference", "mid_conv_system")
"""Blocks that only Anthropic knows."""
CONTENT_TYPES = (
    "text", "input_text", "output_text", "refusal", "image_url", "input_image", "file", "input_file", "input_audio",
    "document_url", "image", "document",
)  # fmt: skip
"""Types of parts, which are no messages by themselves."""
_SOURCE = ("type", "media_type", "data", "url", "file_id")
_FILE = ("type", "file", "filename", "file_data", "file_url", "file_id")


def show(parts: Parts, part: Json, at: str) -> None:
    """Add a part that a model is shown; its fields that have no word of ours are state on it."""
    match part:
        case {"type": "text", "text": str(text)}:
            parts.text(text, rest(part, ("type", "text")))
        case {"type": "input_text" | "output_text", "text": str(text)}:
            parts.text(text, rest(part, ("type", "text")), "openai-responses")
        case {"type": "image_url" | "input_image" | "file" | "input_file" | "input_audio" | "document_url"}:
            _openai_media(parts, part, at)
        case {"type": "document", "source": {"type": "content", "content": content}}:
            inner = [found for _, found in contents(content, f"{at}.source.content")]
            pictures = [_pictured(found, at) for found in inner if found.get("type") == "image"]
            texts = [found for found in inner if found.get("type") != "image"]
            words = words_of(plain({**rest(part, ("source",)), "content": texts}))
            parts.told("document", part, words, pictures, "anthropic")
        case {"type": "image" | "document" as kind, "source": Mapping() as source}:
            found = _sourced(kind, source, str(part.get("title") or ""), at)
            beside = rest(part, ("type", "source", "title"))
            parts.media(found, beside | nested("source", rest(source, _SOURCE)), "anthropic")
        case {"type": "document", "document": Mapping()} if parts.wire == "cohere":
            parts.told("document", part, _document_text(part["document"]))
        case {"type": str(kind)} if kind in _WHOLE:
            parts.told(kind, part, words_of(plain(part)), (), "anthropic")
        case _:
            raise refused(at, f"{kind_of(part)} cannot be sent: give text, an image, a file or a tool's result")


def _openai_media(parts: Parts, part: Json, at: str) -> None:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            beside = rest(part, ("type", "image_url")) | ({"image_url": more} if more else {})
            parts.media(Image(url, stated_type(url, "image/png")), beside, _home(parts, "image_url"))
        case {"type": "image_url" | "input_image" as kind, "image_url": str(url)}:
            beside = rest(part, ("type", "image_url", "file_id"))
            parts.media(Image(url, stated_type(url, "image/png")), _unusual(beside), _home(parts, kind))
        case {"type": "input_image", "file_id": str(id)}:
            parts.media(Image(id), _unusual(rest(part, ("type", "file_id"))), "openai-responses")
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(format)}}:
            media_type = mimetypes.guess_type(f"sound.{format}")[0] or f"audio/{format}"
            beside = rest(part, ("type", "input_audio"))
            parts.media(File(data_url(media_type, data), media_type), beside, _home(parts, "file"))
        case {"type": "document_url", "document_url": str(url)}:  # Mistral's
            name = str(part.get("document_name") or "")
            parts.media(File(url, stated_type(url, "application/pdf"), name))
        case {"type": "file", "file": Mapping() as file}:
            parts.media(_file(file, at), rest(part, _FILE), _home(parts, "file"))
        case {"type": "input_file"}:
            parts.media(_file(part, at), rest(part, _FILE), "openai-responses")
        case _:
            raise refused(at, f"{kind_of(part)} cannot be sent: give text, an image, a file or a tool's result")


def _unusual(fields: Json) -> Json:
    """The fields without the detail that is usual."""
    return {key: value for key, value in fields.items() if (key, value) != ("detail", "auto")}


def _home(parts: Parts, kind: str) -> str:
    """Whose a part of this type is: the message's, unless that is of one who does not write such parts."""
    if kind.startswith("input_"):
        return "openai-responses"
    return "openai-chat" if parts.wire in ("openai-responses", "anthropic") else parts.wire


def _file(file: Json, at: str) -> File:
    name = str(file.get("filename") or "")
    usual = mimetypes.guess_type(name)[0] or "application/octet-stream"
    match file:
        case {"file_id": str(id)}:
            return File(id, name=name)
        case {"file_data": str(url)} | {"file_url": str(url)} if url.startswith(("data:", "http:", "https:")):
            return File(url, stated_type(url, usual), name)
        case {"file_data": str(data)}:
            return File(data_url(usual, data), usual, name)
        case _:
            raise refused(at, "a file needs its file_data, file_url or file_id")


def _sourced(kind: str, source: Json, name: str, at: str) -> Image | File:
    """A picture or a document as Anthropic writes it."""
    make = Image if kind == "image" else File
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data) | bytes(data)}:
            return make(data_url(media_type, data), media_type, name)
        case {"type": "text", "data": str(text)}:
            return make(data_url("text/plain", base64.b64encode(text.encode()).decode()), "text/plain", name)
        case {"type": "url", "url": str(url)}:
            return make(url, stated_type(url, "image/png" if kind == "image" else "application/pdf"), name)
        case {"type": "file", "file_id": str(id)}:
            return make(id, name=name)
        case _:
            raise refused(at, f"a source of the type {source.get('type')!r} is not known: give base64, url or file")


def _pictured(part: Json, at: str) -> Image:
    """A picture in a document."""
    found = _sourced("image", mapping(part.get("source"), at), "", at)
    return Image(found.url, found.media_type)


def _document_text(document: Json) -> str:
    """What a document of Cohere's says: its data is text, or fields of which `text` is the usual one."""
    match document.get("data"):
        case str(text):
            return text
        case {"text": str(text), **others} if not others:
            return text
        case data:
            return json_text(data, "document")
