"""The sentences that a model reads instead of a result: why a call did not run, did not end, or was discarded.

They are part of the histories that users keep, so a sentence that changes here changes what models read. `why` is the
end of a sentence, without a full stop.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events import ToolCallInvalid

# The call did not run.

CUT_OR_MALFORMED = "Not run: the call was cut off or malformed."
STILL_GROWING = "Not run: the call had not come to its end yet."
NOT_RUN_YET = "Not run yet."
AWAITS_APPROVAL = "Not run yet: it waits for approval."
CANNOT_ASK = "Not run: it needs approval, which cannot be requested here."
CANNOT_DEFER = "Not run: its result would have to come from elsewhere."


def not_run(why: str) -> str:
    """A call that had not started when its run ended."""
    return f"Not run: {why}."


def invalid_call(call: ToolCallInvalid) -> str:
    """A call that cannot run."""
    return not_run(f"the call is {call.why.replace('_', ' ')} ({call.message or 'no JSON object'})")


def not_approved(seconds: float) -> str:
    """A call whose approval expired."""
    return not_run(f"nobody approved this call within {seconds:g} seconds")


def hook_failed(kind: str) -> str:
    """A call whose hook raised an exception of this type, or did not return in time."""
    return not_run(f"a hook of this program failed ({kind})")


def declined(reason: str) -> str:
    """A call that a person declined."""
    return f"The user declined this call{f': {reason}' if reason else ''}."


def no_such_tool(name: str, known: Iterable[str]) -> str:
    """A call of an unknown tool."""
    return f"There is no tool called {name!r}. There are: {', '.join(known) or 'none'}."


def surplus_call(limit: int) -> str:
    """A call of a response that has more calls than it may have."""
    return f"{not_run(f'a response may have {limit} calls, and this one has more')} Make the others in the next one."


def skipped(name: str, call_id: str, failure: str) -> str:
    """A call that runs alone, after a call before it that was not successful."""
    why = f"{name} ({call_id}), which comes before it, {failure}"
    after = "This tool runs only after the calls before it have succeeded."
    return f"{not_run(why)} {after} Make the call again if it is still needed."


def awaits_call(name: str, call_id: str) -> str:
    """A call that waits for one before it."""
    return f"Not run yet: it waits for {name} ({call_id})."


def too_many_calls(limit: int) -> str:
    """A call after as many calls as there may be."""
    return not_run(f"there may be {limit} calls")


def nested_too_deeply(levels: int) -> str:
    """A call of an agent inside of too many others."""
    return not_run(f"agents may be nested {levels} levels deep")


# The call started, and has no result.

NO_RESULT = "There is no result: the run was interrupted before the tool ended, so it may have had side effects."
UNCONFIRMED_YET = "It ran, but its call was not confirmed yet when this was written."
_ELSEWHERE = "It was handed on to run elsewhere, so it may have an effect"
NO_RESULT_YET = f"{_ELSEWHERE}; its result has not come yet."


UNREVISED_YET = "It ran; a hook of this program has not passed on its result yet."


def result_withheld(kind: str, *, may_have_effect: bool) -> str:
    """A tool whose result a hook should have passed on, and failed."""
    return f"It ran{_effect(may_have_effect)}. Its result is withheld: a hook of this program failed ({kind})."


def unrevised(why: str) -> str:
    """A tool whose result no hook has passed on before the run ended."""
    return f"It ran, but a hook of this program had not passed on its result yet: {why}."


def unconfirmed(why: str) -> str:
    """A tool that started early, and whose call never came to its end."""
    return f"It ran, but the call was never confirmed, so its result was discarded: {why}."


def still_running(*, may_have_effect: bool) -> str:
    """A tool that is running."""
    return f"It was still running when this was written{_effect(may_have_effect)}."


def interrupted(*, may_have_effect: bool) -> str:
    """A tool that ended with its process."""
    return f"It was running when the run was interrupted{_effect(may_have_effect)}."


def cancelled(why: str, *, may_have_effect: bool) -> str:
    """A tool that was running when its run ended."""
    return f"Cancelled after it had been started{_effect(may_have_effect)}: {why}."


def timed_out(seconds: float, *, may_have_effect: bool) -> str:
    """A tool that exceeded its timeout."""
    return f"The tool timed out after {seconds:g} seconds{_effect(may_have_effect)}."


def took_too_long(seconds: float) -> str:
    """A tool of a token stream that exceeded its timeout."""
    return f"Cancelled: it took longer than {seconds:g} seconds."


def no_result_within(seconds: float) -> str:
    """A deferred call whose result did not come in time."""
    return f"{_ELSEWHERE}; no result came within {seconds:g} seconds."


def left_elsewhere(why: str) -> str:
    """A deferred call whose run ended."""
    return f"{_ELSEWHERE}; nobody waits for it: {why}."


def _effect(may_have_effect: bool) -> str:
    return ", so it may have had an effect" if may_have_effect else ""


# The call started early, and was discarded.

UNREAD = "Discarded: its call was not read."
UNREAD_REST = "Discarded: the tool ran, but the run was stopped before the rest of its call was read."
HELD_BY_EARLIER = "a call before it turned out to have side effects. It runs again after that call"
STARTED_BEFORE = "What was started before that was known has been discarded."


def discarded(why: str) -> str:
    """A tool whose call changed, or whose response was withdrawn."""
    return f"Discarded: {why}."
