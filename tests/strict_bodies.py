"""Requests that the real providers accept, and requests that they reject, with a part of the error message.

A `*` stands for words that are left out.
"""

from __future__ import annotations

from typing import Any

from penstock.testing.wires.signatures import CLAUDE, GEMINI, OPENAI, sign

Json = dict[str, Any]

CLAUDES, GEMINIS, OPENAIS = (sign(prefix + "made/here+" * 8) for prefix in (CLAUDE, GEMINI, OPENAI))
SCHEMA = {"type": "object", "properties": {}}


# Chat Completions, and Mistral's.

U: Json = {"role": "user", "content": "Go."}
S: Json = {"role": "system", "content": "Be brief."}
A: Json = {"role": "assistant", "content": "Done."}


def calls(*ids: str, name: str = "look", arguments: Any = "{}", **fields: Any) -> Json:
    function = {"name": name, "arguments": arguments}
    model_call = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": model_call, **fields}


def result(id: str, content: Any = "sunny") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def chat(*messages: Json, **fields: Any) -> Json:
    declared = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    return {"model": "m", "messages": list(messages), "tools": declared, **fields}


PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
ORPHAN = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
UNANSWERED = "must be followed by tool messages responding to each 'tool_call_id'"
CHAT_BAD = [
    (
        "a call without its result",
        chat(U, calls("a", "b"), result("a"), U),
        f"{UNANSWERED}*not have response messages: b",
    ),
    ("a call at the end", chat(U, calls("a")), UNANSWERED),
    ("a result without its call", chat(U, result("a")), ORPHAN),
    (
        "a result of another call",
        chat(U, calls("a"), result("b")),
        "'tool_call_id' of 'b' not found in 'tool_calls' of",
    ),
    ("a late result", chat(U, calls("a"), U, result("a")), UNANSWERED),
    (
        "two results for one call",
        chat(U, calls("a"), result("a"), result("a")),
        "Duplicate value for 'tool_call_id' of a",
    ),
    ("two calls of one id", chat(U, calls("a", "a"), result("a")), "Duplicate value for 'tool_call_id' of a"),
    (
        "a long id",
        chat(U, calls("a" * 41), result("a" * 41)),
        "string too long. Expected a string with maximum length 40",
    ),
    ("an empty id", chat(U, calls(""), result("")), "'messages[1].tool_calls[0].id': empty string"),
    ("a name with control tokens", chat(U, calls("a", name="look<|x|>"), result("a")), "does not match pattern"),
    ("arguments as an object", chat(U, calls("a", arguments={}), result("a")), "expected a string, but got an object"),
    ("nothing said", chat(U, {"role": "assistant", "content": None}, U), "'content': expected a string, got null"),
    ("no parts", chat({"role": "user", "content": []}), "Invalid 'messages[0].content': empty array"),
    ("no calls", chat(U, {**A, "tool_calls": []}, U), "Invalid 'messages[1].tool_calls': empty array"),
    (
        "a picture from a tool",
        chat(U, calls("a"), result("a", PICTURE)),
        "Image URLs are only allowed for messages with",
    ),
    ("a thought", chat(U, {**A, "content": [{"type": "thinking", "thinking": "?"}]}, U), "Invalid value: 'thinking'"),
    ("no messages", chat(), "Invalid 'messages': empty array"),
    ("a choice without tools", chat(U, tools=None, tool_choice="auto"), "only allowed when 'tools' are specified"),
    ("a role of others", chat({"role": "model", "content": "Go."}), "Invalid value: 'model'"),
]
CHAT_GOOD = [
    chat(
        {"role": "developer", "content": "Be brief."},
        U,
        calls("a", "b"),
        result("b"),
        result("a", ""),
        calls("a"),
        result("a"),
        A,
        U,
        {"role": "system", "content": "Hurry."},
    ),
    chat(U, calls("a", arguments="{broken"), result("a"), U),
    chat({"role": "user", "content": [{"type": "text", "text": ""}, *PICTURE]}, A, A, U, U, tools=None),
]
SOUND = [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]
CHAT_GOOD.append(chat({"role": "user", "content": SOUND}))
ORDER = "Unexpected role '{}' after role '{}'"
MISTRAL_BAD = [
    ("a call without its result", chat(U, calls("a" * 9, "b" * 9), result("a" * 9)), "Not the same number of function"),
    ("a result without its call", chat(U, result("a" * 9)), ORDER.format("tool", "user")),
    ("a result of another call", chat(U, calls("a" * 9), result("b" * 9)), "Unexpected tool call id bbbbbbbbb in tool"),
    (
        "two results",
        chat(U, calls("a" * 9), result("a" * 9), result("a" * 9)),
        "Duplicate tool call id aaaaaaaaa in tool",
    ),
    ("two calls of one id", chat(U, calls("a" * 9, "a" * 9), result("a" * 9)), "Duplicate tool call id aaaaaaaaa in"),
    (
        "a foreign id",
        chat(U, calls("call_1"), result("call_1")),
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with",
    ),
    ("a user after a tool", chat(U, calls("a" * 9), result("a" * 9), U), ORDER.format("user", "tool")),
    ("a system late", chat(U, calls("a" * 9), result("a" * 9), S), "'system' after"),
    ("the model last", chat(U, A), "Expected last role User or Tool (or Assistant with prefix True) for serving"),
    ("nothing said", chat(U, {"role": "assistant", "content": ""}, U), "must have either content or tool_calls"),
    (
        "a name with spaces",
        chat(U, calls("a" * 9, name="a b"), result("a" * 9)),
        "Function name was a b but must be a-z",
    ),
    ("a field of others", chat(U, {**A, "reasoning_content": "?"}, U), "Extra inputs are not permitted"),
    ("a signature", chat(U, {**A, "refusal": "No."}, U), "Extra inputs are not permitted"),
    ("no messages", chat(), "Conversation must have at least one message"),
]
MISTRAL_GOOD = [
    chat(
        {"role": "system", "content": "."},
        U,
        U,
        calls("a" * 9, "b" * 9, content="Let me look."),
        result("b" * 9),
        result("a" * 9),
        calls("a" * 9),
        {**result("a" * 9), "name": "look"},
        A,
        U,
    ),
    chat(U, {**A, "prefix": True}),
    chat(U, {**A, "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "?"}]}]}, U),
]
COHERE_BAD = [
    ("a call without its result", chat(U, calls("a", "b"), result("a"), U), "tool call 'b' must be followed by a tool"),
    ("a result without its call", chat(U, result("a")), "tool_call_id 'a' does not follow"),
    ("a late result", chat(U, calls("a"), U, result("a")), "tool call 'a' must be followed"),
    ("no words", chat({"role": "user", "content": ""}), "message must be at least 1 token long"),
    ("nothing said", chat(U, {"role": "assistant"}, U), "must have content or tool calls"),
    ("a picture from a tool", chat(U, calls("a"), result("a", PICTURE)), "'image_url' is not supported for the role"),
    (
        "arguments as an object",
        chat(U, calls("a", arguments={}), result("a")),
        "arguments of a tool call must be a string",
    ),
]
COHERE_GOOD = [chat(U, calls("a", "b"), result("b"), result("a"), calls("a", tool_plan="Then."), result("a"), A, U)]
OLLAMA_BAD = [
    ("no model", {"messages": [U]}, "model is required"),
    ("arguments as text", chat(U, calls("a"), result("a")), "cannot unmarshal string into Go struct field"),
    ("parts", chat({"role": "user", "content": PICTURE}), "cannot unmarshal array into Go struct field"),
    ("no base64", chat({**U, "images": ["https://x.org/a.png"]}), "illegal base64 data at input byte"),
]
OLLAMA_GOOD = [chat(U, calls("a", arguments={}), U, result("b"), A), chat({**U, "images": ["AAAA"]}), {"model": "m"}]

# Anthropic.


def anthropic(*messages: Json, **fields: Any) -> Json:
    declared = [{"name": "look", "input_schema": SCHEMA}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": list(messages), "tools": declared, **fields}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def tool_use(id: str, **fields: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": "look", "input": {}, **fields}


def tool_result(id: str, **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": "sunny", **fields}


def thinking(signature: str = CLAUDES, **fields: Any) -> Json:
    return {"type": "thinking", "thinking": "Hm.", "signature": signature, **fields}


def search(id: str = "srvtoolu_1", **fields: Any) -> Json:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "Rome"}, **fields}


def search_result(id: str = "srvtoolu_1", **fields: Any) -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": [], **fields}


WORDS = {"type": "text", "text": "Go."}
WEBP = {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AAAA"}}
ENCRYPTED = {"type": "redacted_thinking", "data": CLAUDES}
LOST = "`tool_use` ids were found without `tool_result` blocks immediately after: "
STRAY = "unexpected `tool_use_id` found in `tool_result` blocks: "
NO_PAGES = "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block"
NO_SEARCH = (
    "unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1*`server_tool_use` block before"
)
NON_EMPTY = "all messages must have non-empty content except for the optional final assistant message"
ANTHROPIC_BAD = [
    (
        "a call without its result",
        anthropic(U, assistant(tool_use("a"), tool_use("b")), user(tool_result("a"))),
        f"messages.1: {LOST}b",
    ),
    ("a call at the end", anthropic(U, assistant(tool_use("a"))), f"messages.1: {LOST}a"),
    ("a result without its call", anthropic(user(tool_result("a"))), f"messages.0.content.0: {STRAY}a"),
    ("a late result", anthropic(U, assistant(tool_use("a")), U, assistant(WORDS), user(tool_result("a"))), f"{LOST}a"),
    ("words before a result", anthropic(U, assistant(tool_use("a")), user(WORDS, tool_result("a"))), f"{LOST}a"),
    (
        "words among results",
        anthropic(U, assistant(tool_use("a"), tool_use("b")), user(tool_result("a"), WORDS), user(tool_result("b"))),
        f"{LOST}b",
    ),
    (
        "two results",
        anthropic(U, assistant(tool_use("a")), user(tool_result("a"), tool_result("a"))),
        "each tool_use must have a single",
    ),
    (
        "two calls of one id",
        anthropic(U, assistant(tool_use("a"), tool_use("a")), user(tool_result("a"))),
        "`tool_use` ids must be unique",
    ),
    (
        "an id again",
        anthropic(
            U, assistant(tool_use("a")), user(tool_result("a")), assistant(tool_use("a")), user(tool_result("a"))
        ),
        "must be unique",
    ),
    (
        "an odd id",
        anthropic(U, assistant(tool_use("a:1")), user(tool_result("a:1"))),
        "id: String should match pattern",
    ),
    ("no tools", anthropic(U, assistant(tool_use("a")), user(tool_result("a")), tools=[]), "must define tools"),
    ("the model first", anthropic(assistant(WORDS), U), 'first message must use the "user" role'),
    (
        "the model last",
        anthropic(U, assistant(WORDS), model="claude-opus-4-6"),
        "does not support assistant message prefill",
    ),
    (
        "a thought last",
        anthropic(U, assistant(thinking())),
        "The final block in an assistant message cannot be `thinking`",
    ),
    (
        "white space last",
        anthropic(U, assistant({"type": "text", "text": "So "})),
        "cannot end with trailing whitespace",
    ),
    (
        "an empty text",
        anthropic(U, assistant({"type": "text", "text": ""}), U),
        "text content blocks must be non-empty",
    ),
    ("a blank text", anthropic(U, assistant({"type": "text", "text": " \n"}), U), "must contain non-whitespace text"),
    ("an empty message", anthropic({"role": "user", "content": ""}), "user messages must have non-empty content"),
    ("an empty answer", anthropic(U, assistant(), U), f"messages.1: {NON_EMPTY}"),
    (
        "an empty error",
        anthropic(U, assistant(tool_use("a")), user(tool_result("a", is_error=True, content=""))),
        "content cannot be",
    ),
    ("a search without its result", anthropic(U, assistant(WORDS, search()), U), f"messages.1: {NO_PAGES}"),
    (
        "a search that was left for a call",
        anthropic(U, assistant(search(), tool_use("a")), user(tool_result("a"), WORDS)),
        f"messages.1: {NO_PAGES}",
    ),
    (
        "an MCP call without its result",
        anthropic(U, assistant({**search("m"), "type": "mcp_tool_use"}), U),
        "with id `m` was found without",
    ),
    (
        "a search's result alone",
        anthropic(U, assistant(search_result(), WORDS), U),
        f"messages.1.content.0: {NO_SEARCH}",
    ),
    (
        "arguments as text",
        anthropic(U, assistant(tool_use("a", input="{}")), user(tool_result("a"))),
        "Input should be a valid",
    ),
    ("a system message", anthropic(U, S), "accepts a top-level `system` parameter"),
    ("a late system message", anthropic(U, S, U, model="claude-opus-4-8"), "role 'system' must precede an 'assistant'"),
    ("a tool message", anthropic(U, {"role": "tool", "content": "."}), "messages.1.role: Input should be 'user' or"),
    ("no length", {"model": "claude", "messages": [U]}, "max_tokens: Field required"),
    ("no messages", anthropic(), "messages: at least one message is required"),
    (
        "an unsigned thought",
        anthropic(U, assistant({"type": "thinking", "thinking": "Hm."}, WORDS), U),
        "signature: Field",
    ),
    (
        "a foreign signature",
        anthropic(U, assistant(thinking(GEMINIS), WORDS), U),
        "Invalid `signature` in `thinking` block",
    ),
    (
        "another signature",
        anthropic(U, assistant(thinking(CLAUDES[:-9] + "x" + CLAUDES[-8:]), WORDS), U),
        "Invalid `signatur",
    ),
    ("an altered secret", anthropic(U, assistant({**ENCRYPTED, "data": "Eq"}, WORDS), U), "Invalid `data` in"),
    (
        "a misplaced signature",
        anthropic(U, assistant({**WORDS, "signature": CLAUDES}), U),
        "text.signature: Extra inputs",
    ),
    ("a thought of the user", anthropic(user(thinking(), WORDS)), "can only be in `assistant` messages"),
    ("a picture it cannot read", anthropic(user(WEBP)), "media_type: Input should be 'image/jpeg', 'image/png'"),
    ("another vendor's block", anthropic(user(*PICTURE)), "Input tag 'image_url' found using 'type'"),
    ("an odd tool", anthropic(U, tools=[{"name": "a b", "input_schema": SCHEMA}]), "tools.0.custom.name: String"),
    ("a choice of schemas", anthropic(U, tools=[{"name": "a", "input_schema": {**SCHEMA, "anyOf": []}}]), "does not"),
]
ANTHROPIC_GOOD = [
    anthropic(
        U,
        assistant(thinking(), WORDS, tool_use("a"), tool_use("b")),
        user(tool_result("b"), tool_result("a", content=""), WORDS),
        assistant(tool_use("c")),
        user(tool_result("c", content=[WORDS], is_error=True)),
        assistant(WORDS),
        U,
        system="Be brief.",
    ),
    anthropic(U, assistant(tool_use("a"), tool_use("b")), user(tool_result("b")), user(tool_result("a"), WORDS)),
    anthropic(U, U, assistant(thinking(thinking="")), U, {"role": "assistant", "content": ""}),
    anthropic(
        U,
        assistant(search(), search_result(), WORDS),
        U,
        assistant(WORDS, search("b")),
        assistant(search_result("b"), WORDS),
        U,
    ),
    anthropic(U, assistant(search())),
    anthropic(
        U, assistant(search(), tool_use("a")), user(tool_result("a")), assistant(tool_use("b")), user(tool_result("b"))
    ),
    anthropic(U, assistant(search(), tool_use("a")), user(tool_result("a")), assistant(search_result(), WORDS), U),
    anthropic(
        U,
        assistant(ENCRYPTED, tool_use("a")),
        user(tool_result("a")),
        tools=[{"type": "web_search_20250305", "name": "w"}],
    ),
    anthropic(U, assistant(WORDS)),
    anthropic(U, assistant(tool_use("a")), user(tool_result("a")), S, assistant(WORDS), U, S, model="claude-opus-4-8"),
]

# Bedrock.


def bedrock(*messages: Json, **fields: Any) -> Json:
    declared = [{"toolSpec": {"name": "look", "inputSchema": {"json": SCHEMA}}}]
    return {"messages": list(messages), "toolConfig": {"tools": declared}, **fields}


def converse_use(id: str, **fields: Any) -> Json:
    return {"toolUse": {"toolUseId": id, "name": "look", "input": {}, **fields}}


def converse_result(id: str, **fields: Any) -> Json:
    return {"toolResult": {"toolUseId": id, "content": [{"text": "sunny"}], **fields}}


def converse_reasoning(**fields: Any) -> Json:
    return {"reasoningContent": {"reasoningText": {"text": "Hm.", **fields}}}


GO = user({"text": "Go."})
SO = assistant({"text": "So."})
EXPECTED = "Expected toolResult blocks at messages.2.content for the following Ids: "
BEDROCK_BAD = [
    (
        "a call without its result",
        bedrock(GO, assistant(converse_use("a"), converse_use("b")), user(converse_result("a"))),
        f"{EXPECTED}b",
    ),
    ("a call at the end", bedrock(GO, assistant(converse_use("a"))), f"{EXPECTED}a"),
    (
        "a result without its call",
        bedrock(user(converse_result("a"))),
        "The number of toolResult blocks at messages.0.content",
    ),
    ("a result of another call", bedrock(GO, assistant(converse_use("a")), user(converse_result("b"))), f"{EXPECTED}a"),
    (
        "two results",
        bedrock(GO, assistant(converse_use("a")), user(converse_result("a"), converse_result("a"))),
        "exceeds the number of toolUse blocks",
    ),
    (
        "results apart",
        bedrock(
            GO, assistant(converse_use("a"), converse_use("b")), user(converse_result("a")), user(converse_result("b"))
        ),
        "must alternate",
    ),
    ("the user twice", bedrock(GO, GO), "A conversation must alternate between user and assistant roles"),
    ("the model first", bedrock(SO, GO), "A conversation must start with a user message"),
    ("the model last", bedrock(GO, SO), "does not support assistant message prefill"),
    (
        "two calls of one id",
        bedrock(GO, assistant(converse_use("a"), converse_use("a")), user(converse_result("a"))),
        "duplicate Ids: a",
    ),
    (
        "no tools",
        bedrock(GO, assistant(converse_use("a")), user(converse_result("a")), toolConfig={}),
        "The toolConfig field must be defined",
    ),
    ("a blank text", bedrock(user({"text": " "})), "ContentBlock object at messages.0.content.0 is blank"),
    (
        "a blank result",
        bedrock(GO, assistant(converse_use("a")), user(converse_result("a", content=[{"text": ""}]))),
        "is blank",
    ),
    (
        "an empty error",
        bedrock(GO, assistant(converse_use("a")), user(converse_result("a", content=[], status="error"))),
        "cannot be empty when",
    ),
    (
        "an empty message",
        bedrock(GO, assistant(), GO),
        "The content field in the Message object at messages.1 is empty",
    ),
    (
        "a long id",
        bedrock(GO, assistant(converse_use("a" * 65)), user(converse_result("a" * 65))),
        "Member must have length less than or equal",
    ),
    (
        "an odd name",
        bedrock(GO, assistant(converse_use("a", name="a b")), user(converse_result("a"))),
        "regular expression pattern:",
    ),
    (
        "arguments as text",
        bedrock(GO, assistant(converse_use("a", input="{}")), user(converse_result("a"))),
        "Provide a json object for the",
    ),
    (
        "an unsigned thought",
        bedrock(GO, assistant(converse_reasoning(), {"text": "So."}), GO),
        "signature: Field required",
    ),
    (
        "a foreign signature",
        bedrock(GO, assistant(converse_reasoning(signature=GEMINIS), {"text": "."}), GO),
        "Invalid `signature` in",
    ),
    (
        "an altered secret",
        bedrock(GO, assistant({"reasoningContent": {"redactedContent": "Eq"}}), GO),
        "Invalid `data` in",
    ),
    ("a picture it cannot read", bedrock(user({"image": {"format": "bmp", "source": {}}})), "[png, jpeg, gif, webp]"),
    ("a lone document", bedrock(user({"document": {"format": "pdf", "name": "a", "source": {}}})), "A text block must"),
    ("a tool message", bedrock({"role": "tool", "content": [{"text": "."}]}), "set: [user, assistant, system]"),
]
BEDROCK_GOOD = [
    bedrock(
        GO,
        assistant(converse_reasoning(signature=CLAUDES), converse_use("a"), converse_use("b:1.c")),
        user(converse_result("b:1.c"), converse_result("a"), {"text": "?"}),
        assistant(converse_use("a")),
        user(converse_result("a", status="error")),
        SO,
        GO,
        system=[{"text": "Be brief."}],
    ),
    bedrock(GO, assistant(converse_use("a")), user(converse_result("a", content=[]))),
]

# Gemini.


def gemini(*contents: Json, **fields: Any) -> Json:
    return {"contents": list(contents), "tools": [{"functionDeclarations": [{"name": "look"}]}], **fields}


def from_user(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts) or [{"text": "Go."}]}


def from_model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def model_call(name: str = "look", signature: str = "", **fields: Any) -> Json:
    return {"functionCall": {"name": name, **fields}, **({"thoughtSignature": signature} if signature else {})}


def response(name: str = "look", **fields: Any) -> Json:
    return {"functionResponse": {"name": name, "response": {"output": "sunny"}, **fields}}


SIGNED = model_call(signature=GEMINIS)
COUNT = "Please ensure that the number of function response parts is equal to the number of function call parts"
AFTER_CALL = "Please ensure that function response turn comes immediately after a function call turn"
AFTER_USER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn"
)
GEMINI_BAD = [
    ("a call without its result", gemini(from_user(), from_model(SIGNED, model_call()), from_user(response())), COUNT),
    ("a call at the end", gemini(from_user(), from_model(SIGNED)), COUNT),
    ("words in place of a result", gemini(from_user(), from_model(SIGNED), from_user(), from_user(response())), COUNT),
    ("two results", gemini(from_user(), from_model(SIGNED), from_user(response(), response())), COUNT),
    (
        "results in two contents",
        gemini(from_user(), from_model(SIGNED, model_call()), from_user(response()), from_user(response())),
        COUNT,
    ),
    ("a result without its call", gemini(from_user(response())), AFTER_CALL),
    ("a late result", gemini(from_user(), from_model({"text": "So."}), from_user(response())), AFTER_CALL),
    ("a call first", gemini(from_model(SIGNED), from_user(response())), AFTER_USER),
    (
        "the model alone",
        gemini(from_model({"text": "So."})),
        "Please ensure that single turn requests end with a user role",
    ),
    (
        "another name",
        gemini(from_user(), from_model(SIGNED), from_user(response("see"))),
        "Request contains an invalid argument",
    ),
    (
        "no name",
        gemini(from_user(), from_model(SIGNED), from_user(response(""))),
        "function_response.name: Name cannot be empty",
    ),
    ("no parts", gemini({"role": "user", "parts": []}), "contents.parts must not be empty"),
    (
        "an empty part",
        gemini(from_user({"thought": True})),
        "required oneof field 'data' must have one initialized field",
    ),
    ("no contents", gemini(), "contents is not specified"),
    ("a system content", gemini({"role": "system", "parts": [{"text": "."}]}), "Please use a valid role: user, model"),
    (
        "arguments as text",
        gemini(from_user(), from_model(model_call(signature=GEMINIS, args="{}")), from_user(response())),
        "call.args",
    ),
    (
        "a result as text",
        gemini(from_user(), from_model(SIGNED), from_user(response(response="sunny"))),
        "function_response.response",
    ),
    (
        "an unsigned call",
        gemini(from_user(), from_model(model_call()), from_user(response())),
        "missing a thought_signature*position 2",
    ),
    (
        "a late signature",
        gemini(from_user(), from_model(model_call(), SIGNED), from_user(response(), response())),
        "missing a thought",
    ),
    (
        "a foreign signature",
        gemini(from_user(), from_model(model_call(signature=CLAUDES)), from_user(response())),
        "Corrupted thought",
    ),
    (
        "another signature",
        gemini(from_user(), from_model({"text": ".", "thoughtSignature": GEMINIS[:-1]}), from_user()),
        "Corrupted",
    ),
    (
        "an odd tool",
        gemini(from_user(), tools=[{"functionDeclarations": [{"name": "1a"}]}]),
        "Invalid function name. Must",
    ),
    ("an office file", gemini(from_user({"inlineData": {"mimeType": "application/msword"}})), "Unsupported MIME type"),
]
GEMINI_GOOD = [
    gemini(
        from_user(),
        from_model({"text": "?", "thought": True}, SIGNED, model_call("see")),
        from_user(response("see"), response()),
        from_model(model_call(signature="skip_thought_signature_validator")),
        from_user(response()),
        from_model({"text": "."}),
        from_user(),
    ),
    gemini(
        from_user(),
        from_model(model_call()),
        from_user(response()),
        from_model({"text": "", "thoughtSignature": GEMINIS}),
        from_user(),
    ),
    gemini(
        from_user(), from_user(), from_model({"text": "So."}), from_model({"text": "?"}), {"parts": [{"text": "Go."}]}
    ),
    # One content for each chunk, as Google's own chats send them back.
    gemini(from_user(), from_model({"text": "So."}), from_model(SIGNED), from_user(response())),
]

