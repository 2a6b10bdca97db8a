"""Tools that a provider defines and the client runs: with a function, without one, approved, declined, resumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from penstock import ApprovalRequest, Message, Model, Opaque, Text, ToolCall, ToolResult, UsageError, check, tool
from penstock.messages import image, tool_results, user
from penstock.run.events import decode_logged
from penstock.run.rebuild import rebuild
from penstock.testing import Reply, Scripted, call, item
from penstock.wires import find_encoder
from penstock.wires.shared.request import Request
from tests.cases import each
from tests.scripted_runs import NAMES, drive, model_on, streaming, sync_and_async
from tests.wires.requests.test_requests_openai import TYPES

SHOT = image(b"\x89PNG\r\n\x1a\n", "image/png")
CHECK = {"id": "sc_1", "code": "malicious_instructions", "message": "Are you sure?"}
PRINTED = {"stdout": "a.py\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
HARBOUR = {"type": "mcp", "server_label": "harbour", "server_url": "https://mcp.example"}
DEADLINE = 30.0


def click(*checks: dict[str, Any]) -> dict[str, Any]:
    action = {"type": "click", "button": "left", "x": 1, "y": 2}
    return {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed", "action": action,
            "pending_safety_checks": [*checks]}  # fmt: skip


ITEMS: dict[str, dict[str, Any]] = {
    "computer": click(),
    "shell": {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed",
              "action": {"commands": ["ls"], "max_output_length": 99}, "environment": {"type": "local"}},
    "local_shell": {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "status": "completed",
                    "action": {"type": "exec", "command": ["ls"], "env": {}}},
    "apply_patch": {"type": "apply_patch_call", "id": "apc_1", "call_id": "call_1", "status": "completed",
                    "operation": {"type": "delete_file", "path": "a.py"}},
    "tool_search": {"type": "tool_search_call", "id": "tsc_1", "call_id": "call_1", "status": "completed",
                    "execution": "client", "arguments": {"goal": "tides"}},
    "harbour": {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "harbour", "name": "berths",
                "arguments": '{"size":9}'},
}  # fmt: skip
DECLARED: dict[str, dict[str, Any]] = {
    **{name: {"type": name} for name in ("computer", "shell", "local_shell", "apply_patch")},
    "tool_search": {"type": "tool_search", "execution": "client", "description": "Search.", "parameters": {}},
    "harbour": HARBOUR,
}
TIDE = {"name": "tide", "description": "The tide.", "parameters": {"type": "object", "properties": {}}}
RESULTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "computer": (SHOT, {"type": "computer_call_output", "call_id": "call_1",
                        "output": {"type": "computer_screenshot", "image_url": SHOT.url}}),
    "shell": ([PRINTED], {"type": "shell_call_output", "call_id": "call_1", "output": [PRINTED],
                          "max_output_length": 99}),
    "local_shell": ("a.py", {"type": "local_shell_call_output", "id": "call_1", "call_id": "call_1", "output": "a.py"}),
    "apply_patch": ("gone", {"type": "apply_patch_call_output", "call_id": "call_1", "status": "completed",
                             "output": "gone"}),
    "tool_search": ([TIDE], {"type": "tool_search_output", "call_id": "call_1", "execution": "client",
                             "status": "completed", "tools": [{"type": "function", **TIDE, "strict": False}]}),
    "harbour": (True, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}),
}  # fmt: skip
"""What a function returns for each item, and the item that goes back."""
every_tool = pytest.mark.parametrize("name", ITEMS)


def played(*items: dict[str, Any]) -> Scripted:
    return Scripted([Reply(*map(item, items)), "Done."], strict=True)


def agent_on(script: Scripted, *tools: Any, wire: str = "openai-responses", **options: Any) -> penstock.Agent:
    return penstock.Agent(model_on(wire, via=script), tools, **options)


def sent_back(script: Scripted) -> list[dict[str, Any]]:
    """The items of the second request after the call; OpenAI's own types accept the request."""
    body = script.requests[-1].body
    TYPES["openai-responses", True].validate_python(body)
    items: list[dict[str, Any]] = body["input"]
    at = next(at for at, one in enumerate(items) if one.get("type") in {call["type"] for call in ITEMS.values()})
    return items[at:]


