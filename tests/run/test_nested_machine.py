"""Runs inside of runs, without I/O: the log of the outermost run is all of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock import Done, Limits, Nested, Retry, StepEnd, StreamEvent, Text, ToolCallClosed, ToolEnd, ToolStart, check
from penstock.messages import user
from penstock.run.commands import CancelTool, Emit
from penstock.run.events import RunStart, decode, encode
from penstock.run.inner_runs import MAX_LEVELS
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from tests.nested_player import ASK, LOOK, PAY, TOOLS, Tree, agent, answer, call, calls, state_of, texts


def nested(tree: Tree) -> list[Nested]:
    return [event for event in tree.log if isinstance(event, Nested)]


def test_two_agents_at_once_with_an_agent_inside_each_end_with_their_answers() -> None:
    tree = Tree()
    tree.play()
    tree.check_end()
    assert tree.run.state.ending[0] == "answered"
    assert texts(tree.run.state.messages) == ["done at level 1", "done at level 1"]
    assert all(times == 1 for times in tree.effects.values())
    assert sorted(effect.rpartition(" ")[2] for effect in tree.effects) == ["ask"] * 2 + ["look"] * 2 + ["pay"] * 4


def test_paths_have_the_call_ids_from_the_outermost_and_deeper_runs_make_the_path_longer() -> None:
    tree = Tree()
    tree.play()
    paths = {event.path for event in nested(tree)}
    assert paths == {("helper_1",), ("helper_2",), ("helper_1", "deep_2"), ("helper_2", "deep_2_2")}
    for path in paths:
        events = [event.event for event in nested(tree) if event.path == path]
        assert isinstance(events[0], RunStart)
        assert isinstance(events[-1], Done)
        assert events[-1].messages == ()


def test_call_ids_are_unique_in_the_whole_tree_and_blocks_in_each_path() -> None:
    tree = Tree()
    tree.play()
    every = [event.event if isinstance(event, Nested) else event for event in tree.log]
    starts = [event.call_id for event in every if isinstance(event, ToolStart)]
    assert len(starts) == len(set(starts)) == 12
    for path in {event.path for event in nested(tree)}:
        blocks = [event.event.block for event in nested(tree) if event.path == path and isinstance(event.event, Text)]
        assert len(blocks) == len(set(blocks))


def test_usage_of_all_inner_runs_is_that_of_the_run() -> None:
    tree = Tree()
    tree.play()
    ends = [event.event if isinstance(event, Nested) else event for event in tree.log]
    usage = [event.usage for event in ends if isinstance(event, StepEnd) and event.usage]
    assert tree.run.usage.input_tokens == sum(one.input_tokens for one in usage)
    assert tree.run.usage.output_tokens == sum(one.output_tokens for one in usage)
    done = tree.log[-1]
    assert isinstance(done, Done)
    assert done.usage == tree.run.usage


@pytest.mark.parametrize("has_hooks", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_log_is_the_run_and_its_inner_runs_at_every_boundary(seed: int, has_hooks: bool) -> None:
    crashes = 0

    def compare(tree: Tree) -> None:
        nonlocal crashes
        for run in tree.run.tree():
            run.state.response.fold(0)
        rebuilt = rebuild([decode(encode(event)) if isinstance(event, Nested) else event for event in tree.log], TOOLS)
        assert state_of(rebuilt) == state_of(tree.run)
        heir = tree.heir()
        heir.play()
        heir.check_end()
        assert all(times == 1 for effect, times in heir.effects.items() if "look" not in effect), heir.effects
        crashes += 1

    Tree(order=Random(seed) if seed else None, has_hooks=has_hooks).play(compare)
    assert crashes > 50


@pytest.mark.parametrize("has_hooks", [False, True])
def test_a_stored_run_goes_on_from_every_boundary(has_hooks: bool) -> None:
    loads = 0

    def store(tree: Tree) -> None:
        nonlocal loads
        for run in tree.run.tree():
            run.state.response.fold(0)
        loaded, _ = load(tree.run.dump(), TOOLS)
        assert [run.state.phase for run in loaded.tree()] == [run.state.phase for run in tree.run.tree()]
        assert loaded.usage == tree.run.usage
        assert [run.state.messages for run in loaded.tree()] == [run.state.messages for run in tree.run.tree()]
        other = Tree(has_hooks=has_hooks)
        other.run, other.effects = loaded, tree.effects.copy()
        other.play()
        other.check_end()
        assert all(times == 1 for effect, times in other.effects.items() if "look" not in effect), other.effects
        loads += 1

    Tree(has_hooks=has_hooks).play(store)
    assert loads > 50


def test_a_run_does_not_wait_for_others_while_the_hook_of_an_agent_in_it_decides() -> None:
    """One agent waits for a person, the other one for its hook; then both wait for a person."""
    phases = set[tuple[str, ...]]()
    tools = {"helper": agent({"ask": ASK})}

    def script(run: Run) -> Any:
        if run.inner.level == 0:
            return calls(call("helper", 1), call("helper", 2))
        return calls(call("ask", 1)) if run.state.step == 1 else answer("asked")

    def observe(tree: Tree) -> None:
        inner = [one.run for one in tree.run.inner]
        phases.add(tuple(sorted(one.state.phase for one in inner)))
        if tree.run.is_waiting:
            assert inner
            assert all(one.state.phase == "tools" and one.waiting for one in inner)
        if any(one.state.is_preparing for one in inner):
            assert not tree.run.is_waiting

    for seed in range(20):
        tree = Tree(script, tools, order=Random(seed), has_hooks=True)
        tree.play(observe)
        tree.check_end()
    assert ("hook", "tools") in phases
    assert ("tools", "tools") in phases


@pytest.mark.parametrize("has_hooks", [False, True])
@pytest.mark.parametrize("is_logged", [True, False])
def test_a_run_can_be_cancelled_at_every_boundary(is_logged: bool, has_hooks: bool) -> None:
    """Whatever was read before: nothing, all, or half of the last unit."""
    stops = 0

    def cancel(tree: Tree) -> None:
        nonlocal stops
        for unread in (0, 1, 2, 3):
            other = tree.heir()
            other.run = rebuild(tree.log, TOOLS)
            for run in other.run.tree():
                run.state.is_logged = is_logged
            events: Any = tree.log[len(tree.log) - unread :] if unread < len(tree.log) - 2 else []
            commands = other.run.cancel("enough", events)
            shown = [event for command in commands if isinstance(command, Emit) for event in command.events]
            check_ends(shown)
            assert other.run.state.ending == ("cancelled", "enough")
            assert check(other.run.state.messages) == []
            assert list(other.run.tree()) == [other.run]
            stops += 1

    Tree(has_hooks=has_hooks).play(lambda tree: None if tree.run.state.is_over else cancel(tree))
    assert stops > 200


def check_ends(shown: list[StreamEvent]) -> None:
    """After a cancel: only ends, each inner run before its call, and the run last."""
    assert isinstance(shown[-1], Done)
    for event in shown:
        inner = event.event if isinstance(event, Nested) else event
        assert isinstance(inner, ToolEnd | StepEnd | Done), event
    ended = [event.call_id for event in shown if isinstance(event, ToolEnd)]
    inside = [event.path for event in shown if isinstance(event, Nested) and isinstance(event.event, Done)]
    assert len(inside) == len(set(inside))
    assert {path[0] for path in inside} <= {*ended}


def test_an_error_of_the_inner_run_is_a_result_that_the_model_reads() -> None:
    tree = Tree(tools={"helper": agent({}, Limits(steps=1))})
    tree.play()
    tree.check_end()
    assert tree.run.state.ending[0] == "answered"
    text = "The agent gave no answer (limit): the run reached its limit of 1 steps. Its last text: Let me see."
    assert texts(tree.run.state.messages) == [text, text]


def test_the_limit_of_tokens_counts_inner_runs_and_ends_them() -> None:
    tree = Tree(limits=Limits(tokens=300))
    tree.play()
    tree.check_end()
    assert tree.run.state.ending == ("limit", "the run used 330 tokens, and may use 300")
    done = tree.log[-1]
    assert isinstance(done, Done)
    assert done.usage == tree.run.usage
    ends = [event.event for event in nested(tree) if isinstance(event.event, Done)]
    assert [end.reason for end in ends] == ["cancelled", "cancelled"]
    assert rebuild(tree.log, TOOLS).usage == done.usage


def test_a_run_waits_if_its_inner_runs_wait() -> None:
    tree = Tree(lambda run: calls(call("ask", 1)) if run.inner.level else calls(call("helper", 1), call("helper", 2)),
                {"helper": agent({"ask": ASK})})  # fmt: skip
    tree.approve = lambda call_id: None  # type: ignore[method-assign]
    tree.play()
    assert tree.run.is_waiting
    assert [request.call_id for request in tree.run.waiting] == ["ask_1", "ask_1_2"]
    [pause] = tree.run.pause()
    assert isinstance(pause, Emit)
    assert isinstance(done := pause.events[0], Done)
    assert check(done.messages) == []
    heir = tree.heir()
    assert heir.run.is_waiting
    assert heir.run.waiting == tree.run.waiting


def test_a_run_waits_if_its_next_tool_waits_for_an_inner_run_that_waits() -> None:
    tree = Tree(lambda run: calls(call("ask", 1)) if run.inner.level else calls(call("helper", 1), call("pay", 2)),
                {"helper": agent({"ask": ASK}), "pay": PAY}, Limits(parallel=1))  # fmt: skip
    tree.approve = lambda call_id: None  # type: ignore[method-assign]
    tree.play()
    assert tree.run.is_waiting
    assert not tree.effects


def test_agents_may_be_nested_to_a_named_depth() -> None:
    tools: dict[str, Any] = {}
    tools["helper"] = agent(tools)
    tree = Tree(lambda run: calls(call("helper", 1)) if run.state.step == 1 else answer("back"), tools)
    tree.play()
    tree.check_end()
    assert max(len(event.path) for event in nested(tree)) == MAX_LEVELS
    results = [event.event.result for event in nested(tree) if isinstance(event.event, ToolEnd)]
    refusals = [result.text for result in results if result.is_error]
    assert refusals == [f"Not run: agents may be nested {MAX_LEVELS} levels deep."]


def early(run: Run) -> Any:
    """A helper starts when its arguments close; then the call turns out to be another one."""
    if run.inner.level:
        return calls(call("look", 1)) if run.state.step == 1 else answer("seen")
    if run.state.step > 1:
        return answer("done")
    closed = ToolCallClosed(1, "helper_1", "helper", {"prompt": "one"})
    return [[closed], [Text(0, "…")], [Text(0, "…")], [Text(0, "…")], *calls(call("helper", 1, prompt="two"))]


def test_an_agent_that_started_too_early_is_discarded_with_all_that_it_did() -> None:
    tree = Tree(early, {"helper": agent({"look": LOOK}, start="closed", is_read_only=True)})
    tree.play()
    tree.check_end()
    ends = [event for event in tree.log if isinstance(event, ToolEnd)]
    assert [end.ending for end in ends] == ["discarded", "done"]
    assert [event.event.reason for event in nested(tree) if isinstance(event.event, Done)] == ["cancelled", "answered"]
    place = tree.log.index(ends[0])
    assert isinstance(last := tree.log[place - 1], Nested)
    assert isinstance(last.event, Done)
    assert rebuild(tree.log, tree.tools).usage == tree.run.usage
    assert len({event.event.call_id for event in nested(tree) if isinstance(event.event, ToolStart)}) == 2


def test_an_agent_in_a_response_that_is_withdrawn_ends_before_its_call() -> None:
    tools = {"helper": agent({"look": LOOK}, start="closed", is_read_only=True)}
    withdrawn: Any = [[Retry("dropped")], *answer("again")]
    tree = Tree(lambda run: early(run) if run.inner.level else [*early(run)[:4], *withdrawn], tools)
    tree.play()
    tree.check_end()
    assert [event.event.reason for event in nested(tree) if isinstance(event.event, Done)] == ["cancelled"]
    assert [end.ending for end in tree.log if isinstance(end, ToolEnd)] == ["discarded"]
    assert rebuild(tree.log, tools).usage == tree.run.usage


def test_an_agent_that_takes_too_long_is_ended_with_its_tools() -> None:
    def script(run: Run) -> Any:
        return calls(call("pay" if run.inner.level else "helper", 1)) if run.state.step == 1 else answer("late")

    tree = Tree(script, {"helper": agent({"pay": PAY}, timeout=5)})
    stopped: list[Any] = []

    def late(tree: Tree) -> None:
        inner = next(iter(tree.run.inner), None)
        if inner is not None and inner.run.state.phase == "tools" and not stopped:
            stopped.extend(tree.run.tool_late(inner.key))
            tree.carry_out((), tree.run, stopped)

    tree.play(late)
    tree.check_end()
    assert any(isinstance(command, CancelTool) for command in stopped)
    assert texts(tree.run.state.messages) == ["The tool timed out after 5 seconds, so it may have had an effect."]
    assert [event.event.reason for event in nested(tree) if isinstance(event.event, Done)] == ["cancelled"]


def test_an_agent_that_is_no_tool_any_more_is_ended_with_a_result_that_says_so() -> None:
    tree = Tree()
    others: list[Run] = []

    def take_over(tree: Tree) -> None:
        if tree.inputs == 12:
            others.append(other := rebuild(tree.log, {}))
            other.begin()

    tree.play(take_over)
    [other] = others
    assert texts(other.state.messages)[0].startswith("It was running when the run was interrupted")
    assert check(other.state.messages) == []


@pytest.mark.parametrize("event", [StepEnd(1, "stop"), RunStart((user("Go."),))])
def test_a_log_with_an_agent_in_no_call_is_refused(event: Any) -> None:
    log = [*Tree().log, Nested(("nowhere",), event)]
    with pytest.raises(Exception, match="an agent in the call 'nowhere'"):
        rebuild(log, TOOLS)