# Interactions.


def interaction(*steps: Json, **fields: Any) -> Json:
    return {"model": "gemini-3-pro", "input": list(steps), "store": False, **fields}


ASKED: Json = {"type": "user_input", "content": [{"type": "text", "text": "Go."}]}
STEP: Json = {"type": "function_call", "id": "a", "name": "look", "arguments": {}}
DONE: Json = {"type": "function_result", "call_id": "a", "name": "look", "result": "Rain."}
THOUGHT: Json = {"type": "thought", "signature": GEMINIS}
INTERACTIONS_BAD: list[tuple[str, Json, str]] = [
    ("no model", {"input": "Go."}, "model"),
    ("no input", {"model": "m"}, "input is required"),
    ("a step that is text", {"model": "m", "input": ["Go."]}, "must be text, a list"),
    ("an unknown step", interaction({"type": "dream"}), "'dream' is not a type of step"),
    ("an empty step", interaction({"type": "user_input", "content": []}), "must not be empty"),
    ("unknown content", interaction({"type": "user_input", "content": [{"type": "smell"}]}), "'smell' is not a type"),
    ("an empty text", interaction({"type": "user_input", "content": [{"type": "text", "text": ""}]}), "not be empty"),
    ("a picture without data", interaction({"type": "image"}), "needs data or a uri"),
    ("a call without an id", interaction(ASKED, STEP | {"id": ""}), "input[1].id: is required"),
    ("arguments that are text", interaction(ASKED, STEP | {"arguments": "{}"}), "must be an object"),
    ("a result without an id", interaction(ASKED, STEP, DONE | {"call_id": ""}), "call_id: is required"),
    ("a result without content", interaction(ASKED, STEP, DONE | {"result": None}), "result: is required"),
    ("a result without a call", interaction(ASKED, DONE), "no open call with the id 'a'"),
    ("two results", interaction(ASKED, STEP, DONE, DONE), "no open call with the id 'a'"),
    ("a result of another tool", interaction(ASKED, STEP, DONE | {"name": "see"}), "is one of 'look'"),
    ("a call without a result", interaction(ASKED, STEP), "'a' has no result"),
    ("a call before the user's step", interaction(ASKED, STEP, ASKED), "'a' has no result"),
    ("two calls of one id", interaction(ASKED, STEP, DONE, STEP, DONE), "two calls have the id 'a'"),
    ("an altered signature", interaction(ASKED, {"type": "thought", "signature": "x"}), "signature is not valid"),
    ("a tool without a name", interaction(ASKED, tools=[{"type": "function", "name": "a b"}]), "tools[0].name"),
    ("an unknown level", interaction(ASKED, generation_config={"thinking_level": "max"}), "'max' is not a level"),
    ("an unknown choice", interaction(ASKED, generation_config={"tool_choice": "x"}), "'x' is not a mode"),
    ("a schema of text", interaction(ASKED, response_format={"type": "text", "schema": {}}), "needs application/json"),
    ("a keyword", interaction(ASKED, response_format={
        "type": "text", "mime_type": "application/json", "schema": {"type": "object", "not": {}},
    }), "the keyword not"),
    ("in the background", interaction(ASKED, background=True), "has to be stored"),
]  # fmt: skip
INTERACTIONS_GOOD = [
    {"model": "gemini-3-pro", "input": "Go."},
    interaction({"type": "text", "text": "Go."}, {"type": "image", "data": "AAAA", "mime_type": "image/png"}),
    interaction(ASKED, THOUGHT, STEP, STEP | {"id": "b"}, DONE, DONE | {"call_id": "b"}, THOUGHT, ASKED),
    interaction(
        ASKED,
        {"type": "google_search_call", "id": "s", "signature": GEMINIS},
        {"type": "google_search_result", "call_id": "s"},
        {"type": "model_output", "content": [{"type": "text", "text": "."}]},
    ),
    interaction(DONE, previous_interaction_id="v1_x"),
    {"agent": "deep-research", "input": "Go.", "background": True},
]