# -- with a function ---------------------------------------------------------------------------------------------------


def running(name: str, seen: list[Any]) -> Any:
    """A tool that runs the calls of the vendor's tool of this name."""
    if name == "tool_search":

        def search(goal: str) -> Any:
            seen.append(goal)
            return RESULTS[name][0]

        return tool(vendor=DECLARED[name])(search)
    if name == "harbour":

        def approve(server_label: str, name: str, arguments: dict[str, Any]) -> bool:
            seen.append((server_label, name, arguments))
            return True

        return tool(vendor=DECLARED[name])(approve)
    field = "operation" if name == "apply_patch" else "action"

    def act(**arguments: Any) -> Any:
        seen.append(arguments)
        return RESULTS[name][0]

    assert field in ITEMS[name]
    return tool(vendor=DECLARED[name])(act)


SEEN = {
    "tool_search": "tides",
    "harbour": ("harbour", "berths", {"size": 9}),
    "apply_patch": {"operation": ITEMS["apply_patch"]["operation"]},
    **{name: {"action": ITEMS[name]["action"]} for name in ("computer", "shell", "local_shell")},
}


@sync_and_async
@every_tool
def test_a_function_runs_the_call_and_its_result_goes_back_in_the_vendors_item(name: str, mode: str) -> None:
    seen: list[Any] = []
    script = played(ITEMS[name])
    events, run = drive(streaming(agent_on(script, running(name, seen))), mode)
    assert (run.finish_reason, run.output, seen) == ("answered", "Done.", [SEEN[name]])
    assert sent_back(script) == [ITEMS[name], RESULTS[name][1]]
    assert not any(isinstance(event, ApprovalRequest) for event in events)
    assert script.requests[0].body["tools"] == [DECLARED[name]]
    assert check(run.messages) == []


@sync_and_async
@every_tool
def test_a_tool_that_raises_is_reported_in_the_vendors_item(name: str, mode: str) -> None:
    def act(**arguments: Any) -> Any:
        raise ValueError("no luck")

    script = played(ITEMS[name])
    _, run = drive(streaming(agent_on(script, tool(vendor=DECLARED[name])(act))), mode)
    assert run.finish_reason == "answered"
    items: list[Any] = script.requests[-1].body["input"]
    answer = items[-1]
    match name:
        case "computer":  # it has no place for an error: the call goes back as that of a function
            assert [one["type"] for one in items[-2:]] == ["function_call", "function_call_output"]
            assert "no luck" in answer["output"]
        case "shell":
            [chunk] = answer["output"]
            assert chunk["outcome"] == {"type": "exit", "exit_code": 1}
            assert "no luck" in chunk["stderr"]
        case "local_shell":
            assert "no luck" in answer["output"]
        case "apply_patch":
            assert answer["status"] == "failed"
            assert "no luck" in answer["output"]
        case "tool_search":
            output, words = items[-2:]
            assert (output["type"], output["tools"]) == ("tool_search_output", [])
            assert "no luck" in words["content"][-1]["text"]
        case "harbour":
            assert answer["approve"] is False
            assert "no luck" in answer["reason"]
        case _:
            raise AssertionError(name)


def test_text_beside_a_screenshot_goes_back_after_the_results() -> None:
    @tool(vendor={"type": "computer"})
    def computer(action: dict[str, Any]) -> Any:
        return ["The page is slow.", SHOT]

    script = played(click())
    assert agent_on(script, computer).run("Go.").reason == "answered"
    _, output, words = sent_back(script)
    assert output["output"]["image_url"] == SHOT.url
    assert [part["text"] for part in words["content"]] == ["From computer (call_1):", "The page is slow."]


def test_plain_text_is_what_a_shell_printed() -> None:
    @tool(vendor={"type": "shell"})
    def shell(action: dict[str, Any]) -> str:
        return "a.py"

    script = played(ITEMS["shell"])
    agent_on(script, shell).run("Go.")
    assert sent_back(script)[1]["output"] == [{**PRINTED, "stdout": "a.py"}]


