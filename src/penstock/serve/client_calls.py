"""Ids of the calls that a stateless client runs: they name the run, so that the results can resume it.

A client of `/v1` keeps nothing but its history. The id of a call is all of ours that comes back with its result.
"""

from __future__ import annotations

import base64
import binascii
import re

from msgspec import Struct

_ID = re.compile(r"call_([A-Za-z0-9_-]{22})_([1-9][0-9]{0,11})")


class CallRef(Struct, frozen=True):
    """A call of a run, by the number of the event that asked the client to run it."""

    run_id: str
    seq: int

    @property
    def id(self) -> str:
        """The id for the client. It has at most 40 characters, and only those that every provider takes."""
        return f"call_{base64.urlsafe_b64encode(bytes.fromhex(self.run_id)).decode()[:22]}_{self.seq}"


def read_call_id(id: str) -> CallRef | None:
    """The call with this id; None if the id is not one of ours."""
    match = _ID.fullmatch(id)
    if match is None:
        return None
    try:
        run_id = base64.urlsafe_b64decode(f"{match[1]}==").hex()
    except binascii.Error:
        return None
    ref = CallRef(run_id, int(match[2]))
    return ref if ref.id == id else None
