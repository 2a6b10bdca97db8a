"""Answers as each provider streams them: lists of frames.

Frames are those of `tests/vectors`: JSON objects, or strings that are sent as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.fuzz.answers import Answer, Call, Hosted, Part, Words

Frame = Any
Json = dict[str, Any]

DONE = "data: [DONE]\n\n"


def stream_of(wire: str, answer: Answer, chance: Random) -> list[Frame]:
    """The frames of a valid stream."""
    return STREAMS[wire](answer, chance)


def interleave(chance: Random, runs: list[list[Frame]]) -> list[Frame]:
    """The runs one after another; sometimes, as of calls that are streamed side by side, mixed."""
    if len(runs) < 2 or chance.random() < 0.75:
        return [frame for run in runs for frame in run]
    rest, mixed = [list(run) for run in runs], list[Frame]()
    while rest := [run for run in rest if run]:
        mixed.append(chance.choice(rest).pop(0))
    return mixed


def groups(parts: list[Part]) -> Iterator[list[Part]]:
    """The parts, with neighbouring calls together."""
    group: list[Part] = []
    for part in parts:
        if group and not (isinstance(part, Call) and isinstance(group[-1], Call)):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


# OpenAI Chat Completions, and Mistral's flavour of it.


def openai_chat(answer: Answer, chance: Random) -> list[Frame]:
    def chunk(delta: Json, reason: str | None = None) -> Json:
        return {"id": "c1", "object": "chat.completion.chunk", "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}  # fmt: skip

    field = chance.choice(["reasoning_content", "reasoning"])
    frames: list[Frame] = [chunk({"role": "assistant", "content": ""})]
    index = 0
    for group in groups(answer.parts):
        runs: list[list[Frame]] = []
        for part in group:
            match part:
                case Words():
                    key = {"text": "content", "refusal": "refusal", "reasoning": field}[part.kind]
                    frames += [chunk({key: piece}) for piece in part.pieces]
                case Call():
                    head = {
                        "index": index,
                        "id": part.id,
                        "type": "function",
                        "function": {"name": part.name, "arguments": ""},
                    }
                    pieces = [{"index": index, "function": {"arguments": piece}} for piece in part.pieces]
                    runs.append([chunk({"tool_calls": [piece]}) for piece in [head, *pieces]])
                    index += 1
                case Hosted():
                    pass  # this protocol has none
        frames += interleave(chance, runs)
    frames.append(chunk({}, answer.reason))
    if chance.random() < 0.5:
        frames.append({**chunk({}), "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}})
    return [*frames, DONE]


def mistral(answer: Answer, chance: Random) -> list[Frame]:
    """Whole calls, in one frame with the finish reason; reasoning in a list of parts."""

    def chunk(delta: Json, reason: str | None = None) -> Json:
        return {"id": "c1", "object": "chat.completion.chunk", "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}  # fmt: skip

    frames: list[Frame] = [chunk({"role": "assistant", "content": ""})]
    for part in answer.parts:
        if isinstance(part, Words):
            for piece in part.pieces:
                thought = [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]
                frames.append(chunk({"content": thought if part.kind == "reasoning" else piece}))
    calls = [{"id": call.id, "function": {"name": call.name, "arguments": call.raw or "{}"}} for call in answer.calls]
    last = chunk({"content": "", **({"tool_calls": calls} if calls else {})}, answer.reason)
    return [*frames, {**last, "usage": {"prompt_tokens": 5, "completion_tokens": 7}}, DONE]


# Anthropic Messages.

ANTHROPIC_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}


def anthropic(answer: Answer, chance: Random) -> list[Frame]:
    message: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1}}
    frames: list[Frame] = [{"type": "message_start", "message": message}]
    index = 0
    for group in groups(answer.parts):
        runs: list[list[Frame]] = []
        for part in group:
            for block, deltas in anthropic_blocks(part):
                start = {"type": "content_block_start", "index": index, "content_block": block}
                pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
                runs.append([start, *pieces, {"type": "content_block_stop", "index": index}])
                index += 1
        frames += interleave(chance, runs) if isinstance(group[0], Call) else [frame for run in runs for frame in run]
    stop = {"stop_reason": ANTHROPIC_REASONS[answer.reason], "stop_sequence": None}
    return [*frames, {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]


def anthropic_blocks(part: Part) -> Iterator[tuple[Json, list[Json]]]:
    match part:
        case Words(kind="reasoning"):
            pieces: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in part.pieces]
            yield {"type": "thinking", "thinking": ""}, [*pieces, {"type": "signature_delta", "signature": "c2ln"}]
        case Words():
            yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in part.pieces]
        case Call():
            block: Json = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            yield block, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *part.pieces]]
        case Hosted():
            use = {"type": "server_tool_use", "id": part.id, "name": "web_search", "input": {}}
            yield use, [{"type": "input_json_delta", "partial_json": '{"query": "x"}'}]
            yield {"type": "web_search_tool_result", "tool_use_id": part.id, "content": []}, []


# OpenAI Responses.


def openai_responses(answer: Answer, chance: Random) -> list[Frame]:
    response = {"id": "resp_1", "object": "response", "model": "m", "output": [], "status": "in_progress"}
    frames: list[Frame] = [{"type": "response.created", "response": response}]
    items, index = list[Json](), 0
    for group in groups(answer.parts):
        runs: list[list[Frame]] = []
        for part in group:
            run, item = responses_item(part, index)
            runs.append(run)
            items.append(item)
            index += 1
        frames += interleave(chance, runs)
    frames.append(responses_end({**response, "output": items}, answer))
    return [{**frame, "sequence_number": number} for number, frame in enumerate(frames)]


def responses_end(response: Json, answer: Answer) -> Json:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    status = "incomplete" if answer.reason == "length" else "completed"
    details = {"incomplete_details": {"reason": "max_output_tokens"}} if answer.reason == "length" else {}
    return {"type": f"response.{status}", "response": {**response, "status": status, "usage": usage, **details}}


def responses_item(part: Part, index: int) -> tuple[list[Frame], Json]:
    """The frames of an item, and the item as it is at its end."""
    where: Json = {"item_id": f"it_{index}", "output_index": index}
    first, body, last = _responses_content(part, where)
    item = {"id": where["item_id"], "status": "in_progress", **first}
    final = {**item, "status": "completed", **last}
    added = {"type": "response.output_item.added", "output_index": index, "item": item}
    done = {"type": "response.output_item.done", "output_index": index, "item": final}
    return [added, *body, done], final


def _responses_content(part: Part, where: Json) -> tuple[Json, list[Json], Json]:
    """The fields of an item at its start, the frames of its content, and its fields at the end."""
    if isinstance(part, Hosted):
        searching = {"type": "response.web_search_call.searching", **where}
        return {"type": "web_search_call"}, [searching], {"action": {"type": "search", "query": "x"}}
    if isinstance(part, Call):
        stem, raw = "response.function_call_arguments", part.raw or "{}"
        pieces: list[Json] = [{"type": f"{stem}.delta", **where, "delta": piece} for piece in part.pieces]
        first = {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": ""}
        return first, [*pieces, {"type": f"{stem}.done", **where, "arguments": raw}], {"arguments": raw}
    if part.kind == "reasoning":
        stem, at = "response.reasoning_summary_text", {**where, "summary_index": 0}
        summary = [{"type": "summary_text", "text": part.whole}]
        pieces = [{"type": f"{stem}.delta", **at, "delta": piece} for piece in part.pieces]
        return {"type": "reasoning", "summary": []}, pieces, {"summary": summary, "encrypted_content": "c2ln"}
    kind, field = ("output_text", "text") if part.kind == "text" else ("refusal", "refusal")
    at, whole = {**where, "content_index": 0}, {"type": kind, field: part.whole}
    body = [
        {"type": "response.content_part.added", **at, "part": {"type": kind, field: ""}},
        *({"type": f"response.{kind}.delta", **at, "delta": piece} for piece in part.pieces),
        {"type": f"response.{kind}.done", **at, field: part.whole},
        {"type": "response.content_part.done", **at, "part": whole},
    ]
    return {"type": "message", "role": "assistant", "content": []}, body, {"content": [whole]}


# Gemini.


def gemini(answer: Answer, chance: Random) -> list[Frame]:
    def chunk(*parts: Json, **fields: Any) -> Json:
        return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0, **fields}],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7}}  # fmt: skip

    frames: list[Frame] = []
    for part in answer.parts:
        match part:
            case Words():
                thought = {"thought": True} if part.kind == "reasoning" else {}
                frames += [chunk({"text": piece, **thought}) for piece in part.pieces]
            case Call() if part.arguments and chance.random() < 0.4:
                frames += [chunk(piece) for piece in _gemini_pieces(part)]
            case Call():
                frames.append(chunk(gemini_call(part)))
            case Hosted():
                code = {"executableCode": {"language": "PYTHON", "code": "1+1", "id": part.id}}
                frames.append(
                    chunk(code, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2", "id": part.id}})
                )
    return [*frames, chunk({"text": ""}, finishReason="MAX_TOKENS" if answer.reason == "length" else "STOP")]


def gemini_call(call: Call) -> Json:
    return {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}, "thoughtSignature": "c2ln"}


def _gemini_pieces(call: Call) -> Iterator[Json]:
    """A call whose arguments are streamed: one at a time, strings in two pieces."""
    yield {"functionCall": {"id": call.id, "name": call.name, "willContinue": True}}
    for key, value in call.arguments.items():
        for partial in _gemini_partials(f"$['{key}']", value):
            yield {"functionCall": {"partialArgs": [partial], "willContinue": True}}
    yield {"functionCall": {}}


def _gemini_partials(path: str, value: Any) -> Iterator[Json]:
    match value:
        case str() if len(value) > 1:
            yield {"jsonPath": path, "stringValue": value[:1], "willContinue": True}
            yield {"jsonPath": path, "stringValue": value[1:]}
        case str():
            yield {"jsonPath": path, "stringValue": value}
        case bool():
            yield {"jsonPath": path, "boolValue": value}
        case None:
            yield {"jsonPath": path, "nullValue": "NULL_VALUE"}
        case int() | float():
            yield {"jsonPath": path, "numberValue": value}
        case dict() if value:
            for key, inner in value.items():
                yield from _gemini_partials(f"{path}['{key}']", inner)
        case list() if value:
            for at, inner in enumerate(value):
                yield from _gemini_partials(f"{path}[{at}]", inner)
        case _:
            yield {"jsonPath": path, "structValue" if isinstance(value, dict) else "listValue": value}


# Ollama.


def ollama(answer: Answer, chance: Random) -> list[Frame]:
    def line(fields: Json, done: bool = False) -> Json:
        reason = "length" if answer.reason == "length" else "stop"
        end = {"done_reason": reason, "prompt_eval_count": 5, "eval_count": 7} if done else {}
        message = {"role": "assistant", "content": "", **fields}
        return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done, **end}

    frames: list[Frame] = []
    for part in answer.parts:
        match part:
            case Words():
                key = "thinking" if part.kind == "reasoning" else "content"
                frames += [line({key: piece}) for piece in part.pieces]
            case Call():
                function = {"name": part.name, "arguments": part.arguments}
                frames.append(line({"tool_calls": [{"id": part.id, "function": function}]}))
            case Hosted():
                pass
    return [*frames, line({}, done=True)]


# Cohere.

COHERE_REASONS = {"stop": "COMPLETE", "tool_calls": "TOOL_CALL", "length": "MAX_TOKENS"}


def cohere(answer: Answer, chance: Random) -> list[Frame]:
    def delta(kind: str, index: int, **message: Any) -> Json:
        return {"type": kind, "index": index, "delta": {"message": message}}

    start = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    frames: list[Frame] = [{"type": "message-start", "id": "1", "delta": {"message": start}}]
    content, index = 0, 0
    for group in groups(answer.parts):
        runs: list[list[Frame]] = []
        for part in group:
            match part:
                case Words():
                    key = "thinking" if part.kind == "reasoning" else "text"
                    frames.append(delta("content-start", content, content={"type": key, key: ""}))
                    frames += [delta("content-delta", content, content={key: piece}) for piece in part.pieces]
                    frames.append({"type": "content-end", "index": content})
                    content += 1
                case Call():
                    head = {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": ""}}
                    pieces = [
                        delta("tool-call-delta", index, tool_calls={"function": {"arguments": piece}})
                        for piece in part.pieces
                    ]
                    first = delta("tool-call-start", index, tool_calls=head)
                    runs.append([first, *pieces, {"type": "tool-call-end", "index": index}])
                    index += 1
                case Hosted():
                    frames += [{"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will look."}}}]
        frames += interleave(chance, runs)
    usage = {"billed_units": {"input_tokens": 1, "output_tokens": 2}, "tokens": {"input_tokens": 5, "output_tokens": 7}}
    return [
        *frames,
        {"type": "message-end", "delta": {"finish_reason": COHERE_REASONS[answer.reason], "usage": usage}},
    ]


# Bedrock Converse.


def bedrock(answer: Answer, chance: Random) -> list[Frame]:
    frames: list[Frame] = [{"messageStart": {"role": "assistant"}}]
    index = 0
    for group in groups(answer.parts):
        runs: list[list[Frame]] = []
        for part in group:
            for start, deltas in _bedrock_blocks(part):
                at = {"contentBlockIndex": index}
                first = [{"contentBlockStart": {**at, "start": start}}] if start is not None else []
                pieces = [{"contentBlockDelta": {**at, "delta": delta}} for delta in deltas]
                runs.append([*first, *pieces, {"contentBlockStop": at}])
                index += 1
        frames += interleave(chance, runs) if isinstance(group[0], Call) else [frame for run in runs for frame in run]
    usage = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}
    end = {"messageStop": {"stopReason": ANTHROPIC_REASONS[answer.reason]}}
    return [*frames, end, {"metadata": {"usage": usage, "metrics": {"latencyMs": 3}}}]


def _bedrock_blocks(part: Part) -> Iterator[tuple[Json | None, list[Json]]]:
    match part:
        case Words(kind="reasoning"):
            pieces: list[Json] = [{"reasoningContent": {"text": piece}} for piece in part.pieces]
            yield None, [*pieces, {"reasoningContent": {"signature": "c2ln"}}]
        case Words():
            yield None, [{"text": piece} for piece in part.pieces]
        case Call():
            start = {"toolUse": {"toolUseId": part.id, "name": part.name}}
            yield start, [{"toolUse": {"input": piece}} for piece in part.pieces]
        case Hosted():
            use = {"toolUseId": part.id, "name": "nova_grounding", "type": "server_tool_use"}
            yield {"toolUse": use}, [{"toolUse": {"input": '{"q": "x"}'}}]
            result = {"toolUseId": part.id, "type": "nova_grounding_result", "status": "success"}
            yield {"toolResult": result}, [{"toolResult": [{"text": "found"}]}]


# Google's Interactions.

INTERACTIONS_STATUSES = {"stop": "completed", "tool_calls": "requires_action", "length": "incomplete"}


def gemini_interactions(answer: Answer, chance: Random) -> list[Frame]:
    head = {"id": "v1_1", "object": "interaction", "model": "m"}
    frames: list[Frame] = [
        {"event_type": "interaction.created", "interaction": {**head, "status": "in_progress"}},
        {"event_type": "interaction.status_update", "interaction_id": "v1_1", "status": "in_progress"},
    ]
    index = 0
    for group in groups(answer.parts):
        runs: list[list[Frame]] = []
        for part in group:
            for step, deltas in interactions_steps(part):
                start = {"event_type": "step.start", "index": index, "step": step}
                pieces = [{"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas]
                runs.append([start, *pieces, {"event_type": "step.stop", "index": index}])
                index += 1
        frames += interleave(chance, runs) if isinstance(group[0], Call) else [frame for run in runs for frame in run]
    usage = {"total_input_tokens": 5, "total_output_tokens": 7, "total_tokens": 12}
    end = {**head, "status": INTERACTIONS_STATUSES[answer.reason], "usage": usage}
    return [*frames, {"event_type": "interaction.completed", "interaction": end}, DONE]


def interactions_steps(part: Part) -> Iterator[tuple[Json, list[Json]]]:
    match part:
        case Words(kind="reasoning"):
            texts = [{"type": "text", "text": piece} for piece in part.pieces]
            pieces: list[Json] = [{"type": "thought_summary", "content": text} for text in texts]
            yield {"type": "thought"}, [*pieces, {"type": "thought_signature", "signature": "c2ln"}]
        case Words():
            yield {"type": "model_output"}, [{"type": "text", "text": piece} for piece in part.pieces]
        case Call():
            step = {"type": "function_call", "id": part.id, "name": part.name, "arguments": {}}
            yield step, [{"type": "arguments_delta", "arguments": piece} for piece in part.pieces]
        case Hosted():
            queries = {"queries": ["x"]}
            delta = {"type": "google_search_call", "arguments": queries, "signature": "c2ln"}
            yield {"type": "google_search_call", "id": part.id, "arguments": {}}, [delta]
            yield {"type": "google_search_result", "call_id": part.id, "result": [{"title": "found"}]}, []


Writer = Callable[[Answer, Random], Any]

STREAMS: dict[str, Writer] = {
    "anthropic": anthropic, "bedrock": bedrock, "cohere": cohere, "gemini": gemini, "mistral": mistral,
    "gemini-interactions": gemini_interactions,
    "ollama": ollama, "openai-chat": openai_chat, "openai-responses": openai_responses,
}  # fmt: skip
WIRES = sorted(STREAMS)
