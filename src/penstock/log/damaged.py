"""Runs whose log is damaged: set aside, so that no worker claims them again and again, or ended. Their events stay."""

from __future__ import annotations

from penstock.events import Usage
from penstock.log.bodies import body_of
from penstock.log.store import Batch, Claim, Store
from penstock.run.events import Done


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
