"""Ids of calls for stateless clients: they name the run, so that the results can resume it.

A client of `/v1` keeps only its history. The call id is the only part of ours that comes back with a result.
"""

from __future__ import annotations

import base64
import binascii
import re

from msgspec import Struct

_ID = re.compile(r"call_([A-Za-z0-9_-]{22})_([1-9][0-9]{0,11})")


class CallRef(Struct, frozen=True):
    """A call of a run, by the number of the event that sent it to the client."""

    run_id: str
    seq: int

    @property
    def id(self) -> str:
        """The id for the client: at most 40 characters, all of them accepted by every provider."""
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
