"""Tool calls with litellm, which has no loop of its own: the loop of its documentation.

    python -m tests.vendor_loops.litellm_loop WIRE BASE_URL [WIRE BASE_URL …]

A process of its own, because litellm is slow to import and leaves connections open.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it downloads a list of prices

MODELS = {"openai-chat": "openai/gpt-5", "anthropic": "anthropic/claude-sonnet-5", "gemini": "gemini/gemini-3-pro"}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def run(model: str, base_url: str, *, stream: bool) -> str:
    import litellm

    messages: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    while True:
        options: Any = {"api_base": base_url, "api_key": "-", "stream": stream, "max_retries": 0}
        response: Any = litellm.completion(model=model, messages=messages, tools=[TOOL], **options)
        if stream:
            response = litellm.stream_chunk_builder(list(response), messages=messages)
        message = response.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            result = {
                "role": "tool",
                "tool_call_id": call.id,
                "name": call.function.name,
                "content": f"sunny in {city}",
            }
            messages.append(result)


if __name__ == "__main__":
    for wire, url in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        for is_streaming in (False, True):
            sys.stdout.write(run(MODELS[wire], url, stream=is_streaming) + "\n")
