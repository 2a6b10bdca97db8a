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


def said(*ids: str, name: str = "look", arguments: Any = "{}", **fields: Any) -> Json:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def got(id: str, content: Any = "sunny") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def chat(*messages: Json, **fields: Any) -> Json:
    declared = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    return {"model": "m", "messages": list(messages), "tools": declared, **fields}


PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
ORPHAN = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
UNANSWERED = "must be followed by tool messages responding to each 'tool_call_id'"
CHAT_BAD = [
    ("a call without its result", chat(U, said("a", "b"), got("a"), U), f"{UNANSWERED}*not have response messages: b"),
    ("a call at the end", chat(U, said("a")), UNANSWERED),
    ("a result without its call", chat(U, got("a")), ORPHAN),
    ("a result of another call", chat(U, said("a"), got("b")), "'tool_call_id' of 'b' not found in 'tool_calls' of"),
    ("a late result", chat(U, said("a"), U, got("a")), UNANSWERED),
    ("two results for one call", chat(U, said("a"), got("a"), got("a")), "Duplicate value for 'tool_call_id' of a"),
    ("two calls of one id", chat(U, said("a", "a"), got("a")), "Duplicate value for 'tool_call_id' of a"),
    ("a long id", chat(U, said("a" * 41), got("a" * 41)), "string too long. Expected a string with maximum length 40"),
    ("an empty id", chat(U, said(""), got("")), "'messages[1].tool_calls[0].id': empty string"),
    ("a name with control tokens", chat(U, said("a", name="look<|x|>"), got("a")), "does not match pattern"),
    ("arguments as an object", chat(U, said("a", arguments={}), got("a")), "expected a string, but got an object"),
    ("nothing said", chat(U, {"role": "assistant", "content": None}, U), "'content': expected a string, got null"),
    ("no parts", chat({"role": "user", "content": []}), "Invalid 'messages[0].content': empty array"),
    ("no calls", chat(U, {**A, "tool_calls": []}, U), "Invalid 'messages[1].tool_calls': empty array"),
    ("a picture from a tool", chat(U, said("a"), got("a", PICTURE)), "Image URLs are only allowed for messages with"),
    ("a thought", chat(U, {**A, "content": [{"type": "thinking", "thinking": "?"}]}, U), "Invalid value: 'thinking'"),
    ("no messages", chat(), "Invalid 'messages': empty array"),
    ("a choice without tools", chat(U, tools=None, tool_choice="auto"), "only allowed when 'tools' are specified"),
    ("a role of others", chat({"role": "model", "content": "Go."}), "Invalid value: 'model'"),
]
CHAT_GOOD = [
    chat({"role": "developer", "content": "Be brief."}, U, said("a", "b"), got("b"), got("a", ""), said("a"), got("a"),
         A, U, {"role": "system", "content": "Hurry."}),
    chat(U, said("a", arguments="{broken"), got("a"), U),
    chat({"role": "user", "content": [{"type": "text", "text": ""}, *PICTURE]}, A, A, U, U, tools=None),
]  # fmt: skip
SOUND = [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]
CHAT_GOOD.append(chat({"role": "user", "content": SOUND}))
ORDER = "Unexpected role '{}' after role '{}'"
MISTRAL_BAD = [
    ("a call without its result", chat(U, said("a" * 9, "b" * 9), got("a" * 9)), "Not the same number of function"),
    ("a result without its call", chat(U, got("a" * 9)), ORDER.format("tool", "user")),
    ("a result of another call", chat(U, said("a" * 9), got("b" * 9)), "Unexpected tool call id bbbbbbbbb in tool"),
    ("two results", chat(U, said("a" * 9), got("a" * 9), got("a" * 9)), "Duplicate tool call id aaaaaaaaa in tool"),
    ("two calls of one id", chat(U, said("a" * 9, "a" * 9), got("a" * 9)), "Duplicate tool call id aaaaaaaaa in"),
    ("a foreign id", chat(U, said("call_1"), got("call_1")), "Tool call id was call_1 but must be a-z, A-Z, 0-9, with"),
    ("a user after a tool", chat(U, said("a" * 9), got("a" * 9), U), ORDER.format("user", "tool")),
    ("a system late", chat(U, said("a" * 9), got("a" * 9), S), "'system' after"),
    ("the model last", chat(U, A), "Expected last role User or Tool (or Assistant with prefix True) for serving"),
    ("nothing said", chat(U, {"role": "assistant", "content": ""}, U), "must have either content or tool_calls"),
    ("a name with spaces", chat(U, said("a" * 9, name="a b"), got("a" * 9)), "Function name was a b but must be a-z"),
    ("a field of others", chat(U, {**A, "reasoning_content": "?"}, U), "Extra inputs are not permitted"),
    ("a signature", chat(U, {**A, "refusal": "No."}, U), "Extra inputs are not permitted"),
    ("no messages", chat(), "Conversation must have at least one message"),
]
MISTRAL_GOOD = [
    chat({"role": "system", "content": "."}, U, U, said("a" * 9, "b" * 9, content="Let me look."), got("b" * 9),
         got("a" * 9), said("a" * 9), {**got("a" * 9), "name": "look"}, A, U),
    chat(U, {**A, "prefix": True}),
    chat(U, {**A, "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "?"}]}]}, U),
]  # fmt: skip
COHERE_BAD = [
    ("a call without its result", chat(U, said("a", "b"), got("a"), U), "tool call 'b' must be followed by a tool"),
    ("a result without its call", chat(U, got("a")), "tool_call_id 'a' does not follow"),
    ("a late result", chat(U, said("a"), U, got("a")), "tool call 'a' must be followed"),
    ("no words", chat({"role": "user", "content": ""}), "message must be at least 1 token long"),
    ("nothing said", chat(U, {"role": "assistant"}, U), "must have content or tool calls"),
    ("a picture from a tool", chat(U, said("a"), got("a", PICTURE)), "'image_url' is not supported for the role"),
    ("arguments as an object", chat(U, said("a", arguments={}), got("a")), "arguments of a tool call must be a string"),
]
COHERE_GOOD = [chat(U, said("a", "b"), got("b"), got("a"), said("a", tool_plan="Then."), got("a"), A, U)]
OLLAMA_BAD = [
    ("no model", {"messages": [U]}, "model is required"),
    ("arguments as text", chat(U, said("a"), got("a")), "cannot unmarshal string into Go struct field"),
    ("parts", chat({"role": "user", "content": PICTURE}), "cannot unmarshal array into Go struct field"),
    ("no base64", chat({**U, "images": ["https://x.org/a.png"]}), "illegal base64 data at input byte"),
]
OLLAMA_GOOD = [chat(U, said("a", arguments={}), U, got("b"), A), chat({**U, "images": ["AAAA"]}), {"model": "m"}]

# Anthropic.


def anthropic(*messages: Json, **fields: Any) -> Json:
    declared = [{"name": "look", "input_schema": SCHEMA}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": list(messages), "tools": declared, **fields}


def ours(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def its(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def uses(id: str, **fields: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": "look", "input": {}, **fields}


def gives(id: str, **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": "sunny", **fields}


def thinks(signature: str = CLAUDES, **fields: Any) -> Json:
    return {"type": "thinking", "thinking": "Hm.", "signature": signature, **fields}


def searches(id: str = "srvtoolu_1", **fields: Any) -> Json:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "Rome"}, **fields}


def finds(id: str = "srvtoolu_1", **fields: Any) -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": [], **fields}


WORDS = {"type": "text", "text": "Go."}
WEBP = {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AAAA"}}
ENCRYPTED = {"type": "redacted_thinking", "data": CLAUDES}
LOST = "`tool_use` ids were found without `tool_result` blocks immediately after: "
STRAY = "unexpected `tool_use_id` found in `tool_result` blocks: "
UNFOUND = "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block"
UNSOUGHT = (
    "unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1*`server_tool_use` block before"
)
NON_EMPTY = "all messages must have non-empty content except for the optional final assistant message"
ANTHROPIC_BAD = [
    ("a call without its result", anthropic(U, its(uses("a"), uses("b")), ours(gives("a"))), f"messages.1: {LOST}b"),
    ("a call at the end", anthropic(U, its(uses("a"))), f"messages.1: {LOST}a"),
    ("a result without its call", anthropic(ours(gives("a"))), f"messages.0.content.0: {STRAY}a"),
    ("a late result", anthropic(U, its(uses("a")), U, its(WORDS), ours(gives("a"))), f"{LOST}a"),
    ("words before a result", anthropic(U, its(uses("a")), ours(WORDS, gives("a"))), f"{LOST}a"),
    (
        "words among results",
        anthropic(U, its(uses("a"), uses("b")), ours(gives("a"), WORDS), ours(gives("b"))),
        f"{LOST}b",
    ),
    ("two results", anthropic(U, its(uses("a")), ours(gives("a"), gives("a"))), "each tool_use must have a single"),
    ("two calls of one id", anthropic(U, its(uses("a"), uses("a")), ours(gives("a"))), "`tool_use` ids must be unique"),
    ("an id again", anthropic(U, its(uses("a")), ours(gives("a")), its(uses("a")), ours(gives("a"))), "must be unique"),
    ("an odd id", anthropic(U, its(uses("a:1")), ours(gives("a:1"))), "id: String should match pattern"),
    ("no tools", anthropic(U, its(uses("a")), ours(gives("a")), tools=[]), "must define tools"),
    ("the model first", anthropic(its(WORDS), U), 'first message must use the "user" role'),
    ("the model last", anthropic(U, its(WORDS), model="claude-opus-4-6"), "does not support assistant message prefill"),
    ("a thought last", anthropic(U, its(thinks())), "The final block in an assistant message cannot be `thinking`"),
    ("white space last", anthropic(U, its({"type": "text", "text": "So "})), "cannot end with trailing whitespace"),
    ("an empty text", anthropic(U, its({"type": "text", "text": ""}), U), "text content blocks must be non-empty"),
    ("a blank text", anthropic(U, its({"type": "text", "text": " \n"}), U), "must contain non-whitespace text"),
    ("an empty message", anthropic({"role": "user", "content": ""}), "user messages must have non-empty content"),
    ("an empty answer", anthropic(U, its(), U), f"messages.1: {NON_EMPTY}"),
    ("an empty error", anthropic(U, its(uses("a")), ours(gives("a", is_error=True, content=""))), "content cannot be"),
    ("a search without its result", anthropic(U, its(WORDS, searches()), U), f"messages.1: {UNFOUND}"),
    (
        "a search that was left for a call",
        anthropic(U, its(searches(), uses("a")), ours(gives("a"), WORDS)),
        f"messages.1: {UNFOUND}",
    ),
    (
        "an MCP call without its result",
        anthropic(U, its({**searches("m"), "type": "mcp_tool_use"}), U),
        "with id `m` was found without",
    ),
    ("a search's result alone", anthropic(U, its(finds(), WORDS), U), f"messages.1.content.0: {UNSOUGHT}"),
    ("arguments as text", anthropic(U, its(uses("a", input="{}")), ours(gives("a"))), "Input should be a valid"),
    ("a system message", anthropic(U, S), "accepts a top-level `system` parameter"),
    ("a late system message", anthropic(U, S, U, model="claude-opus-4-8"), "role 'system' must precede an 'assistant'"),
    ("a tool message", anthropic(U, {"role": "tool", "content": "."}), "messages.1.role: Input should be 'user' or"),
    ("no length", {"model": "claude", "messages": [U]}, "max_tokens: Field required"),
    ("no messages", anthropic(), "messages: at least one message is required"),
    ("an unsigned thought", anthropic(U, its({"type": "thinking", "thinking": "Hm."}, WORDS), U), "signature: Field"),
    ("a foreign signature", anthropic(U, its(thinks(GEMINIS), WORDS), U), "Invalid `signature` in `thinking` block"),
    ("another signature", anthropic(U, its(thinks(CLAUDES[:-9] + "x" + CLAUDES[-8:]), WORDS), U), "Invalid `signatur"),
    ("an altered secret", anthropic(U, its({**ENCRYPTED, "data": "Eq"}, WORDS), U), "Invalid `data` in"),
    ("a misplaced signature", anthropic(U, its({**WORDS, "signature": CLAUDES}), U), "text.signature: Extra inputs"),
    ("a thought of the user", anthropic(ours(thinks(), WORDS)), "can only be in `assistant` messages"),
    ("a picture it cannot read", anthropic(ours(WEBP)), "media_type: Input should be 'image/jpeg', 'image/png'"),
    ("another vendor's block", anthropic(ours(*PICTURE)), "Input tag 'image_url' found using 'type'"),
    ("an odd tool", anthropic(U, tools=[{"name": "a b", "input_schema": SCHEMA}]), "tools.0.custom.name: String"),
    ("a choice of schemas", anthropic(U, tools=[{"name": "a", "input_schema": {**SCHEMA, "anyOf": []}}]), "does not"),
]
ANTHROPIC_GOOD = [
    anthropic(U, its(thinks(), WORDS, uses("a"), uses("b")), ours(gives("b"), gives("a", content=""), WORDS),
              its(uses("c")), ours(gives("c", content=[WORDS], is_error=True)), its(WORDS), U, system="Be brief."),
    anthropic(U, its(uses("a"), uses("b")), ours(gives("b")), ours(gives("a"), WORDS)),
    anthropic(U, U, its(thinks(thinking="")), U, {"role": "assistant", "content": ""}),
    anthropic(U, its(searches(), finds(), WORDS), U, its(WORDS, searches("b")), its(finds("b"), WORDS), U),
    anthropic(U, its(searches())),
    anthropic(U, its(searches(), uses("a")), ours(gives("a")), its(uses("b")), ours(gives("b"))),
    anthropic(U, its(searches(), uses("a")), ours(gives("a")), its(finds(), WORDS), U),
    anthropic(U, its(ENCRYPTED, uses("a")), ours(gives("a")), tools=[{"type": "web_search_20250305", "name": "w"}]),
    anthropic(U, its(WORDS)),
    anthropic(U, its(uses("a")), ours(gives("a")), S, its(WORDS), U, S, model="claude-opus-4-8"),
]  # fmt: skip

# Bedrock.


def bedrock(*messages: Json, **fields: Any) -> Json:
    declared = [{"toolSpec": {"name": "look", "inputSchema": {"json": SCHEMA}}}]
    return {"messages": list(messages), "toolConfig": {"tools": declared}, **fields}


def use(id: str, **fields: Any) -> Json:
    return {"toolUse": {"toolUseId": id, "name": "look", "input": {}, **fields}}


def give(id: str, **fields: Any) -> Json:
    return {"toolResult": {"toolUseId": id, "content": [{"text": "sunny"}], **fields}}


def thought(**fields: Any) -> Json:
    return {"reasoningContent": {"reasoningText": {"text": "Hm.", **fields}}}


GO = ours({"text": "Go."})
SO = its({"text": "So."})
EXPECTED = "Expected toolResult blocks at messages.2.content for the following Ids: "
BEDROCK_BAD = [
    ("a call without its result", bedrock(GO, its(use("a"), use("b")), ours(give("a"))), f"{EXPECTED}b"),
    ("a call at the end", bedrock(GO, its(use("a"))), f"{EXPECTED}a"),
    ("a result without its call", bedrock(ours(give("a"))), "The number of toolResult blocks at messages.0.content"),
    ("a result of another call", bedrock(GO, its(use("a")), ours(give("b"))), f"{EXPECTED}a"),
    ("two results", bedrock(GO, its(use("a")), ours(give("a"), give("a"))), "exceeds the number of toolUse blocks"),
    ("results apart", bedrock(GO, its(use("a"), use("b")), ours(give("a")), ours(give("b"))), "must alternate"),
    ("the user twice", bedrock(GO, GO), "A conversation must alternate between user and assistant roles"),
    ("the model first", bedrock(SO, GO), "A conversation must start with a user message"),
    ("the model last", bedrock(GO, SO), "does not support assistant message prefill"),
    ("two calls of one id", bedrock(GO, its(use("a"), use("a")), ours(give("a"))), "duplicate Ids: a"),
    ("no tools", bedrock(GO, its(use("a")), ours(give("a")), toolConfig={}), "The toolConfig field must be defined"),
    ("a blank text", bedrock(ours({"text": " "})), "ContentBlock object at messages.0.content.0 is blank"),
    ("a blank result", bedrock(GO, its(use("a")), ours(give("a", content=[{"text": ""}]))), "is blank"),
    ("an empty error", bedrock(GO, its(use("a")), ours(give("a", content=[], status="error"))), "cannot be empty when"),
    ("an empty message", bedrock(GO, its(), GO), "The content field in the Message object at messages.1 is empty"),
    ("a long id", bedrock(GO, its(use("a" * 65)), ours(give("a" * 65))), "Member must have length less than or equal"),
    ("an odd name", bedrock(GO, its(use("a", name="a b")), ours(give("a"))), "regular expression pattern:"),
    ("arguments as text", bedrock(GO, its(use("a", input="{}")), ours(give("a"))), "Provide a json object for the"),
    ("an unsigned thought", bedrock(GO, its(thought(), {"text": "So."}), GO), "signature: Field required"),
    ("a foreign signature", bedrock(GO, its(thought(signature=GEMINIS), {"text": "."}), GO), "Invalid `signature` in"),
    ("an altered secret", bedrock(GO, its({"reasoningContent": {"redactedContent": "Eq"}}), GO), "Invalid `data` in"),
    ("a picture it cannot read", bedrock(ours({"image": {"format": "bmp", "source": {}}})), "[png, jpeg, gif, webp]"),
    ("a lone document", bedrock(ours({"document": {"format": "pdf", "name": "a", "source": {}}})), "A text block must"),
    ("a tool message", bedrock({"role": "tool", "content": [{"text": "."}]}), "set: [user, assistant, system]"),
]
BEDROCK_GOOD = [
    bedrock(GO, its(thought(signature=CLAUDES), use("a"), use("b:1.c")), ours(give("b:1.c"), give("a"), {"text": "?"}),
            its(use("a")), ours(give("a", status="error")), SO, GO, system=[{"text": "Be brief."}]),
    bedrock(GO, its(use("a")), ours(give("a", content=[]))),
]  # fmt: skip

# Gemini.


def gemini(*contents: Json, **fields: Any) -> Json:
    return {"contents": list(contents), "tools": [{"functionDeclarations": [{"name": "look"}]}], **fields}


def asks(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts) or [{"text": "Go."}]}


def tells(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def calls(name: str = "look", signature: str = "", **fields: Any) -> Json:
    return {"functionCall": {"name": name, **fields}, **({"thoughtSignature": signature} if signature else {})}


def responds(name: str = "look", **fields: Any) -> Json:
    return {"functionResponse": {"name": name, "response": {"output": "sunny"}, **fields}}


SIGNED = calls(signature=GEMINIS)
COUNT = "Please ensure that the number of function response parts is equal to the number of function call parts"
AFTER_CALL = "Please ensure that function response turn comes immediately after a function call turn"
AFTER_USER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn"
)
GEMINI_BAD = [
    ("a call without its result", gemini(asks(), tells(SIGNED, calls()), asks(responds())), COUNT),
    ("a call at the end", gemini(asks(), tells(SIGNED)), COUNT),
    ("words in place of a result", gemini(asks(), tells(SIGNED), asks(), asks(responds())), COUNT),
    ("two results", gemini(asks(), tells(SIGNED), asks(responds(), responds())), COUNT),
    ("results in two contents", gemini(asks(), tells(SIGNED, calls()), asks(responds()), asks(responds())), COUNT),
    ("a result without its call", gemini(asks(responds())), AFTER_CALL),
    ("a late result", gemini(asks(), tells({"text": "So."}), asks(responds())), AFTER_CALL),
    ("a call first", gemini(tells(SIGNED), asks(responds())), AFTER_USER),
    ("a call after words", gemini(asks(), tells({"text": "So."}), tells(SIGNED), asks(responds())), AFTER_USER),
    ("the model alone", gemini(tells({"text": "So."})), "Please ensure that single turn requests end with a user role"),
    ("another name", gemini(asks(), tells(SIGNED), asks(responds("see"))), "Request contains an invalid argument"),
    ("no name", gemini(asks(), tells(SIGNED), asks(responds(""))), "function_response.name: Name cannot be empty"),
    ("no parts", gemini({"role": "user", "parts": []}), "contents.parts must not be empty"),
    ("an empty part", gemini(asks({"thought": True})), "required oneof field 'data' must have one initialized field"),
    ("no contents", gemini(), "contents is not specified"),
    ("a system content", gemini({"role": "system", "parts": [{"text": "."}]}), "Please use a valid role: user, model"),
    ("arguments as text", gemini(asks(), tells(calls(signature=GEMINIS, args="{}")), asks(responds())), "call.args"),
    ("a result as text", gemini(asks(), tells(SIGNED), asks(responds(response="sunny"))), "function_response.response"),
    ("an unsigned call", gemini(asks(), tells(calls()), asks(responds())), "missing a thought_signature*position 2"),
    ("a late signature", gemini(asks(), tells(calls(), SIGNED), asks(responds(), responds())), "missing a thought"),
    ("a foreign signature", gemini(asks(), tells(calls(signature=CLAUDES)), asks(responds())), "Corrupted thought"),
    ("another signature", gemini(asks(), tells({"text": ".", "thoughtSignature": GEMINIS[:-1]}), asks()), "Corrupted"),
    ("an odd tool", gemini(asks(), tools=[{"functionDeclarations": [{"name": "1a"}]}]), "Invalid function name. Must"),
    ("an office file", gemini(asks({"inlineData": {"mimeType": "application/msword"}})), "Unsupported MIME type"),
]
GEMINI_GOOD = [
    gemini(asks(), tells({"text": "?", "thought": True}, SIGNED, calls("see")), asks(responds("see"), responds()),
           tells(calls(signature="skip_thought_signature_validator")), asks(responds()), tells({"text": "."}), asks()),
    gemini(asks(), tells(calls()), asks(responds()), tells({"text": "", "thoughtSignature": GEMINIS}), asks()),
    gemini(asks(), asks(), tells({"text": "So."}), tells({"text": "?"}), {"parts": [{"text": "Go."}]}),
]  # fmt: skip

# Responses.


def responses(*items: Json, **fields: Any) -> Json:
    return {"model": "gpt-5", "input": list(items), "store": False, **fields}


def calling(call_id: str, **fields: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **fields}


def output(id: str, **fields: Any) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": "sunny", **fields}


def reasoning(id: str = "rs_1", secret: str | None = OPENAIS) -> Json:
    secrets = {} if secret is None else {"encrypted_content": secret}
    return {"type": "reasoning", "id": id, "summary": [], **secrets}


def clicks(kind: str = "computer_call", id: str = "c") -> Json:
    return {"type": kind, "id": f"cu_{id}", "call_id": id, "action": {}, "status": "completed"}


def shows(kind: str = "computer_call", id: str = "c") -> Json:
    return {"type": f"{kind}_output", "call_id": id, "output": {}}


HOSTED = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
ALONE = "of type 'reasoning' was provided without its required following item"
RESPONSES_BAD = [
    ("a call without its result", responses(U, calling("a"), calling("b"), output("a")), "No tool output found for"),
    ("a result without its call", responses(U, output("a")), "No tool call found for function call output with"),
    ("a result before its call", responses(U, output("a"), calling("a")), "No tool call found for function call"),
    *(
        (f"a {kind} without its output", responses(U, clicks(kind), U), f"No tool output found for {words} c.")
        for kind in HOSTED
        for words in [kind.replace("_", " ")]
    ),
    ("an open computer call", responses(U, clicks()), "No tool output found for computer call c."),
    ("an output alone", responses(U, shows(), A), "No tool call found for computer call output with call_id c."),
    ("a lone reasoning", responses(U, reasoning(), U), f"Item 'rs_1' {ALONE}"),
    ("a reasoning at the end", responses(U, reasoning()), ALONE),
    ("a reasoning before a result", responses(U, calling("a"), reasoning(), output("a")), ALONE),
    (
        "a foreign secret",
        responses(U, reasoning(secret=CLAUDES), A),
        f"encrypted content {CLAUDES[:4]}...{CLAUDES[-4:]}",
    ),
    ("an altered secret", responses(U, reasoning(secret=OPENAIS + "x"), A), "could not be verified"),
    ("a forgotten item", responses(U, reasoning(secret=None), A), "404 Item with id 'rs_1' not found. Items are not"),
    ("an item twice", responses(U, reasoning(), reasoning(), A), "Duplicate item found with id rs_1"),
    ("a foreign id", responses(U, calling("a", id="toolu_1"), output("a")), "Expected an ID that begins with 'fc'"),
    ("a long id", responses(U, calling("a" * 65), output("a" * 65)), "maximum length 64, but got a string with length"),
    ("arguments as an object", responses(U, calling("a", arguments={}), output("a")), "expected a string, but got an"),
    ("an odd name", responses(U, calling("a", name="a.b"), output("a")), "'input[1].name': string does not match"),
    ("words of the wrong kind", responses({**A, "content": [{"type": "input_text", "text": "."}]}), "'input_text'"),
    ("sound", responses({**U, "content": [{"type": "input_audio"}]}), "Invalid value: 'input_audio'"),
    ("a null", responses(U, calling("a", status=None), output("a")), "input[1].status"),
    ("no input", {"model": "gpt-5"}, 'One of "input" or'),
]
RESPONSES_GOOD = [
    responses(U, reasoning(), calling("a"), calling("b"), output("b"), output("a"), reasoning("rs_2"),
              calling("a", id="fc_1", status="completed"), output("a"), A, U, instructions="Be brief."),
    responses(output("a"), previous_response_id="resp_1"),
    responses(shows(), previous_response_id="resp_1"),
    responses(U, *(item for kind in HOSTED for item in (clicks(kind, kind), shows(kind, kind))), A, U),
    responses(U, calling("a"), U, output("a")),
    {"model": "gpt-5", "input": "Go."},
]  # fmt: skip

BAD = {
    "anthropic": ANTHROPIC_BAD, "bedrock": BEDROCK_BAD, "cohere": COHERE_BAD, "gemini": GEMINI_BAD,
    "mistral": MISTRAL_BAD, "ollama": OLLAMA_BAD, "openai-chat": CHAT_BAD, "openai-responses": RESPONSES_BAD,
}  # fmt: skip
GOOD = {
    "anthropic": ANTHROPIC_GOOD, "bedrock": BEDROCK_GOOD, "cohere": COHERE_GOOD, "gemini": GEMINI_GOOD,
    "mistral": MISTRAL_GOOD, "ollama": OLLAMA_GOOD, "openai-chat": CHAT_GOOD, "openai-responses": RESPONSES_GOOD,
}  # fmt: skip
