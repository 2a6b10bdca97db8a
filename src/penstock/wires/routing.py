"""Which call a Chat Completions fragment belongs to.

Servers disagree about what identifies a call: the index is missing, always 0, starts at 1, drifts or is reused; the id
comes once, always, empty, late or never (QUIRKS 1-31). An id that is new opens a call, an index is only a label, and a
fragment that could belong to several calls is not guessed about.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events import CallKind
from penstock.wires.call import OpenCall
from penstock.wires.reply import Reply

Label = int | str


class Router:
    """The calls of one answer, by the labels that fragments bear."""

    __slots__ = ("_by_id", "_first_labels", "_given_ids", "_labels", "_last", "_reply", "_tools", "by_label")

    def __init__(self, reply: Reply, tools: Sequence[str]) -> None:
        self._reply = reply
        self._tools = tools
        self.by_label: dict[Label, OpenCall] = {}
        self._labels: dict[OpenCall, int] = {}  # how many labels lead to a call, for those that any leads to
        self._by_id: dict[str, OpenCall] = {}
        self._given_ids: dict[int, str] = {}  # by block, the ids that are the provider's
        self._first_labels: dict[int, Label | None] = {}  # by block
        self._last: OpenCall | None = None

    def route(self, label: Label | None, id: str, name: str, kind: CallKind = "function") -> OpenCall | None:
        """The call that the fragment belongs to, opened if need be; None if there is no telling."""
        call = self._find(label, id, name)
        if call is None:
            if not id and not name:
                return None
            call = self._reply.call(id, kind=kind)
            self._first_labels[call.block] = label
        if id:
            self._by_id.setdefault(id, call)
            self._given_ids.setdefault(call.block, id)
        if label is not None and (owner := self.by_label.get(label)) is not call:
            self._bind(label, owner, call)
        self._last = call
        if name:
            self._name(call, name)
        return call

    def _bind(self, label: Label, owner: OpenCall | None, call: OpenCall) -> None:
        self.by_label[label] = call
        self._labels[call] = self._labels.get(call, 0) + 1
        if owner is not None:
            self._labels[owner] -= 1
            if not self._labels[owner]:
                del self._labels[owner]

    def has_given_id(self, call: OpenCall) -> bool:
        """Whether the call's id is the provider's, and not made up."""
        return call.block in self._given_ids

    def _find(self, label: Label | None, id: str, name: str) -> OpenCall | None:
        owner = self.by_label.get(label) if label is not None else None
        if id:
            return self._by_given_id(owner, label, id, name)
        if owner is not None:
            # QUIRKS 4: the latest owner of the index. Another name after whole arguments is another call.
            is_another = name and owner.name and name != owner.name and owner.is_closed
            return None if is_another else owner
        if label is None:
            last = self._last
            if name and (last is None or name != last.name or not last.size or last.is_closed):
                return None
            return last
        return None if name else self._only_open()

    def _by_given_id(self, owner: OpenCall | None, label: Label | None, id: str, name: str) -> OpenCall | None:
        if owner is not None and self._given_ids.get(owner.block) == id:
            return owner
        known = self._by_id.get(id)
        if known is not None:
            # QUIRKS 21: two calls may share an id; then the second has a name and an index of its own, and the first is
            # not in the middle of its arguments.
            has_own_label = label is not None and label != self._first_labels[known.block]
            return None if has_own_label and name and (not known.size or known.is_closed) else known
        if owner is not None and owner.block not in self._given_ids and not owner.is_closed:
            owner.id = id  # it came late
            return owner
        return None

    def _only_open(self) -> OpenCall | None:
        """QUIRKS 5, 6: a tail under an unknown index continues the one call that is open, if it is one.

        A call whose index was taken over by another can get no more, so it does not count.
        """
        found = self._last if self._last and self._last.is_open else None
        for call in self._labels:
            if call.is_open and call is not found:
                if found is not None:
                    return None
                found = call
        return found

    def _name(self, call: OpenCall, fragment: str) -> None:
        call.name = self._merged(call, fragment)
        if not call.is_started and self._is_settled(call.name):
            call.start()

    def _merged(self, call: OpenCall, fragment: str) -> str:
        """QUIRKS 14, 15: most repeat the name, a few send it in pieces; the declared tools tell which."""
        name = call.name
        if not name or name == fragment:
            return fragment
        if self._tools:
            if any(tool.startswith(name + fragment) for tool in self._tools):
                return name + fragment
            return fragment if fragment in self._tools and name not in self._tools else name
        if call.size:
            return name
        return fragment if fragment.startswith(name) else name + fragment

    def _is_settled(self, name: str) -> bool:
        """Whether the name cannot be the beginning of a longer one."""
        return not any(tool != name and tool.startswith(name) for tool in self._tools)
