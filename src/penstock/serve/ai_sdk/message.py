"""Folds the chunks of a UI message stream into a message, as a client does."""

from __future__ import annotations

from typing import Any

from penstock.serve.ai_sdk.call_parts import Chunk
from penstock.serve.growing_text import append_text

Part = dict[str, Any]


class UIMessageFold:
    """One assistant message. It reads only what `UIMessageEncoder` writes."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"id": "", "role": "assistant", "parts": []}
        self._parts: list[Part] = self._message["parts"]
        self._texts: dict[str, Part] = {}

    def build(self) -> dict[str, Any]:
        """The message."""
        return self._message

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk."""
        kind, _, stage = chunk["type"].rpartition("-")
        match chunk["type"]:
            case "start" | "finish" | "message-metadata":
                self._message["id"] = chunk.get("messageId", self._message["id"])
                self._message["metadata"] = self._message.get("metadata", {}) | chunk.get("messageMetadata", {})
            case "start-step":
                self._parts.append({"type": "step-start"})
            case "reset-step":
                self._reset()
            case "text-start" | "text-delta" | "text-end" | "reasoning-start" | "reasoning-delta" | "reasoning-end":
                self._add_text(kind, stage, chunk)
            case "steering-message":
                self._parts.append(chunk)
            case "data-question":
                self._add_data(chunk)
            case "finish-step" | "error" | "abort":
                pass
            case _:
                self._add_to_call(chunk)

    def _reset(self) -> None:
        while self._parts and self._parts[-1]["type"] != "step-start":
            self._parts.pop()

    def _add_text(self, kind: str, stage: str, chunk: Chunk) -> None:
        if stage == "start":
            id = {"id": chunk["id"]} if kind == "reasoning" else {}
            self._texts[chunk["id"]] = {"type": kind, **id, "text": "", "state": "streaming"}
            self._parts.append(self._texts[chunk["id"]])
        elif stage == "delta":
            append_text(self._texts[chunk["id"]], "text", chunk["delta"])
        else:
            self._texts.pop(chunk["id"])["state"] = "done"

    def _add_data(self, chunk: Chunk) -> None:
        for part in self._parts:
            if part["type"] == chunk["type"] and part["id"] == chunk["id"]:
                part["data"] = chunk["data"]
                return
        self._parts.append(chunk)

    def _add_to_call(self, chunk: Chunk) -> None:
        if chunk["type"] == "tool-approval-response":
            part = next(part for part in self._parts if part.get("approval", {}).get("id") == chunk["approvalId"])
            part["state"] = "approval-responded"
            part["approval"] |= {name: chunk[name] for name in ("approved", "reason") if name in chunk}
            return
        part = self._call(chunk)
        match chunk["type"]:
            case "tool-input-available":
                part |= {"state": "input-available", "input": chunk["input"]}
            case "tool-input-error":
                part |= {"state": "output-error", "input": chunk["input"], "errorText": chunk["errorText"]}
            case "tool-approval-request":
                part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
            case "tool-output-available":
                part |= {"state": "output-available", "output": chunk["output"]}
                part.pop("preliminary", None)
                part |= {"preliminary": True} if chunk.get("preliminary") else {}
            case "tool-output-error":
                part |= {"state": "output-error", "errorText": chunk["errorText"]}
            case "tool-output-denied":
                part["state"] = "output-denied"
            case _:  # it grows; of a history, it is never asked for
                pass
        if "providerExecuted" in chunk:
            part["providerExecuted"] = chunk["providerExecuted"]

    def _call(self, chunk: Chunk) -> Part:
        for part in reversed(self._parts):
            if part.get("toolCallId") == chunk["toolCallId"]:
                return part
        name = chunk["toolName"]
        own: Part = {"type": "dynamic-tool", "toolName": name} if chunk.get("dynamic") else {"type": f"tool-{name}"}
        self._parts.append(own | {"toolCallId": chunk["toolCallId"], "state": "input-streaming", "input": None})
        return self._parts[-1]