# Responses.


def responses(*items: Json, **fields: Any) -> Json:
    return {"model": "gpt-5", "input": list(items), "store": False, **fields}


def call_item(call_id: str, **fields: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **fields}


def output_item(id: str, **fields: Any) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": "sunny", **fields}


def reasoning(id: str = "rs_1", secret: str | None = OPENAIS) -> Json:
    secrets = {} if secret is None else {"encrypted_content": secret}
    return {"type": "reasoning", "id": id, "summary": [], **secrets}


OUTPUTS: dict[str, Json] = {
    "computer_call": {"output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}},
    "shell_call": {"output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    "local_shell_call": {"id": "c", "output": "a"},
    "apply_patch_call": {"status": "completed"},
}


def hosted_call(kind: str = "computer_call", id: str = "c") -> Json:
    return {"type": kind, "id": f"cu_{id}", "call_id": id, "action": {}, "status": "completed"}


def hosted_output(kind: str = "computer_call", id: str = "c") -> Json:
    return {"type": f"{kind}_output", "call_id": id, **OUTPUTS[kind]}


HOSTED = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
ALONE = "of type 'reasoning' was provided without its required following item"
RESPONSES_BAD = [
    (
        "a call without its result",
        responses(U, call_item("a"), call_item("b"), output_item("a")),
        "No tool output found for",
    ),
    ("a result without its call", responses(U, output_item("a")), "No tool call found for function call output with"),
    (
        "a result before its call",
        responses(U, output_item("a"), call_item("a")),
        "No tool call found for function call",
    ),
    *(
        (f"a {kind} without its output", responses(U, hosted_call(kind), U), f"No tool output found for {words} c.")
        for kind in HOSTED
        for words in [kind.replace("_", " ")]
    ),
    ("an open computer call", responses(U, hosted_call()), "No tool output found for computer call c."),
    (
        "an output alone",
        responses(U, hosted_output(), A),
        "No tool call found for computer call output with call_id c.",
    ),
    ("a lone reasoning", responses(U, reasoning(), U), f"Item 'rs_1' {ALONE}"),
    ("a reasoning at the end", responses(U, reasoning()), ALONE),
    ("a reasoning before a result", responses(U, call_item("a"), reasoning(), output_item("a")), ALONE),
    (
        "a foreign secret",
        responses(U, reasoning(secret=CLAUDES), A),
        f"encrypted content {CLAUDES[:4]}...{CLAUDES[-4:]}",
    ),
    ("an altered secret", responses(U, reasoning(secret=OPENAIS + "x"), A), "could not be verified"),
    ("a forgotten item", responses(U, reasoning(secret=None), A), "404 Item with id 'rs_1' not found. Items are not"),
    ("an item twice", responses(U, reasoning(), reasoning(), A), "Duplicate item found with id rs_1"),
    (
        "a foreign id",
        responses(U, call_item("a", id="toolu_1"), output_item("a")),
        "Expected an ID that begins with 'fc'",
    ),
    (
        "a long id",
        responses(U, call_item("a" * 65), output_item("a" * 65)),
        "maximum length 64, but got a string with length",
    ),
    (
        "arguments as an object",
        responses(U, call_item("a", arguments={}), output_item("a")),
        "expected a string, but got an",
    ),
    (
        "an odd name",
        responses(U, call_item("a", name="a.b"), output_item("a")),
        "'input[1].name': string does not match",
    ),
    ("words of the wrong kind", responses({**A, "content": [{"type": "input_text", "text": "."}]}), "'input_text'"),
    ("sound", responses({**U, "content": [{"type": "input_audio"}]}), "Invalid value: 'input_audio'"),
    ("a null", responses(U, call_item("a", status=None), output_item("a")), "input[1].status"),
    ("no input", {"model": "gpt-5"}, 'One of "input" or'),
]
RESPONSES_GOOD = [
    responses(
        U,
        reasoning(),
        call_item("a"),
        call_item("b"),
        output_item("b"),
        output_item("a"),
        reasoning("rs_2"),
        call_item("a", id="fc_1", status="completed"),
        output_item("a"),
        A,
        U,
        instructions="Be brief.",
    ),
    responses(output_item("a"), previous_response_id="resp_1"),
    responses(hosted_output(), previous_response_id="resp_1"),
    responses(U, *(item for kind in HOSTED for item in (hosted_call(kind, kind), hosted_output(kind, kind))), A, U),
    responses(U, call_item("a"), U, output_item("a")),
    {"model": "gpt-5", "input": "Go."},
]

BAD = {
    "anthropic": ANTHROPIC_BAD, "bedrock": BEDROCK_BAD, "cohere": COHERE_BAD, "gemini": GEMINI_BAD,
    "gemini-interactions": INTERACTIONS_BAD,
    "mistral": MISTRAL_BAD, "ollama": OLLAMA_BAD, "openai-chat": CHAT_BAD, "openai-responses": RESPONSES_BAD,
}  # fmt: skip
GOOD = {
    "anthropic": ANTHROPIC_GOOD, "bedrock": BEDROCK_GOOD, "cohere": COHERE_GOOD, "gemini": GEMINI_GOOD,
    "gemini-interactions": INTERACTIONS_GOOD,
    "mistral": MISTRAL_GOOD, "ollama": OLLAMA_GOOD, "openai-chat": CHAT_GOOD, "openai-responses": RESPONSES_GOOD,
}  # fmt: skip
