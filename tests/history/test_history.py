"""`check` finds the problems of a history, `repair` repairs them, and then `check` finds none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    File,
    Image,
    Message,
    Opaque,
    Problem,
    Reasoning,
    Text,
    ToolCall,
    ToolCallInvalid,
    ToolResult,
    UnknownProviderError,
    UsageError,
    check,
    repair,
)
from penstock.messages import assistant, image, result, system, tool_results, user
from penstock.providers import PROVIDERS, find_provider
from penstock.wires import find_encoder
from penstock.wires.shared.request import Request
from tests.cases import each
from tests.growth import assert_linear

ROME = ToolCall("call_1", "weather", {"city": "Rome"}, block=1)
OSLO = ToolCall("call_2", "weather", {"city": "Oslo"}, block=2)
CUT = ToolCallInvalid(1, "call_3", "weather", '{"city": "Ro', "cut", "ends in a string", {"city": "Ro"})
ASKED = user("Rome and Oslo?")
CALLED = assistant(Text(0, "Let me look."), ROME, OSLO)
SUNNY, RAIN = result(ROME, "sunny"), result(OSLO, "rain")
GOOD = [system("Be brief."), ASKED, CALLED, tool_results(SUNNY, RAIN), assistant("Sunny, and rain."), user("Thanks.")]
PICTURE = image(b"\x89PNG", "image/png")
SOUND = File("data:audio/wav;base64,AAAA", "audio/wav")


def kinds(*messages: Any, provider: Any = None) -> list[str]:
    return [problem.kind for problem in check(list(messages), provider)]


@each("provider", [None, *PROVIDERS])
def test_a_valid_history_has_no_problems(provider: Any) -> None:
    assert check(GOOD, provider) == []
    assert repair(GOOD, provider) == GOOD
    assert repair(GOOD, provider).changes == []
    assert check([], provider) == []


@each("provider", [None, *PROVIDERS])
def test_a_call_that_ran_with_repaired_arguments_is_sent_with_them(provider: Any) -> None:
    doubled = ToolCallInvalid(0, "call_1", "weather", '"{}"', "double_encoded", repaired={"city": "Rome"})
    messages = [ASKED, assistant(doubled), tool_results(result(doubled, "sunny"))]
    assert check(messages, provider) == []
    assert repair(messages, provider).changes == []


WRONG: dict[str, tuple[list[str], list[Message]]] = {
    "a call without a result": (["call_without_result"], [ASKED, CALLED, tool_results(SUNNY), user("And?")]),
    "a call at the end": (["call_without_result"] * 2, [ASKED, CALLED]),
    "a result without a call": (["result_without_call"], [ASKED, assistant("No."), tool_results(SUNNY)]),
    "two results": (["duplicate_result"], [ASKED, CALLED, tool_results(result(ROME, "?"), SUNNY, RAIN)]),
    "another name": (
        ["misnamed_result"], [ASKED, CALLED, tool_results(ToolResult("call_1", "wether", SUNNY.content), RAIN)]),
    "another order": (["misordered_results"], [ASKED, CALLED, tool_results(RAIN, SUNNY)]),
    "a question before the results": (
        ["results_not_after_call"] * 2, [ASKED, CALLED, user("Well?"), tool_results(SUNNY, RAIN)]),
    "words before a result": (["results_not_after_call"], [ASKED, assistant(ROME), user("Here:", SUNNY)]),
    "results in two messages": (["split_results"], [ASKED, CALLED, tool_results(SUNNY), tool_results(RAIN)]),
    "a cut call that seems to have run": (["invalid_call"], [ASKED, assistant(CUT), tool_results(result(CUT, "ok"))]),
    "a cut call without a result": (["call_without_result"], [ASKED, assistant(CUT)]),
    "one id for two calls": (
        ["repeated_id"],
        [ASKED, assistant(ROME, ToolCall("call_1", "weather", {"city": "Oslo"}, block=2)), tool_results(SUNNY, SUNNY)]),
    "no id": (
        ["empty_id"], [ASKED, assistant(ToolCall("", "now", {})), tool_results(ToolResult("", "now", SUNNY.content))]),
    "no words": (["empty_part"], [user("Hi."), assistant(Text(0, ""), Text(1, "Yes?"))]),
    "no parts": (["empty_message"], [ASKED, Message("assistant"), user("Hello?")]),
    "a call of the user's": (["misplaced_part", "call_without_result"], [user("Hi.", ROME)]),
    "two users": (["roles_do_not_alternate"], [ASKED, user("Hello?")]),
    "two answers": (["roles_do_not_alternate"], [ASKED, assistant("Rome"), assistant("is sunny.")]),
    "an answer first": (["does_not_begin_with_user"], [system("Be brief."), assistant("Hi.")]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_problems_are_found_and_repaired(name: str) -> None:
    expected, history = WRONG[name]
    assert sorted(kinds(*history)) == sorted(expected)
    repaired = repair(history)
    assert check(repaired) == []
    assert repaired.changes
    assert repair(repaired) == repaired
    assert repair(repaired).changes == []


def test_a_problem_has_its_place_and_its_providers() -> None:
    [problem] = check([ASKED, CALLED, tool_results(SUNNY)])
    assert (problem.message, problem.part, problem.where) == (1, 2, "messages[1].parts[2]")
    assert str(problem) == "messages[1].parts[2]: the call 'call_2' of 'weather' has no result (call_without_result)"
    assert {"openai", "anthropic", "google", "bedrock", "mistral"} <= set(problem.providers)
    assert "ollama" not in problem.providers


def test_with_a_provider_only_its_problems_are_reported() -> None:
    history = [ASKED, CALLED, tool_results(RAIN), tool_results(SUNNY)]
    assert kinds(*history, provider="gemini") == kinds(*history, provider="bedrock") == ["split_results"]
    assert kinds(*history, provider="openai") == kinds(*history, provider="anthropic") == []
    with pytest.raises(UnknownProviderError):
        check(history, "nobody")  # type: ignore[arg-type]


def test_a_missing_result_is_reported_and_not_invented() -> None:
    repaired = repair([ASKED, CALLED, user("Go on.")])
    [_, _, results, last] = repaired
    assert [one.is_error for one in results.results] == [True, True]
    assert "interrupted" in results.results[0].text
    assert last == user("Go on.")
    [_, _, not_run] = repair([ASKED, assistant(CUT)])
    assert "Not run" in not_run.results[0].text


def test_repair_loses_no_text() -> None:
    repaired = repair([assistant("Hi."), tool_results(SUNNY), user("a"), user("b"), assistant("c"), assistant("d")])
    assert [message.role for message in repaired] == ["user", "assistant", "user", "assistant"]
    assert "sunny" in repaired[2].text
    assert repaired[2].text.endswith("a\n\nb")
    assert repaired[3].text == "c\n\nd"


def test_vendor_state_stays_on_its_part_when_messages_are_joined() -> None:
    thought = assistant(Reasoning(0, "Hm."), Opaque(0, "anthropic", "signature", "s"), Text(1, "A."))
    [_, joined] = repair([ASKED, assistant("Well."), thought])
    [reasoning] = [part for part in joined.parts if isinstance(part, Reasoning)]
    assert joined.state_of(reasoning.block, "anthropic") == {"signature": "s"}
    assert reasoning.block == 1


def test_of_two_results_the_later_one_counts() -> None:
    repaired = repair([ASKED, assistant(ROME), tool_results(result(ROME, "?", is_error=True)), tool_results(SUNNY)])
    assert repaired == [ASKED, assistant(ROME), tool_results(SUNNY)]


def test_ids_may_be_used_again_in_another_turn() -> None:
    again = [*GOOD[:5], user("Again?"), CALLED, tool_results(SUNNY, RAIN)]
    assert check(again) == []
    assert repair(again) == again


def test_media_that_a_provider_refuses_are_replaced() -> None:
    messages = [user("What is this?", SOUND), assistant(ROME), tool_results(result(ROME, "see", PICTURE))]
    assert kinds(*messages) == []
    assert kinds(*messages, provider="cohere") == ["refused_media"]
    assert kinds(*messages, provider="openrouter") == []
    repaired = repair(messages, "cohere")
    assert check(repaired, "cohere") == []
    assert "file was here" in repaired[0].text
    assert repaired[2:] == messages[2:], "a result may hold anything"


@each("provider", PROVIDERS)
@each("media", [PICTURE, SOUND, Image("https://example.com/a.png"), File("file-1", name="report.pdf")])
def test_a_result_is_sent_with_any_media(provider: str, media: Image | File) -> None:
    """A result comes in the middle of a run: a note replaces media that the provider refuses."""
    row = PROVIDERS[provider]
    messages = (ASKED, assistant(ROME), tool_results(result(ROME, media)), user("Well?"))
    body = str(find_encoder(row.wire)(Request(model="m", messages=messages), row.quirks).body)
    data = media.url.partition(",")[2] or media.url
    assert data in body or "was here that cannot be shown" in body


CALL: dict[str, Any] = {"id": "call_abcdefgh", "type": "function", "function": {"name": "now", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "When?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_abcdefgh", "content": "noon"},
]


def test_a_vendors_history_is_checked_as_it_is() -> None:
    assert check(CHAT) == check(CHAT, "openai") == check(CHAT, "anthropic") == []
    assert kinds(*CHAT, provider="mistral") == ["refused_id"]
    assert check(repair(CHAT), "mistral") == []  # messages of ours have their ids rewritten when they are sent
    assert kinds(*CHAT, {"role": "user", "content": "So?"}, provider="mistral") == ["refused_id", "user_after_results"]
    broken = {**CALL, "function": {"name": "now", "arguments": "{"}}
    history = [CHAT[0], {**CHAT[1], "tool_calls": [broken]}, CHAT[2]]
    assert kinds(*history) == kinds(*history, provider="mistral")[:1] == ["invalid_call"]
    assert kinds(*history, provider="openai") == []
    assert kinds(*CHAT, *CHAT) == ["repeated_id"]
    assert check(repair([*CHAT, *CHAT])) == []


def test_reasoning_without_its_signature_is_a_problem() -> None:
    response = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Noon."}],
    }
    history = [{"role": "user", "content": "When?"}, response]
    assert kinds(*history, provider="anthropic") == ["missing_signature"]
    assert kinds(*history, provider="openai") == []
    assert check(repair(history), "anthropic") == []


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Rome"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"title": "Rome is sunny"}]}
IN_CONTAINER = {"type": "container_reference", "container_id": "cntr_1"}
LIST = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {}, "environment": IN_CONTAINER}
SHOT = {"type": "computer_call_output", "call_id": "c1", "output": {}}


def claude(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": [*blocks]}]


@pytest.mark.parametrize(
    ("history", "refusing"),
    [
        (claude({"type": "text", "text": "Hm."}, SEARCH), "anthropic"),
        ([{"role": "user", "content": "Hi."}, LIST], "openai"),
    ],
)
def test_an_unfinished_hosted_call_is_found_and_left_out(history: list[Any], refusing: Any) -> None:
    assert check(history) == [], "it may go on"
    history = [*history, {"role": "user", "content": "Well?"}]
    [problem] = check(history)
    assert (problem.kind, problem.message, problem.providers) == ("call_without_result", 1, (refusing,))
    assert check(history, refusing) == [problem]
    repaired = repair(history, refusing)
    assert check(repaired, refusing) == []
    assert any("which has no result" in change for change in repaired.changes)
    assert not any(isinstance(part, Opaque) for message in repaired for part in message.parts)


def test_a_hosted_result_without_a_call_becomes_text() -> None:
    history = [*claude(FOUND, {"type": "text", "text": "So."}), {"role": "user", "content": "Well?"}]
    assert kinds(*history) == kinds(*history, provider="anthropic") == ["result_without_call"]
    assert kinds(*repair(history, "openai"), provider="anthropic") == [], "of our messages, requests leave it out"
    repaired = repair(history)
    assert check(repaired, "anthropic") == []
    assert "Rome is sunny" in repaired[1].text
    assert check({"input": [SHOT], "previous_response_id": "r"}, "openai") == []


def test_a_repaired_history_is_checked_as_what_it_was() -> None:
    called = {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "noon"}
    late = repair(["When?", called, {"role": "user", "content": "Well?"}, output], "openai")
    assert (late.changes, check(late, "openai")) == ([], [])
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    messages = repair([{"role": "user", "content": [sound]}], "openai")
    assert (messages.changes, check(messages, "openai")) == ([], []), "Chat Completions takes it"
    assert kinds(*messages, provider="openai") == ["refused_media"], "as messages of ours it goes to Responses"
    twice = repair([{"role": "user", "content": [sound]}] * 2, "openai")
    assert [type(part) for part in twice[0].parts] == [File], "a repaired history keeps what its wire accepts"
    continued = repair(repair({"input": [output], "previous_response_id": "r"}))
    assert (continued.changes, check(continued)) == ([], [])


def test_names_are_checked_by_the_rules_of_each_provider() -> None:
    def calling(name: str) -> list[dict[str, Any]]:
        return [CHAT[0], {**CHAT[1], "tool_calls": [{**CALL, "function": {"name": name, "arguments": "{}"}}]}, CHAT[2]]

    dotted, long = calling("calendar.find"), calling("mcp__server__" + "x" * 80)
    assert kinds(*dotted, provider="google") == kinds(*long, provider="anthropic") == []
    assert kinds(*dotted, provider="azure") == kinds(*long, provider="google") == ["refused_name"]
    repaired = repair(dotted, "azure")
    assert (repaired[1].tool_calls[0].name, repaired[2].results[0].name) == ("calendar_find", "calendar_find")
    assert repaired.changes == [
        "messages[1]: named the call 'call_abcdefgh' 'calendar_find': declare its tool under that name too"
    ]
    assert repair(dotted, "google")[1].tool_calls[0].name == "calendar.find"


def test_only_the_last_answer_may_be_empty_for_anthropic() -> None:
    empty = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": []}]
    history = {"system": "Be brief.", "messages": empty}
    assert check(history, "anthropic") == []
    [problem] = check({**history, "messages": [*empty, empty[0]]}, "anthropic")
    assert problem.kind == "empty_message"


def long_histories(size: int) -> dict[str, Any]:
    """Histories in which everything is wrong in the same way, many times."""
    call, answer = ToolCall("a", "now", {}), ToolResult("a", "now", (Text(0, "noon"),))
    thoughts = (
        part for at in range(size) for part in (Reasoning(at, "Hm."), Opaque(at, "anthropic", "signature", "s"))
    )
    item = {"type": "function_call", "name": "now", "arguments": "{}"}
    return {
        "users": [ASKED] * size,
        "one id in every turn": [ASKED, *[assistant(call), tool_results(answer)] * size],
        "one id in one turn": [ASKED, assistant(*[call] * size), tool_results(*[answer] * size)],
        "thoughts": [ASKED, Message("assistant", tuple(thoughts))],
        "items": ["When?", *({**item, "call_id": f"c{at}"} for at in range(size))],
    }


@pytest.mark.parametrize("name", long_histories(1))
def test_check_and_repair_are_linear(name: str) -> None:
    def work(size: int) -> Callable[[], object]:
        history = long_histories(size)[name]
        return lambda: (check(history), repair(history))

    assert_linear(work, 500, 8)


# Random histories.

CALLS = st.builds(
    ToolCall, st.sampled_from(["a", "b", "c", ""]), st.sampled_from(["one", "two"]), st.just({"x": 1}),
    block=st.integers(0, 4),
)  # fmt: skip
INVALID = st.builds(
    ToolCallInvalid, st.integers(0, 4), st.sampled_from(["a", "b", ""]), st.just("one"), st.just("{"), st.just("cut"),
)  # fmt: skip
RESULTS = st.builds(
    ToolResult, st.sampled_from(["a", "b", "c", ""]), st.sampled_from(["one", "two", ""]),
    st.sampled_from([(), (Text(0, "done"),), (Text(0, "see"), PICTURE)]), st.booleans(),
)  # fmt: skip
STATES = st.builds(
    Opaque, st.integers(0, 4), st.sampled_from(["anthropic", "gemini", "openai-responses", "bedrock", "openai-chat"]),
    st.sampled_from(["signature", "caller", "id", "message", "extra_content"]), st.just("s"),
)  # fmt: skip
PARTS = st.one_of(
    st.builds(Text, st.integers(0, 4), st.sampled_from(["", " ", "words"])),
    st.builds(Reasoning, st.integers(0, 4), st.sampled_from(["", "hm"])),
    CALLS, INVALID, RESULTS, STATES, st.sampled_from([PICTURE, SOUND, Image("https://example.com/a.png")]),
)  # fmt: skip
MESSAGES = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(PARTS, max_size=5).map(tuple)
)


@given(st.lists(MESSAGES, max_size=8), st.sampled_from([None, *PROVIDERS]))
def test_a_repaired_history_has_no_problems(history: list[Message], provider: Any) -> None:
    repaired = repair(history, provider)
    assert check(repaired, provider) == []
    assert repair(repaired, provider) == repaired
    assert bool(repaired.changes) >= bool(check(history, provider)), "a problem was repaired without a change noted"


@given(st.lists(MESSAGES, max_size=8), st.sampled_from([*PROVIDERS]))
def test_a_repaired_history_can_be_exported(history: list[Message], provider: Any) -> None:
    row = PROVIDERS[provider]
    find_encoder(row.wire)(Request(model="m", messages=tuple(repair(history, provider))), row.quirks)


@given(st.lists(MESSAGES, max_size=8))
def test_check_never_raises(history: list[Message]) -> None:
    problems: list[Problem] = check(history)
    assert all(problem.providers and problem.what for problem in problems)
    for provider in PROVIDERS:
        mine = [problem for problem in check(history, find_provider(provider)[0]) if problem.kind != "refused_media"]
        assert mine == [problem for problem in problems if provider in problem.providers]


# Pieces of a message.


def test_messages_of_one_role_can_be_added() -> None:
    first = assistant("I ", ToolCall("a", "look", {}), ToolCallInvalid(2, "b", "", '{"x":', "cut"))
    second = assistant(ToolCall("b", "write", {"x": 1}), ToolCall("a", "", {"city": "Rome"}), "Done.")
    third = assistant(" Bye.", ToolCall("a", "look", {}))
    added = first + second + third
    assert added.role == "assistant"
    assert added.text == "I Done. Bye."
    assert [(part.type, getattr(part, "text", "") or getattr(part, "id", "")) for part in added.parts] == [
        ("text", "I "), ("tool_call", "a"), ("tool_call", "b"), ("text", "Done. Bye."),
    ]  # fmt: skip
    assert [(call.name, call.arguments) for call in added.tool_calls] == [
        ("look", {"city": "Rome"}),
        ("write", {"x": 1}),
    ]
    assert added.tool_calls[0].arguments_raw == '{"city":"Rome"}'


def test_pieces_of_text_and_reasoning_are_joined_one_after_another() -> None:
    added = (
        Message("assistant") + Message("assistant", (Reasoning(0, "H"),)) + Message("assistant", (Reasoning(0, "m"),))
    )
    for piece in ("a", "b", "c"):
        added += assistant(piece)
    assert [(part.type, part.text) for part in added.parts if isinstance(part, Text | Reasoning)] == [
        ("reasoning", "Hm"),
        ("text", "abc"),
    ]
    assert sum([user("b")], user("a")) == user("ab")


def test_vendor_state_stays_on_its_part_when_messages_are_added() -> None:
    signed = Message("assistant", (Text(0, "a"), Opaque(0, "anthropic", "signature", "s")))
    added = assistant("x") + signed + assistant("y")
    assert [(part.type, getattr(part, "block", None)) for part in added.parts] == [
        ("text", 0),
        ("text", 1),
        ("opaque", 1),
        ("text", 2),
    ]
    assert added.state_of(1, "anthropic") == {"signature": "s"}


def test_results_images_and_calls_without_an_id_are_kept() -> None:
    picture = image(b"x", "image/png")
    assert (user("a", picture) + user("b")).parts == (*user("a", picture).parts, Text(1, "b"))
    results = [result(ToolCall(id, "f", {}), id) for id in "ab"]
    assert (tool_results(results[0]) + tool_results(results[1])).results == results
    nameless = assistant(ToolCall("", "f", {})) + assistant(ToolCall("", "f", {}))
    assert len(nameless.tool_calls) == 2


def test_only_messages_of_one_role_can_be_added() -> None:
    with pytest.raises(UsageError, match="cannot be added"):
        user("a") + assistant("b")
    with pytest.raises(TypeError):
        user("a") + "b"  # type: ignore[operator]
