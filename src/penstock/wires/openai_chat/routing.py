"""Finds the call that a Chat Completions fragment belongs to.

Servers disagree about what identifies a call: the index is missing, always 0, starts at 1, drifts or is reused; the id
comes once, always, empty, late or never (QUIRKS 1-31). So a new id opens a call, an index is only a label, and a
fragment that could belong to several calls is not assigned to any.

What `Router.find` returns. The owner is the call that last had the fragment's label. "None" means that the fragment
opens a call if it has an id or a name, and else belongs to no call. The last call is the one that was last opened, got
a fragment with an id or without a label, or got another label. A call is over for a fragment if its arguments are
closed and the fragment has another name.

| id | label | state | result |
|---|---|---|---|
| the owner's | owned | the owner is over, or is sent again / else | None / the owner |
| any | owned | the owner has no id from the provider, is not closed, and the name fits | the owner |
| of a known call | none | the name fits, and the piece does not begin other arguments / else | that call / None |
| of a known call | not that call's first | has a name; that call has no arguments or is closed | None (QUIRKS 21) |
| of a known call | any other | | that call |
| new | any | | None |
| none | owned | the owner is over / is not | None / the owner (QUIRKS 4) |
| none | none | has a name: not the last call's, or that has no arguments or is closed | None |
| none | none | any other | the last call |
| none | not owned | has a name | None |
| none | not owned | has no name | the only open call, if there is exactly one (QUIRKS 5, 6) |
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.wires.shared.decode_response.open_call import OpenCall

Label = int | str


class Router:
    """Knows the calls of one answer by the ids and labels of their fragments. It never changes a call."""

    __slots__ = ("_by_id", "_first_labels", "_labels", "_last", "_names", "_provider_ids", "by_label")

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._labels = Labels()
        self._by_id: dict[str, OpenCall] = {}  # the latest call that has the id
        self._provider_ids: dict[int, str] = {}  # by block
        self._first_labels: dict[int, Label | None] = {}  # by block
        self._last: OpenCall | None = None
        self.by_label = self._labels.by_label  # only to be read

    def has_provider_id(self, call: OpenCall) -> bool:
        """Whether the call's id is the provider's, and not generated."""
        return call.block in self._provider_ids

    def first_label(self, call: OpenCall) -> Label | None:
        """The label of the fragment that opened the call."""
        return self._first_labels.get(call.block)

    def with_id(self, id: str) -> OpenCall | None:
        return self._by_id.get(id)

    def current(self, label: Label | None) -> OpenCall | None:
        """The call that a fragment with this label continues if it does not open another."""
        return self._last if label is None else self.by_label.get(label)

    def opened(self, call: OpenCall, label: Label | None) -> None:
        self._first_labels[call.block] = label

    def assigned(self, call: OpenCall, label: Label | None, id: str) -> None:
        """Records that a fragment with this label and id belongs to the call."""
        if id:
            self._by_id[id] = call
            self._provider_ids.setdefault(call.block, id)
        if id or label is None or self.by_label.get(label) is not call:  # else it only continues the call of its label
            self._last = call
        if label is not None:
            self._labels.bind(label, call)

    def find(self, label: Label | None, id: str, name: str, piece: str) -> OpenCall | None:
        """The call that the fragment belongs to; see the table above."""
        owner = self.by_label.get(label) if label is not None else None
        if id:
            return self._find_by_id(owner, label, id, name, piece)
        if owner is not None:
            return None if _is_over(owner, name) else owner
        if label is None:
            last = self._last
            if name and (last is None or name != last.name or not last.size or last.is_closed):
                return None
            return last
        return None if name else self._labels.only_open(self._last)

    def _find_by_id(
        self, owner: OpenCall | None, label: Label | None, id: str, name: str, piece: str
    ) -> OpenCall | None:
        if owner is not None:
            provider_id = self._provider_ids.get(owner.block)
            if provider_id == id:
                return None if _is_over(owner, name) or _is_sent_again(owner, name, piece) else owner
            if provider_id is None and not owner.is_closed and self._names.may_be_of(owner.name, name):
                return owner
        known = self._by_id.get(id)
        if known is None:
            return None
        if label is None:
            is_same = self._names.may_be_of(known.name, name) and not _is_sent_again(known, name, piece)
            return known if is_same else None
        has_own_label = label != self._first_labels[known.block]
        return None if has_own_label and name and (not known.size or known.is_closed) else known


class Labels:
    """Which call each label leads to, and which of these calls are open."""

    __slots__ = ("_counts", "_writing", "by_label")

    def __init__(self) -> None:
        self.by_label: dict[Label, OpenCall] = {}
        self._counts: dict[OpenCall, int] = {}  # how many labels lead to a call, if any does
        self._writing: dict[OpenCall, None] = {}  # calls that may still be open

    def bind(self, label: Label, call: OpenCall) -> None:
        owner = self.by_label.get(label)
        if owner is call:
            return
        self.by_label[label] = call
        self._counts[call] = self._counts.get(call, 0) + 1
        self._writing[call] = None
        if owner is not None:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
                self._writing.pop(owner, None)

    def only_open(self, last: OpenCall | None) -> OpenCall | None:
        """The only open call, the last one included; None if there is none or more than one.

        A call that has lost its label to another cannot get more, so it does not count.
        """
        candidates = [last] if last is not None and last.is_open else []
        closed: list[OpenCall] = []
        for call in self._writing:
            if not call.is_open:
                closed.append(call)
            elif call is not last:
                candidates.append(call)
                if len(candidates) > 1:
                    break
        for call in closed:  # so that each is looked at once
            del self._writing[call]
        return candidates[0] if len(candidates) == 1 else None


class ToolNames:
    """The declared tools, which tell a repeated name from a name in pieces (QUIRKS 14, 15)."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = tools

    def may_be_of(self, name: str, fragment: str) -> bool:
        """Whether the fragment can be a part of this call's name: it repeats it, or makes it longer."""
        if not fragment or not name or fragment == name:
            return True
        is_longer = fragment.startswith(name) and name not in self._tools
        return any(
            tool.startswith(name + fragment) or (is_longer and tool.startswith(fragment)) for tool in self._tools
        )

    def merged(self, name: str, fragment: str, has_arguments: bool) -> str:
        """The name after this fragment of it: most servers repeat the name, a few send it in pieces."""
        if not name or name == fragment:
            return fragment
        if self._tools:
            if any(tool.startswith(name + fragment) for tool in self._tools):
                return name + fragment
            return fragment if fragment in self._tools and name not in self._tools else name
        if has_arguments:
            return name
        return fragment if fragment.startswith(name) else name + fragment

    def is_settled(self, name: str) -> bool:
        """Whether the name cannot be the beginning of a longer one."""
        return not any(tool != name and tool.startswith(name) for tool in self._tools)


def _is_over(call: OpenCall, name: str) -> bool:
    return bool(name) and bool(call.name) and name != call.name and call.is_closed


def _is_sent_again(call: OpenCall, name: str, piece: str) -> bool:
    """Whether a fragment with the id, and the name, of a call with complete arguments begins arguments again."""
    return bool(name) and call.is_closed and piece.lstrip().startswith("{")
