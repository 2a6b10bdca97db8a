"""Runs that no worker claims: their log is damaged, or they ended too many workers. Their events stay."""

from __future__ import annotations

from penstock.events import Usage
from penstock.log.bodies import body_of
from penstock.log.store import Batch, Claim, Store
from penstock.log.suspects import was_alone
from penstock.run.events import Done, Waiting
from penstock.run.limits import Limits


def set_aside(store: Store, claim: Claim) -> None:
    """Set a claimed, damaged run aside: no worker claims it again. A cancelled run ends."""
    cancel = next((input for input in store.inputs([claim.run_id]) if input.kind == "cancel"), None)
    if cancel is not None:
        end_damaged(store, claim, cancel.body.decode("utf-8", "replace"))
    else:
        store.append([Batch(claim.run_id, claim.epoch, claim.seq, (), "damaged")], durable=True)


def end_damaged(store: Store, claim: Claim, why: str) -> bool:
    """End a claimed, damaged run, although its calls are unknown. False if another worker owns it by now."""
    inputs = [input.number for input in store.inputs([claim.run_id])]
    body = body_of(Done("cancelled", "", (), Usage(), why))
    [is_owner] = store.append([Batch(claim.run_id, claim.epoch, claim.seq, [body], "over", inputs)], durable=True)
    return is_owner


def reason_to_park(claim: Claim, limits: Limits | None) -> str:
    """Why a claimed run must not continue; empty if it may.

    It has lost too many workers in this step, and the last one had no other runs.
    """
    most = (limits or Limits()).takeovers
    if most is None or claim.lost <= most or not was_alone(claim.suspect):
        return ""
    return (
        f"{claim.lost} workers died or lost the run in one step, the last of them while it had no other runs: the run "
        "may be the cause"
    )


def park(store: Store, claim: Claim, why: str) -> bool:
    """Park a claimed run: no worker claims it until `retry`. False if another worker owns it by now."""
    batch = Batch(claim.run_id, claim.epoch, claim.seq, [body_of(Waiting(why=why))], "parked", progress="cleared")
    [is_owner] = store.append([batch], durable=True)
    return is_owner