def test_the_older_computer_tool_has_the_name_of_its_type() -> None:
    declared = {"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "linux"}
    script = played(click())
    seen: list[str] = []

    @tool(vendor=declared)
    def computer(action: dict[str, Any], context: penstock.Context) -> Any:
        seen.append(context.tool)
        return SHOT

    assert agent_on(script, computer).run("Go.").reason == "answered"
    assert seen == ["computer_use_preview"]


@sync_and_async
@pytest.mark.parametrize(
    ("declared", "arguments"),
    [
        ({"type": "bash_20250124", "name": "bash"}, {"command": "ls"}),
        ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"command": "view", "path": "/a"}),
        ({"type": "computer_20251124", "name": "computer", "display_width_px": 9, "display_height_px": 9},
         {"action": "screenshot"}),
        ({"type": "memory_20250818", "name": "memory"}, {"command": "view", "path": "/memories"}),
    ],
    ids=lambda value: value.get("type", "") if isinstance(value, dict) else "",
)  # fmt: skip
def test_anthropics_tools_run_a_function_or_wait(declared: Any, arguments: Any, mode: str) -> None:
    def script() -> Scripted:
        return Scripted([Reply(call(declared["name"], arguments, id="toolu_1")), "Done."], strict=True)

    def act(**received: Any) -> Any:
        assert received == arguments
        return ["ok", SHOT]

    with_function = script()
    agent = agent_on(with_function, tool(vendor=declared)(act), wire="anthropic")
    _, run = drive(streaming(agent), mode)
    assert run.finish_reason == "answered"
    [result] = with_function.requests[-1].body["messages"][-1]["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_1")
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert with_function.requests[0].body["tools"] == [declared]
    without = script()
    events, run = drive(streaming(agent_on(without, declared, wire="anthropic")), mode)
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    assert (request.name, request.arguments, request.kind) == (declared["name"], arguments, "deferred")
    assert run.finish_reason == "paused"
    resumed = agent_on(without, declared, wire="anthropic").resume(run.dump())
    resumed.provide("toolu_1", "ok")
    assert next(event for event in resumed if event.type == "done").reason == "answered"


# -- without one -------------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("is_declared", [True, False])
@every_tool
def test_a_call_without_a_function_waits_and_is_never_an_answer(name: str, is_declared: bool, mode: str) -> None:
    script = played(ITEMS[name])
    agent = agent_on(script, *([DECLARED[name]] if is_declared else []))
    events, run = drive(streaming(agent), mode)
    [request] = [event for event in events if isinstance(event, ApprovalRequest)]
    kind = "approval" if name == "harbour" else "deferred"
    assert (run.finish_reason, request.name, request.kind) == ("paused", name, kind)
    assert check(run.messages) == []

    def answer(running: Any) -> None:
        if kind == "approval":
            running.decide(request.call_id, True)
        else:
            running.provide(request.call_id, RESULTS[name][0])

    if mode == "sync":
        resumed = agent.resume(run.dump())
        answer(resumed)
        last: Any = list(resumed)[-1]
    else:

        async def finish() -> Any:
            running = agent.aresume(run.dump())
            answer(running)
            return [event async for event in running][-1]

        last = asyncio.run(asyncio.wait_for(finish(), DEADLINE))
    assert last.reason == "answered"
    assert sent_back(script) == [ITEMS[name], RESULTS[name][1]]


def test_a_call_in_a_response_that_reached_the_limit_is_not_an_answer() -> None:
    script = Scripted([Reply(item(ITEMS["local_shell"]), finish="length")])
    turn = Model(NAMES["openai-responses"], via=script).complete("Go.", tools=[DECLARED["local_shell"]])
    assert (turn.finish_reason, turn.type, turn.tool_calls, len(turn.vendor_calls)) == ("length", "paused", [], 1)


