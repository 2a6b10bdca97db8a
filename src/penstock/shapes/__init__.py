"""Histories from and to the shapes that people have: one module a shape.

State that a vendor put on a part comes back to that vendor: fields beside the text (`cache_control`, say) are an
`Opaque` of the kind `fields` on the part, those of a message one of the kind `message`, and blocks that only the vendor
knows are kept whole, under their own name. Of a block that shows something, others are told that: it is a part of ours,
and the block is on it, as the kind `block`.
"""

from __future__ import annotations

from penstock.shapes.export import export_messages, with_history
from penstock.shapes.file import read_history
from penstock.shapes.history import Reading, as_messages, read
from penstock.shapes.places import Places

__all__ = ["Places", "Reading", "as_messages", "export_messages", "read", "read_history", "with_history"]
