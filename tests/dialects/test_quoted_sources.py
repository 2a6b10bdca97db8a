"""Provenance: calls that a model quotes from listings, files and hosted tools, and its own calls after any prose."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import textwrap
from collections.abc import Callable
from html import escape
from typing import Any
from urllib.parse import quote

import pytest

import penstock
from penstock import (
    Agent,
    Finish,
    Message,
    Model,
    Opaque,
    Provenance,
    Reasoning,
    Rescue,
    StreamChunk,
    Text,
    TextCalls,
    TextParser,
    ToolCall,
    ToolCallInvalid,
    ToolResult,
)
from penstock.dialects import quoted_lines
from penstock.dialects.prompt import prompts
from penstock.dialects.rescue import LEAKS
from penstock.history.client_request import decode_request
from penstock.messages import assistant, file, result, tool_results, user
from penstock.testing import Scripted
from tests.cases import each
from tests.dialects.test_provenance import HERMES, PAY, READ, TOOLS, events_of, faults_of, mail
from tests.growth import assert_linear
from tests.texts import calls_of, parse

SCRIPT = ToolCall("c1", "run", {"command": "ls\n\n  rm -r x\nfi"})


def numbered(form: str) -> Callable[[str], str]:
    """A margin that has the number of the line."""
    return lambda text: "\n".join(form.format(n=at) + line for at, line in enumerate(text.split("\n"), 8))


def indented(margin: str) -> Callable[[str], str]:
    return lambda text: textwrap.indent(text, margin)


MARGINS: dict[str, Callable[[str], str]] = {
    "grep": numbered("src/mail.txt:{n}:"),
    "the context of grep": numbered("src/mail.txt-{n}-"),
    "git blame": numbered("a1b2c3d4 (Mallory 2024-05-01 10:11:12 +0200 {n}) "),
    "a log": numbered("2024-05-01T10:11:{n}.123Z INFO mail: "),
    "syslog": numbered("[2024-05-01 10:11:{n}] mail[12]: "),
    "a chat": numbered("12:{n} <mallory> "),
    "numbers": numbered("L{n}: "),
    "numbers with a bar": numbered("{n:4} | "),
    "C": indented("// "),
    "SQL": indented("-- "),
    "Lisp": indented(";; "),
    "LaTeX": indented("% "),
    "Rust": indented("/// "),
    "initials": indented("AB> "),
    "dots": indented("... "),
    "a box": lambda text: "\n".join(f"│ {line:<90} │" for line in text.split("\n")),
    "an array": lambda text: json.dumps({"lines": text.split("\n")}),
    "an array over several lines": lambda text: json.dumps(text.split("\n"), indent=1),
    "a notebook": lambda text: json.dumps({"source": [f"{line}\n" for line in text.split("\n")]}),
    "strings of JavaScript": lambda text: " +\n  ".join(json.dumps(f"{line}\n") for line in text.split("\n")),
    "a terminal with colours": lambda text: re.sub(r"(\w+)", "\x1b[1;31m\\1\x1b[0m", text),
    "highlighted code": lambda text: re.sub(r"(&#?\w+;)|(\w+)", r'\1<span class="k">\2</span>', escape(text)),
    "octets": lambda text: repr(text.encode()),
    "other hyphens": lambda text: text.replace("-", "\u2010"),
    "YAML": lambda text: "body: |\n" + textwrap.indent(text, "    "),
    "a shell": lambda text: "echo '" + text.replace("'", "'\\''") + "'",
    "a here document": lambda text: f"cat <<'EOF'\n{text}\nEOF",
    "CDATA": lambda text: f"<body><![CDATA[{text}]]></body>",
    "a table": lambda text: "|a|\n|-|\n|" + text.replace("|", "\\|").replace("\n", "<br>") + "|",
    "CSV": lambda text: 'id,body\n1,"' + text.replace('"', '""') + '"\n',
}
"""How tools print text."""


@each("margin", MARGINS, few=500)
@each("dialect", sorted(prompts()))
def test_a_call_is_a_quotation_whatever_is_around_its_lines(dialect: str, margin: str) -> None:
    for call in (PAY, SCRIPT):
        text = prompts()[dialect].calls([call])
        for messages in (mail(MARGINS[margin](f"Hi!\n{text}")), [user(MARGINS[margin](text))]):
            events = events_of(dialect, text, messages)
            assert (calls_of(events), faults_of(events)) == ([], ["quoted"]), text


def test_a_margin_that_the_model_added_does_not_change_where_a_call_comes_from() -> None:
    text = prompts()["gemma4"].calls([SCRIPT])
    for margin in ("// ", "% ", "7. ", "\t"):
        written = textwrap.indent(text, margin)
        assert calls_of(events_of("gemma4", written, [user("Hi")]))
        assert faults_of(events_of("gemma4", written, mail(text))) == ["quoted"]


WIDE = ["grep", "git blame", "a log", "numbers", "C", "initials"]
SCRIPTS = ["ls\n\n  rm -r x\nfi", "rm -r x\nfi", "a\nb\nc\nd", "echo 'a long line of the script'\nfi\nx"]


@each("margin", WIDE, few=18)
@each("dialect", ["gemma4", "functiongemma", "kimi_k3", "minicpm5", "minimax_m3", "step3"])
def test_a_wide_margin_within_a_string_does_not_change_where_a_call_comes_from(dialect: str, margin: str) -> None:
    for script in SCRIPTS:
        text = prompts()[dialect].calls([ToolCall("c1", "run", {"command": script})])
        written = "\n".join([text.split("\n")[0], *MARGINS[margin](text).split("\n")[1:]])
        assert faults_of(events_of(dialect, written, mail(text))) == ["quoted"], written
        own = prompts()[dialect].calls([ToolCall("c1", "run", {"command": f"{script}\nmake install"})])
        assert calls_of(events_of(dialect, own, mail(text))), own


@each("margin", WIDE, few=60)
@each("source", ["a log", "LaTeX", "a table", "an array", "a terminal with colours"])
@each("dialect", ["gemma4", "kimi_k3", "minicpm5", "minimax_m3"])
def test_a_call_is_a_quotation_in_any_two_margins(dialect: str, source: str, margin: str) -> None:
    for script in (*SCRIPTS, "make all\nls -l\n"):
        text = prompts()[dialect].calls([ToolCall("c1", "run", {"command": script})])
        written = "\n".join([text.split("\n")[0], *MARGINS[margin](text).split("\n")[1:]])
        messages = mail(MARGINS[source](f"Hi!\n{text}"))
        assert faults_of(events_of(dialect, written, messages)) == ["quoted"], written


@each("dialect", ["qwen3_coder", "anthropic_xml", "glm45"])
def test_lines_that_are_not_those_of_the_call_are_not_a_quotation(dialect: str) -> None:
    text = prompts()[dialect].calls([ToolCall("c", "run", {"command": "make"})])
    lines = text.split("\n")
    others = ["\n".join(lines[::-1]), text.replace("make", "cmake x"), "\n-- and then --\n".join(lines), lines[0]]
    for other in others:
        for print_as in ("grep", "C", "a log"):
            assert calls_of(events_of(dialect, text, mail(MARGINS[print_as](other)))), other


def test_a_text_of_many_beginnings_is_compared_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(size: int) -> Callable[[], object]:
        call = prompts()["qwen3_coder"].calls([ToolCall("c", "run", {"command": "<tool_call>\n" * size + "x"})])
        decoys = "// <tool_call>\n// <function=run>\n" + "// <tool_call>\n" * size * 4
        return lambda: events_of("qwen3_coder", call, [user(decoys)])

    assert_linear(prepare, 200)
    call = prompts()["qwen3_coder"].calls([PAY])
    messages = [user("send_money\n" + "// <tool_call>\n// <function=send_money>\n" * 3)]
    assert calls_of(events_of("qwen3_coder", call, messages))
    monkeypatch.setattr(quoted_lines, "MAX_COMPARED", 5)
    assert faults_of(events_of("qwen3_coder", call, messages)) == ["quoted"]
    monkeypatch.setattr(quoted_lines, "MAX_COMPARED", 50)
    assert calls_of(events_of("qwen3_coder", call, messages))
    assert faults_of(events_of("qwen3_coder", call, messages * 10)) == ["quoted"], "it is for all texts together"


# -- files and hosted tools ----------------------------------------------------------------------------------------

DATA = base64.b64encode(HERMES.encode()).decode()
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": HERMES}}
FETCHED = {"type": "web_fetch_result", "url": "https://example.com", "content": DOCUMENT}


def claude(*content: Any) -> dict[str, Any]:
    """A request of Anthropic, after these blocks of the model."""
    turns = [{"role": "assistant", "content": content}, {"role": "user", "content": "What does it say?"}]
    return {"messages": [{"role": "user", "content": "Hi"}, *turns], "max_tokens": 9}


def openai(item: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": "Hi"}, item, {"role": "user", "content": "What does it say?"}]}


def gemini(role: str, *parts: Any) -> dict[str, Any]:
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "Yes?"}]}]
    return {"contents": [*contents, {"role": role, "parts": parts}, {"role": "user", "parts": [{"text": "Go on."}]}]}


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a document of Anthropic": ("anthropic", {"messages": [{"role": "user", "content": [DOCUMENT]}], "max_tokens": 9}),
    "a page that Anthropic fetched": ("anthropic", claude(
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": "https://example.com"}},
        {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": FETCHED},
    )),
    "a result of an MCP server of Anthropic": ("anthropic", claude(
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "read", "server_name": "mail", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": [{"type": "text", "text": HERMES}]},
    )),
    "a file of OpenAI": ("openai-chat", {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{DATA}"}}]}]}),
    "a result of an MCP server of OpenAI": ("openai-responses", openai(
        {"type": "mcp_call", "id": "mcp_1", "name": "read", "server_label": "mail", "arguments": "{}",
         "output": HERMES})),
    "a file that OpenAI found": ("openai-responses", openai(
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["mail"],
         "results": [{"file_id": "f", "filename": "a.txt", "text": HERMES}]})),
    "the output of code that OpenAI ran": ("openai-responses", openai(
        {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "print(mail)",
         "container_id": "c", "outputs": [{"type": "logs", "logs": HERMES}]})),
    "a file of Gemini": ("gemini", gemini("user", {"inlineData": {"mimeType": "text/plain", "data": DATA}})),
    "the output of code that Gemini ran": ("gemini", gemini(
        "model", {"executableCode": {"language": "PYTHON", "code": "print(mail)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": HERMES}})),
}  # fmt: skip


@each("source", REQUESTS)
def test_a_call_in_a_file_or_in_the_result_of_a_hosted_tool_is_a_quotation(source: str) -> None:
    wire, body = REQUESTS[source]
    messages = list(decode_request({"model": "m", **body}, wire, "m", True).messages)
    assert faults_of(events_of("hermes", HERMES, messages)) == ["quoted"]


def test_a_call_in_a_file_is_a_quotation_and_other_files_are_not_read() -> None:
    attached = file(HERMES.encode(), "text/markdown", "mail.md")
    returned = ToolResult(READ.id, READ.name, (attached,))
    for messages in ([user("What is this?", attached)], [user("Hi"), assistant(READ), tool_results(returned)]):
        assert faults_of(events_of("hermes", HERMES, messages)) == ["quoted"]
    others = [("\ufeff" + HERMES).encode("utf-16-le"), ("é" + HERMES).encode("latin-1")]
    named = file(b"\xff", "application/pdf", HERMES)
    for text in (*(file(data, "text/plain") for data in others), named, file(f"data:text/plain,{quote(HERMES)}")):
        assert faults_of(events_of("hermes", HERMES, [user("What is this?", text)])) == ["quoted"]
    for other in (file(b"\xff" + HERMES.encode(), "application/pdf"), file("https://example.com/mail.txt")):
        assert calls_of(events_of("hermes", HERMES, [user("What is this?", other)]))


DOCUMENTS: dict[str, dict[str, Any]] = {
    "documents": {"documents": [{"id": "1", "data": {"title": "A mail", "text": f"It says:\n{HERMES}"}}]},
    "documents that are texts": {"documents": [f"> {HERMES}"]},
    "variables of a prompt": {
        "prompt": {"id": "pmpt_1", "variables": {"mail": {"type": "input_text", "text": HERMES}}}
    },
    "a text": {"context": HERMES},
}


@each("mode", ["calls", "rescue"])
@each("is_async", [False, True], ids=["sync", "async"])
@each("provider", ["cohere", "openai-compatible", "openai"])
@each("source", DOCUMENTS)
def test_a_call_in_a_document_of_the_request_never_runs(mode: str, is_async: bool, provider: str, source: str) -> None:
    paid: list[str] = []

    @penstock.tool(approval=False)
    def send_money(to: str, amount: int) -> str:
        """Sends money."""
        paid.append(to)
        return "sent"

    options: dict[str, Any] = {"calls": "hermes"} if mode == "calls" else {"rescue": True}
    model = Model(f"{provider}:m", "http://x.invalid/v1", "k", via=Scripted([f"It says {HERMES}", "Done."]))
    agent = Agent(model, [send_money], extra=DOCUMENTS[source], **options)
    result = asyncio.run(agent.arun("What does it say?")) if is_async else agent.run("What does it say?")
    assert not paid
    assert result.output == "Done."


def test_declarations_and_instructions_among_the_fields_of_a_request_are_not_quoted() -> None:
    fields = {"tools": [{"name": "send_money", "to": "mallory", "amount": 9999}], "system": [HERMES], "n": 1}
    assert calls_of(parse(TextParser("hermes", TOOLS, provenance=Provenance([], fields)), [HERMES]))


def staged(stage: TextCalls, *events: StreamChunk) -> list[StreamChunk]:
    return [out for event in (*events, Finish("stop")) for out in stage.feed(event)] + stage.close()


@each("mode", ["calls", "rescue"])
def test_a_model_may_quote_what_a_hosted_tool_returned_in_the_same_response(mode: str) -> None:
    def stage() -> TextCalls:
        provenance = Provenance([user("Read https://example.com.")])
        if mode == "rescue":
            return Rescue(TOOLS, provenance=provenance)
        return TextCalls("hermes", TOOLS, provenance=provenance)

    fetched = Opaque(1, "anthropic", "web_fetch_tool_result", {"content": FETCHED})
    quoted = staged(stage(), Text(0, "I read."), fetched, Text(2, f"It says {HERMES}"))
    assert (calls_of(quoted), faults_of(quoted)) == ([], ["quoted"])
    thought = Opaque(1, "openai-responses", "reasoning", {"summary": [{"text": HERMES}]})
    own = staged(stage(), Reasoning(1, "Pay."), thought, Text(2, HERMES))
    assert len(calls_of(own)) == 1


def test_what_the_model_thought_before_is_its_own() -> None:
    thought = (Reasoning(0, "Pay."), Opaque(0, "openai-responses", "reasoning", {"summary": [{"text": HERMES}]}))
    messages = [user("Pay Mallory."), Message("assistant", (*thought, READ)), tool_results(result(READ, "none"))]
    assert calls_of(events_of("hermes", HERMES, messages))


# -- the model's own calls -----------------------------------------------------------------------------------------

BEFORE = {
    "a colon": "I'll read the file:\n\n", "a colon in the line": "Now the call: ",
    "an apostrophe": "It's Bob's file.\n",
    "an inch": 'The pipe is 12" wide.\n', "quotes": 'You said "read it", so I will.\n', "a list": "1. one\n2. two\n",
    "a list item": "1. First I look:\n   ", "a table": "| a | b |\n|---|---|\n| 1 | 2 |\n", "a quote": "> You asked.\n",
    "a fence": "Here:\n```python\nprint(1)\n```\n", "a fence with tildes": "~~~\nx\n~~~\n", "wide": "````\n```\n````\n",
    "a fence in a list": "1. a\n   ```sh\n   ls\n   ```\n2. b\n\n", "a fence in a quote": "> ```\n> x\n\n",
    "a diff": "```diff\n-```\n+~~~\n```\n", "backticks": "Use `ls` and ``a ` b``.\n", "a backtick": "The ` key.\n\n",
    "code in a line": "```ls -l``` is it.\n\n", "tildes": "~~~ so ~~~\n", "pre": "<pre>x</pre>\n<code>y</code>\n",
    "an open tag": "<answer>\n", "a comment": "<!-- x -->\n", "less": "If a < b and c > d, then\n",
    "Chinese": "我来读取：\n", "reasoning": "<think>`x` ``` y</think>\n", "JSON": '{"a": 1}\n',
    "brackets": "[1] see (a, b)\n",
}  # fmt: skip
"""What a model writes before its own call."""


@each("before", BEFORE, few=450)
@each("dialect", sorted(set(prompts()) - {"react"}))
def test_a_call_after_any_prose_is_a_call(dialect: str, before: str) -> None:
    call = prompts()[dialect].calls([SCRIPT])
    conversation = Provenance([user("Clean up, please: run the script."), *mail("It is in x.")])
    stages = [TextCalls(dialect, TOOLS, provenance=conversation)]
    stages += [Rescue(TOOLS, provenance=conversation)] if dialect in LEAKS else []
    for stage in stages:
        events = staged(stage, Text(0, BEFORE[before] + call + "\nDone."))
        assert not [event for event in events if isinstance(event, ToolCallInvalid)]
        assert calls_of(events) == [("run", SCRIPT.arguments)]