def test_a_declined_approval_tells_the_provider_why() -> None:
    script = played(ITEMS["harbour"])
    agent = agent_on(script, HARBOUR, approvals="wait")
    with agent.stream("Go.") as run:
        for event in run:
            if isinstance(event, ApprovalRequest):
                assert event.arguments == {"server_label": "harbour", "name": "berths", "arguments": {"size": 9}}
                with pytest.raises(UsageError, match="but not changed"):
                    run.decide(event.call_id, True, arguments={"name": "all"})
                run.decide(event.call_id, False, reason="too big")
    _, response = sent_back(script)
    assert response["approve"] is False
    assert "too big" in response["reason"]


@sync_and_async
@pytest.mark.parametrize("is_approved", [True, False])
def test_safety_checks_are_shown_and_acknowledged_only_if_approved(is_approved: bool, mode: str) -> None:
    clicks: list[Any] = []

    @tool(vendor={"type": "computer"}, approval=False, read_only=True)
    def computer(action: dict[str, Any]) -> Any:
        clicks.append(action)
        return SHOT

    script = played(click(CHECK))
    shown: list[ApprovalRequest] = []

    def decide(running: Any, event: Any) -> Any:
        if isinstance(event, ApprovalRequest):
            assert clicks == []
            shown.append(event)
            return running.decide(event.call_id, is_approved)
        return None

    drive(streaming(agent_on(script, computer, approvals="wait")), mode, decide)
    [request] = shown
    assert request.safety_checks == (CHECK,)
    assert len(clicks) == is_approved
    items = script.requests[-1].body["input"]
    if is_approved:
        assert items[-1]["acknowledged_safety_checks"] == [CHECK]
    else:
        assert [one["type"] for one in items[-2:]] == ["function_call", "function_call_output"]
        assert "acknowledged_safety_checks" not in str(items)


@pytest.mark.parametrize("checks", [[], [CHECK]])
def test_only_what_a_history_acknowledged_is_acknowledged(checks: list[Any]) -> None:
    output = {**RESULTS["computer"][1], **({"acknowledged_safety_checks": checks} if checks else {})}
    history = [{"role": "user", "content": "Go."}, click(CHECK), output, {"role": "user", "content": "And?"}]
    read = tuple(penstock.as_messages(history))
    body = find_encoder("openai-responses")(Request(model="m", messages=read), frozenset()).body
    assert body["input"][2] == output


def test_a_shell_call_that_the_provider_ran_is_left_alone() -> None:
    ran = {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "status": "completed", "output": [PRINTED]}
    shell = {key: value for key, value in ITEMS["shell"].items() if key != "environment"}
    script = Scripted([Reply(item(shell), item(ran), "Done.")], strict=True)
    assert agent_on(script, {"type": "shell"}).run("Go.").reason == "answered"


@every_tool
@sync_and_async
def test_a_guard_of_calls_stops_a_call_before_anything_of_it_is_seen(name: str, mode: str) -> None:
    checked: list[Any] = []

    def refuse(tool: str, arguments: dict[str, Any]) -> penstock.StopRun:
        checked.append(tool)
        return penstock.StopRun("no")

    guard = penstock.Guard(lambda text: text, call=refuse)
    script = Scripted([Reply("Hi.", item(ITEMS[name]))], strict=True)
    events, run = drive(streaming(agent_on(script, DECLARED[name], guard=guard)), mode)
    assert (run.finish_reason, checked) == ("refused", [name])
    assert not [event for event in events if isinstance(event, Opaque | ToolCall)]
    assert [type(part) for part in run.messages[-1].parts] == [Text]
    assert check(run.messages) == []


def test_a_call_that_the_guard_has_cleared_goes_back_in_the_vendors_item() -> None:
    script = played({key: value for key, value in ITEMS["shell"].items() if key != "environment"})
    guard = penstock.Guard(lambda text: text, call=lambda name, arguments: None)
    assert agent_on(script, running("shell", []), guard=guard).run("Go.").reason == "answered"
    assert [one["type"] for one in sent_back(script)] == ["shell_call", "shell_call_output"]


