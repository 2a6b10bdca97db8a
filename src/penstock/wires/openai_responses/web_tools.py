"""Web tools of Responses: `web_search_call` items, which hold the query and the pages, but not their text."""

from __future__ import annotations

from penstock.wires.shared.web_tools import (
    FAILED,
    OWN,
    SEARCH,
    UNAVAILABLE,
    Json,
    ShownResult,
    WebCall,
    WebForm,
    WebResult,
)


def _show_call(call: WebCall) -> None:
    return None  # the item of the result is also that of the call


def _show_result(call: WebCall, result: WebResult) -> Json:
    sources = [{"type": "url", "url": page.url} for page in result.sources if page.url]
    action = {"type": "search", "query": call.argument, "queries": [call.argument], "sources": sources}
    status = "failed" if result.error else "completed"
    return {"type": "web_search_call", "id": call.id, "status": status, "action": action}


def _read_call(item: Json) -> WebCall | None:
    match item:
        case {"type": "web_search_call", "id": str(id), "action": {"type": "search", "query": str(query)}}:
            return WebCall(id, SEARCH, query)
        case _:
            return None


def _read_result(item: Json) -> ShownResult | None:
    call = _read_call(item)
    if call is None:
        return None
    is_error = item.get("status") == "failed"
    return ShownResult(call.id, FAILED.format(UNAVAILABLE) if is_error else None, is_error)


FORM = WebForm(
    id_start=f"ws_{OWN}_",
    types={SEARCH: ("web_search", "web_search_*")},
    show_call=_show_call,
    show_result=_show_result,
    read_call=_read_call,
    read_result=_read_result,
)
