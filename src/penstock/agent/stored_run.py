"""Loads a stored run: its signature, its content and its history are validated before anything continues."""

from __future__ import annotations

import time

from msgspec.structs import replace

from penstock.agent.calls.step_hooks import expect_model
from penstock.agent.config import AgentConfig
from penstock.errors import UsageError
from penstock.history.check import check
from penstock.history.read import read
from penstock.history.repair import repair
from penstock.messages import Message
from penstock.run.events import HistoryReplaced
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.state import RunState
from penstock.run.step_changes import splices_between
from penstock.run.stored import Key, verify


def load_run(stored: bytes | str, key: Key | None, config: AgentConfig) -> Run:
    """The run that `dump` has stored, with the tools and limits of this agent.

    A run may have begun with a history that providers refuse, so the history before the step under way is repaired. If
    what the step adds is not valid after it, no run has stored this.
    """
    rules = config.policies, config.limits, config.run_repaired, config.output
    run, deadlines = load(verify(stored, key), *rules)
    now = time.time()
    run.state.seconds_left = {call_id: deadline - now for call_id, deadline in deadlines.items()}
    for member in run.tree():
        _check(member.state)
    _expect_all(run.state, config)
    return run


def _expect_all(state: RunState, config: AgentConfig) -> None:
    """Raise a `UsageError` if the step under way needs something that hooks made, and this agent does not have."""
    changes = state.changes
    if state.phase == "answer":
        expect_model(changes.model_for(state.tally.attempt), changes, config.models)
        needed = {*(changes.tools or ())}
    else:
        needed = {call.name for call in state.executions.table if call.state != "finished"}
    missing = needed.intersection(changes.brought_tools or ()).difference(config.tools)
    if missing and state.phase in ("answer", "tools") and not config.sources:
        raise UsageError(
            f"the stored run needs the tool {min(missing)!r}, which before_step added and the agent does not have: "
            "add it to the tools of the agent, or pass tools=… here"
        )


def _check(state: RunState) -> None:
    """Repair the history of a run, and refuse one that no run has stored."""
    start = len(state.messages) - (state.phase == "tools")
    step = read(state.messages[start:]).messages  # without malformed vendor state
    earlier = repair(state.messages[:start])
    _replace(state, [*earlier, *step])
    if any(message.role != "user" for message in state.new_messages):
        raise UsageError("the stored run is not valid: a message that was added to it is not one of the user")
    state.new_messages[:] = repair(state.new_messages)
    roles = [message.role for message in earlier]
    if not state.is_over and (not {"user", "assistant", "tool"} & {*roles} or roles[-1] == "assistant"):
        raise UsageError("the stored run is not valid: it has no message to answer")
    if problems := check(state.history):
        raise UsageError(f"the stored run is not valid: {problems[0]}")


def _replace(state: RunState, messages: list[Message]) -> None:
    """Use the repaired messages. What hooks changed later is stored as differences from them."""
    if messages != state.messages:
        state.record.add(HistoryReplaced(splices_between(state.messages, messages)))
        state.changes = replace(state.changes, messages=None)
    state.messages[:] = messages