# -- logs and histories ------------------------------------------------------------------------------------------------


@every_tool
def test_a_run_with_vendor_calls_is_rebuilt_from_any_prefix_of_its_log(name: str) -> None:
    store = penstock.log.memory()
    script = played(ITEMS[name])
    agent = agent_on(script, DECLARED[name], name="a")
    with agent.stream("Go.", log=store, run_id="r1") as run:
        list(run)
    [waiting] = run.waiting
    runs = penstock.Runs(store, {"a": agent})
    if name == "harbour":
        runs.decide("r1", waiting.call_id, True)
    else:
        runs.provide("r1", waiting.call_id, RESULTS[name][0])
    runs.drive("r1")
    assert sent_back(script) == [ITEMS[name], RESULTS[name][1]]
    events = [decode_logged(body) for _, _, body in store.read("r1")]
    again: Any = None
    for length in range(1, len(events) + 1):
        again = rebuild(events[:length], agent_policies(agent))
        assert check(again.state.history) == []
    assert (again.state.phase, again.state.ending[0]) == ("over", "answered")


def agent_policies(agent: penstock.Agent) -> Any:
    return agent.config.policies


@every_tool
def test_a_request_with_vendor_calls_is_read_back(name: str) -> None:
    history = history_of(name)
    body = find_encoder("openai-responses")(Request(model="m", messages=history), frozenset()).body
    read = penstock.as_messages(body["input"])
    again = find_encoder("openai-responses")(Request(model="m", messages=tuple(read)), frozenset()).body
    assert again["input"] == body["input"]
    [called] = [part for message in read for part in message.parts if isinstance(part, ToolCall)]
    assert (called.kind, called.name) == ("approval" if name == "harbour" else "vendor", name)
    assert [part.is_error for message in read for part in message.results] == [False]


@every_tool
@each("wire", [wire for wire in NAMES if wire != "openai-responses"])
def test_another_provider_reads_a_vendor_call_as_that_of_a_function(name: str, wire: str) -> None:
    history = history_of(name)
    assert check(history) == []
    script = Scripted(["Done."], strict=True)
    turn = model_on(wire, via=script).complete([*history, user("Go on.")])
    assert turn.text == "Done."
    assert name in str(script.requests[0].body)


def history_of(name: str) -> tuple[Message, ...]:
    return tuple(agent_on(played(ITEMS[name]), running(name, [])).run("Go.").messages[:3])


# -- declarations ------------------------------------------------------------------------------------------------------


def act(command: str = "") -> str:
    return command


def test_a_vendor_declaration_must_be_one() -> None:
    with pytest.raises(UsageError, match="declares a function"):
        tool(vendor={"type": "function", "name": "f"})(act)
    with pytest.raises(UsageError, match="must be the provider's declaration"):
        tool(vendor="bash")(act)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="leave out name"):
        tool(vendor={"type": "shell"}, name="x")(act)
    with pytest.raises(UsageError, match="neither a name nor"):
        tool(vendor={})(act)
    with pytest.raises(UsageError, match="two tools have the name 'shell'"):
        agent_on(played(), tool(vendor={"type": "shell"})(act), tool(vendor={"type": "shell"})(act))
    paired = penstock.as_tool({"type": "shell"}, act)
    assert (paired.name, paired.is_deferred, paired("ls")) == ("shell", False, "ls")


def test_results_are_never_read_as_something_else() -> None:
    shell = ITEMS["shell"]
    called = ToolCall("call_1", "shell", {"action": shell["action"]}, kind="vendor", block=0)
    answer = Message("assistant", (Opaque(0, "openai-responses", "shell_call", shell), called))
    for text in ("[]", "{}", "7", '[{"stdout": "a"}]', "true", "null", '{"output": 3}'):
        result = ToolResult("call_1", "shell", (Text(0, text),))
        history = (user("Go."), answer, tool_results(result))
        body = find_encoder("openai-responses")(Request(model="m", messages=history), frozenset()).body
        assert body["input"][-1]["output"] == [{**PRINTED, "stdout": text}]
