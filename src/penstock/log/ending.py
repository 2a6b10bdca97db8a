"""Ends or releases a claimed run without an agent: nothing is started for it."""

from __future__ import annotations

from penstock.log.bodies import body_of, event_of
from penstock.log.store import Batch, Claim, DamagedRunError, ParkedRunError, Store
from penstock.log.suspects import end_damaged, park
from penstock.log.take_up import rebuild_claimed
from penstock.run.commands import Emit
from penstock.run.events import Taken, ToolResults, innermost


def cancel_claimed(store: Store, claim: Claim, why: str) -> bool:
    """End a claimed run: its calls get results that say so. False if another worker owns it by now."""
    try:
        run, owned = rebuild_claimed(store, claim, {})
    except DamagedRunError:
        return end_damaged(store, claim, why)
    events = [
        event
        for command in run.cancel(why)
        if isinstance(command, Emit)
        for event in command.logged
        if not isinstance(innermost(event), ToolResults)
    ]
    bodies = [body_of(event) for event in events]
    inputs = [input.number for input in owned.inputs]
    [is_owner] = store.append([Batch(claim.run_id, claim.epoch, claim.seq, bodies, "over", inputs)], durable=True)
    return is_owner


def release_claimed(store: Store, claim: Claim) -> None:
    """Release a claimed run, so that another worker can continue it at once."""
    store.append([Batch(claim.run_id, claim.epoch, claim.seq, (), "ready")], durable=True)


def postpone_claimed(store: Store, claim: Claim, seconds: float) -> None:
    """Release a claimed run, so that a worker can continue it after some seconds."""
    store.append([Batch(claim.run_id, claim.epoch, claim.seq, (), "waiting", wake_in=seconds)], durable=True)


def park_if_tried(store: Store, claim: Claim, times: int, why: str) -> None:
    """Park a claimed run that was claimed this many times in a row in vain; a `ParkedRunError` says so."""
    rows = store.read(claim.run_id, max(claim.seq - times, 0), times)
    events = [event_of(claim.run_id, seq, body) for seq, _, body in rows]
    if len(events) == times and all(isinstance(event, Taken) for event in events):
        park(store, claim, why)
        raise ParkedRunError(f"the run {claim.run_id} is parked: {why}")
