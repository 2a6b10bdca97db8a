"""Web tools of Messages: `server_tool_use` blocks, and the blocks of their results.

A provider encrypts the pages that a search found, for the next requests. A gateway puts the text of the result there.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from penstock.wires.shared.web_tools import (
    ARGUMENTS,
    FAILED,
    FETCH,
    OWN,
    SEARCH,
    Json,
    ShownResult,
    WebCall,
    WebForm,
    WebResult,
    WebSource,
)


def _show_call(call: WebCall) -> Json:
    return {"type": "server_tool_use", "id": call.id, "name": call.name, "input": {ARGUMENTS[call.name]: call.argument}}


def _show_result(call: WebCall, result: WebResult) -> Json:
    content: Any
    if result.error:
        content = {"type": f"{call.name}_tool_result_error", "error_code": result.error}
    elif call.name == FETCH:
        source = {"type": "text", "media_type": "text/plain", "data": result.text}
        document = {"type": "document", "source": source, "title": None, "citations": None}
        content = {"type": "web_fetch_result", "url": call.argument, "content": document, "retrieved_at": None}
    else:
        pages = result.sources or (WebSource("", call.argument),)
        texts = [base64.b64encode(result.text.encode()).decode(), *[""] * (len(pages) - 1)]
        content = [
            {"type": "web_search_result", "url": page.url, "title": page.title or page.url, "encrypted_content": text,
             "page_age": None}
            for page, text in zip(pages, texts, strict=True)
        ]  # fmt: skip
    return {"type": f"{call.name}_tool_result", "tool_use_id": call.id, "content": content}


def _read_call(block: Json) -> WebCall | None:
    match block:
        case {"type": "server_tool_use", "id": str(id), "name": str(name), "input": dict(input)} if name in ARGUMENTS:
            return WebCall(id, name, str(input.get(ARGUMENTS[name]) or ""))
        case _:
            return None


def _read_result(block: Json) -> ShownResult | None:
    match block:
        case {
            "type": "web_search_tool_result",
            "tool_use_id": str(id),
            "content": [{"encrypted_content": str(text)}, *_],
        }:
            return ShownResult(id, _decoded(text))
        case {
            "type": "web_fetch_tool_result",
            "tool_use_id": str(id),
            "content": {"content": {"source": {"data": str(text)}}},
        }:
            return ShownResult(id, text)
        case {"type": str(kind), "tool_use_id": str(id), "content": {"error_code": str(code)}} if kind.startswith(
            "web_"
        ):
            return ShownResult(id, FAILED.format(code), is_error=True)
        case _:
            return None


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


FORM = WebForm(
    id_start=f"srvtoolu_{OWN}_",
    types={SEARCH: ("web_search_*", "web_search"), FETCH: ("web_fetch_*", "web_fetch")},
    show_call=_show_call,
    show_result=_show_result,
    read_call=_read_call,
    read_result=_read_result,
)
