"""ReqLLM: `classify`, `extract` and `stream_text_and_classify` as functions, with mappings as results."""

from penstock.adapters.reqllm.classify import (
    StreamResponse,
    StreamResult,
    classify,
    extract,
    stream_text,
    stream_text_and_classify,
)

__all__ = ["StreamResponse", "StreamResult", "classify", "extract", "stream_text", "stream_text_and_classify"]
