"""One small response (a sentence and two calls) as each provider streams it, for tests that need a real body."""

from __future__ import annotations

from typing import Any

from tests.support import frame_bytes

TEXT = "Let me look."
CALLS = [("weather", {"city": "Rome"}), ("trains", {"to": "Rome", "via": ["Pisa"]})]
PIECES = [['{"city":', ' "Rome"}'], ['{"to":"Rome",', '"via":["Pisa"]}']]


def openai_chat() -> list[Any]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    frames: list[Any] = [chunk({"role": "assistant", "content": "Let me "}), chunk({"content": "look."})]
    for at, (name, _) in enumerate(CALLS):
        head = {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": ""}}
        frames.append(chunk({"tool_calls": [head]}))
        frames += [chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]}) for piece in PIECES[at]]
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return [*frames, chunk({}, "tool_calls"), {**chunk({}), "choices": [], "usage": usage}, "data: [DONE]\n\n"]


def mistral() -> list[Any]:
    """Chat Completions as Mistral sends them: whole calls without index or type, with the finish and the usage."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    calls = [
        {"id": f"abcdefgh{at}", "function": {"name": name, "arguments": "".join(PIECES[at])}}
        for at, (name, _) in enumerate(CALLS)
    ]
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    deltas = [{"role": "assistant", "content": ""}, {"content": "Let me "}, {"content": "look."}]
    last = {"index": 0, "delta": {"content": "", "tool_calls": calls}, "finish_reason": "tool_calls"}
    return [
        *({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas),
        {**head, "choices": [last], "usage": usage},
        "data: [DONE]\n\n",
    ]


def anthropic() -> list[Any]:
    usage = {"input_tokens": 5, "output_tokens": 1}
    message: Any = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                    "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip

    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    frames: list[Any] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        delta(0, type="text_delta", text="Let me "),
        delta(0, type="text_delta", text="look."),
        {"type": "content_block_stop", "index": 0},
    ]
    for at, (name, _) in enumerate(CALLS, start=1):
        block = {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {}}
        frames.append({"type": "content_block_start", "index": at, "content_block": block})
        frames += [delta(at, type="input_json_delta", partial_json=piece) for piece in PIECES[at - 1]]
        frames.append({"type": "content_block_stop", "index": at})
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    return [*frames, {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]


def openai_responses() -> list[Any]:
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [],
                "status": "in_progress", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    done = {**message, "status": "completed", "content": [{**part, "text": TEXT}]}
    frames: list[Any] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", **at, "part": part},
        {"type": "response.output_text.delta", **at, "delta": "Let me ", "logprobs": []},
        {"type": "response.output_text.delta", **at, "delta": "look.", "logprobs": []},
        {"type": "response.output_text.done", **at, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": {**part, "text": TEXT}},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]
    items: list[Any] = [done]
    for index, (name, _) in enumerate(CALLS, start=1):
        item = {"id": f"fc_{index}", "type": "function_call", "status": "in_progress", "arguments": "",
                "call_id": f"call_{index}", "name": name}  # fmt: skip
        where = {"item_id": item["id"], "output_index": index}
        raw = "".join(PIECES[index - 1])
        items.append({**item, "status": "completed", "arguments": raw})
        frames.append({"type": "response.output_item.added", "output_index": index, "item": item})
        frames += [
            {"type": "response.function_call_arguments.delta", **where, "delta": piece} for piece in PIECES[index - 1]
        ]
        frames.append({"type": "response.function_call_arguments.done", **where, "name": name, "arguments": raw})
        frames.append({"type": "response.output_item.done", "output_index": index, "item": items[-1]})
    usage = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
             "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12}  # fmt: skip
    completed = {**response, "status": "completed", "output": items, "usage": usage}
    frames.append({"type": "response.completed", "response": completed})
    return [{**frame, "sequence_number": number} for number, frame in enumerate(frames)]


def gemini() -> list[Any]:
    def chunk(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
        candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **fields}
        return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7}}

    first, second = ({"functionCall": {"name": name, "args": args}} for name, args in CALLS)
    signed = {**first, "thoughtSignature": "c2lnbmVkPz8+Pg=="}
    return [
        chunk({"text": "Let me "}),
        chunk({"text": "look."}),
        chunk(signed, second),
        chunk({"text": ""}, finishReason="STOP"),
    ]


def ollama() -> list[Any]:
    def line(done: bool = False, **fields: Any) -> dict[str, Any]:
        message = {"role": "assistant", "content": "", **fields}
        end = {"done_reason": "stop", "prompt_eval_count": 5, "eval_count": 7} if done else {}
        return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done, **end}

    calls = [{"function": {"index": at, "name": name, "arguments": args}} for at, (name, args) in enumerate(CALLS)]
    return [
        line(content="Let me "),
        line(content="look."),
        *(line(tool_calls=[call]) for call in calls),
        line(done=True),
    ]


def cohere() -> list[Any]:
    def delta(kind: str, index: int, **message: Any) -> dict[str, Any]:
        return {"type": kind, "index": index, "delta": {"message": message}}

    start = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    frames: list[Any] = [
        {"type": "message-start", "id": "1", "delta": {"message": start}},
        delta("content-start", 0, content={"type": "text", "text": ""}),
        delta("content-delta", 0, content={"text": "Let me "}),
        delta("content-delta", 0, content={"text": "look."}),
        {"type": "content-end", "index": 0},
    ]
    for at, (name, _) in enumerate(CALLS):
        head = {"id": f"{name}_{at}", "type": "function", "function": {"name": name, "arguments": ""}}
        frames.append(delta("tool-call-start", at, tool_calls=head))
        frames += [delta("tool-call-delta", at, tool_calls={"function": {"arguments": piece}}) for piece in PIECES[at]]
        frames.append({"type": "tool-call-end", "index": at})
    usage = {"billed_units": {"input_tokens": 1, "output_tokens": 2}, "tokens": {"input_tokens": 5, "output_tokens": 7}}
    return [*frames, {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": usage}}]


def gemini_interactions() -> list[Any]:
    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"event_type": kind, **fields}

    head = {"id": "v1_1", "object": "interaction", "model": "m"}
    frames: list[Any] = [
        event("interaction.created", interaction={**head, "status": "in_progress"}),
        event("interaction.status_update", interaction_id="v1_1", status="in_progress"),
        event("step.start", index=0, step={"type": "model_output"}),
        event("step.delta", index=0, delta={"type": "text", "text": "Let me "}),
        event("step.delta", index=0, delta={"type": "text", "text": "look."}),
        event("step.stop", index=0),
    ]
    for at, (name, _) in enumerate(CALLS, start=1):
        step = {"type": "function_call", "id": f"fc_{at}", "name": name, "arguments": {}}
        frames.append(event("step.start", index=at, step=step))
        deltas = [{"type": "arguments_delta", "arguments": piece} for piece in PIECES[at - 1]]
        frames += [event("step.delta", index=at, delta=delta) for delta in deltas]
        frames.append(event("step.stop", index=at))
    usage = {"total_input_tokens": 5, "total_output_tokens": 7, "total_tokens": 12}
    done = event("interaction.completed", interaction={**head, "status": "requires_action", "usage": usage})
    return [*frames, done, "event: done\ndata: [DONE]\n\n"]


def bedrock() -> list[Any]:
    frames: list[Any] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Let me "}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "look."}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
    ]
    for at, (name, _) in enumerate(CALLS, start=1):
        use = {"toolUse": {"toolUseId": f"tooluse_{at}", "name": name}}
        frames.append({"contentBlockStart": {"contentBlockIndex": at, "start": use}})
        for piece in PIECES[at - 1]:
            delta = {"toolUse": {"input": piece}}
            frames.append({"contentBlockDelta": {"contentBlockIndex": at, "delta": delta}})
        frames.append({"contentBlockStop": {"contentBlockIndex": at}})
    usage = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}
    return [
        *frames,
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": usage, "metrics": {"latencyMs": 3}}},
    ]


def body(wire: str) -> bytes:
    """The stream's bytes on a wire."""
    frames = globals()[wire.replace("-", "_")]()
    return b"".join(frame_bytes(wire, frame) for frame in frames)
