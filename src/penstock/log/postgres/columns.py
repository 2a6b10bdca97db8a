"""The columns of rows that one statement writes, as arrays of one type each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from penstock.log.media import MEDIA_SIZE, take_out
from penstock.log.store import Batch


class Integers(list[int]):
    """An array of `int8`."""


class Floats(list[float | None]):
    """An array of `float8`."""


class Texts(list[str]):
    """An array of `text`."""


class Blobs(list[bytes]):
    """An array of `bytea`."""


def append_values(batches: Sequence[Batch]) -> dict[str, Any]:
    """The columns that the statement appends, as arrays."""
    media: dict[str, dict[str, bytes]] = {}
    last_seqs, last_hashes, event_seqs, bodies, event_places = Integers(), Blobs(), Integers(), Blobs(), Integers()
    for place, batch in enumerate(batches, 1):
        body, seq = b"", batch.seq
        for body in batch.bodies:
            if len(body) >= MEDIA_SIZE:
                body, taken_out = take_out(body)
                media.setdefault(batch.run_id, {}).update(taken_out)
            seq += 1
            event_seqs.append(seq)
            bodies.append(body)
            event_places.append(place)
        last_seqs.append(seq)
        last_hashes.append(hashlib.sha256(body).digest())
    inputs = [(batch.run_id, number) for batch in batches for number in (*batch.inputs, *batch.refused)]
    return {
        "run_ids": Texts([batch.run_id for batch in batches]),
        "epochs": Integers([batch.epoch for batch in batches]),
        "seqs": Integers([batch.seq for batch in batches]),
        "last_seqs": last_seqs,
        "states": Texts([batch.state for batch in batches]),
        "last_hashes": last_hashes,
        "wakes_in": Floats([batch.wake_in for batch in batches]),
        "in_tools": Integers([-1 if batch.in_tool is None else batch.in_tool for batch in batches]),
        "progress": Texts([batch.progress for batch in batches]),
        "event_seqs": event_seqs,
        "bodies": bodies,
        "event_places": event_places,
        "input_runs": Texts([run_id for run_id, _ in inputs]),
        "input_numbers": Integers([number for _, number in inputs]),
        "taken": Integers([number for batch in batches for number in batch.inputs]),
        "refused": Integers([number for batch in batches for number in batch.refused]),
        **media_values(media),
    }


def media_values(media: dict[str, dict[str, bytes]]) -> dict[str, Any]:
    """The media of runs, by hash, as arrays."""
    bodies = {digest: body for of_run in media.values() for digest, body in of_run.items()}
    uses = [(run_id, digest) for run_id, of_run in media.items() for digest in of_run]
    return {
        "hashes": Texts(bodies),
        "media": Blobs(bodies.values()),
        "use_runs": Texts([run_id for run_id, _ in uses]),
        "use_hashes": Texts([digest for _, digest in uses]),
    }
