"""Answers as each provider sends them if they are not streamed: whole bodies."""

from __future__ import annotations

from random import Random

from tests.fuzz.answers import Answer, Call, Hosted, Words
from tests.fuzz.protocols import (
    ANTHROPIC_REASONS,
    COHERE_REASONS,
    INTERACTIONS_STATUSES,
    Frame,
    Json,
    Writer,
    anthropic_blocks,
    gemini,
    gemini_call,
    interactions_steps,
    responses_end,
    responses_item,
)


def body_of(wire: str, answer: Answer, chance: Random) -> Frame | None:
    """The body of the same answer if it is not streamed; None if this module cannot write it."""
    write = BODIES.get(wire)
    return write(answer, chance) if write is not None else None


def openai_chat_body(answer: Answer, chance: Random) -> Frame:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw or "{}"}}
        for call in answer.calls
    ]
    message: Json = {"role": "assistant", "content": answer.text("text") or None}
    message |= {"reasoning_content": answer.text("reasoning")} if answer.text("reasoning") else {}
    message |= {"refusal": answer.text("refusal")} if answer.text("refusal") else {}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "finish_reason": answer.reason}
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7}}  # fmt: skip


def anthropic_body(answer: Answer, chance: Random) -> Frame:
    content: list[Json] = []
    for part in answer.parts:
        match part:
            case Words(kind="reasoning"):
                content.append({"type": "thinking", "thinking": part.whole, "signature": "c2ln"})
            case Words():
                content.append({"type": "text", "text": part.whole})
            case Call():
                content.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments})
            case Hosted():
                content += [block for block, _ in anthropic_blocks(part)]
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": ANTHROPIC_REASONS[answer.reason], "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 7}}  # fmt: skip


def openai_responses_body(answer: Answer, chance: Random) -> Frame:
    items = [responses_item(part, index)[1] for index, part in enumerate(answer.parts)]
    response: Json = {"id": "resp_1", "object": "response", "model": "m", "output": items}
    return responses_end(response, answer)["response"]


def gemini_body(answer: Answer, chance: Random) -> Frame:
    frames = gemini(Answer([part for part in answer.parts if not isinstance(part, Call)], answer.reason), chance)
    parts = [part for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    parts += [gemini_call(call) for call in answer.calls]
    last = frames[-1]
    return {**last, "candidates": [{**last["candidates"][0], "content": {"parts": parts, "role": "model"}}]}


def cohere_body(answer: Answer, chance: Random) -> Frame:
    words = [part for part in answer.parts if isinstance(part, Words)]
    keys = ["thinking" if part.kind == "reasoning" else "text" for part in words]
    content = [{"type": key, key: part.whole} for key, part in zip(keys, words, strict=True)]
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw or "{}"}}
        for call in answer.calls
    ]
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    return {"id": "1", "message": message, "finish_reason": COHERE_REASONS[answer.reason],
            "usage": {"tokens": {"input_tokens": 5, "output_tokens": 7}}}  # fmt: skip


def bedrock_body(answer: Answer, chance: Random) -> Frame:
    content: list[Json] = []
    for part in answer.parts:
        match part:
            case Words(kind="reasoning"):
                content.append({"reasoningContent": {"reasoningText": {"text": part.whole, "signature": "c2ln"}}})
            case Words():
                content.append({"text": part.whole})
            case Call():
                content.append({"toolUse": {"toolUseId": part.id, "name": part.name, "input": part.arguments}})
            case Hosted():
                pass
    usage = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}
    return {"output": {"message": {"role": "assistant", "content": content}},
            "stopReason": ANTHROPIC_REASONS[answer.reason], "usage": usage}  # fmt: skip


def interactions_body(answer: Answer, chance: Random) -> Frame:
    steps: list[Json] = []
    for part in answer.parts:
        match part:
            case Words(kind="reasoning"):
                summary = [{"type": "text", "text": part.whole}]
                steps.append({"type": "thought", "signature": "c2ln", "summary": summary})
            case Words():
                steps.append({"type": "model_output", "content": [{"type": "text", "text": part.whole}]})
            case Call():
                step = {"type": "function_call", "id": part.id, "name": part.name, "arguments": part.arguments}
                steps.append(step)
            case Hosted():
                steps += [step | (deltas[0] if deltas else {}) for step, deltas in interactions_steps(part)]
    usage = {"total_input_tokens": 5, "total_output_tokens": 7, "total_tokens": 12}
    return {"id": "v1_1", "object": "interaction", "model": "m", "status": INTERACTIONS_STATUSES[answer.reason],
            "usage": usage, "steps": steps}  # fmt: skip


BODIES: dict[str, Writer] = {
    "anthropic": anthropic_body, "bedrock": bedrock_body, "cohere": cohere_body, "gemini": gemini_body,
    "gemini-interactions": interactions_body,
    "mistral": openai_chat_body, "openai-chat": openai_chat_body, "openai-responses": openai_responses_body,
}  # fmt: skip
