"""Which call a Chat Completions fragment belongs to.

Servers disagree about what identifies a call: the index is missing, always 0, starts at 1, drifts or is reused; the id
comes once, always, empty, late or never (QUIRKS 1-31). An id that is new opens a call, an index is only a label, and a
fragment that could belong to several calls is not guessed about.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events import CallKind
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.open_call import OpenCall

Label = int | str


class Router:
    """The calls of one answer, by the labels that fragments bear."""

    __slots__ = ("_early", "_first_labels", "_given_ids", "_labels", "_last", "_reply", "_tools", "_writing", "by_id",
                 "by_label", "doubtful", "nameless")  # fmt: skip

    def __init__(self, reply: AnswerWriter, tools: Sequence[str]) -> None:
        self._reply = reply
        self._tools = tools
        self.by_label: dict[Label, OpenCall] = {}
        self._labels: dict[OpenCall, int] = {}  # how many labels lead to a call, for those that any leads to
        self._writing: dict[OpenCall, None] = {}  # those of them that may be open
        self.nameless: list[tuple[OpenCall, OpenCall]] = []
        """Calls that began without a name, and the call that was being written where they began."""
        self.doubtful: list[OpenCall] = []
        """Calls whose index bore a piece before they began: it was lost, or another call has got it."""
        self._early: dict[Label, bool] = {}  # labels with a piece before their call: whether that was lost
        self.by_id: dict[str, OpenCall] = {}  # the latest that has the id
        self._given_ids: dict[int, str] = {}  # by block, the ids that are the provider's
        self._first_labels: dict[int, Label | None] = {}  # by block
        self._last: OpenCall | None = None

    def route(self, label: Label | None, id: str, name: str, piece: str, kind: CallKind) -> OpenCall | None:
        """The call that the fragment belongs to, opened if need be; None if there is no telling."""
        call = self._find(label, id, name, piece)
        if call is None:
            return self.open(label, id, name, kind) if id or name else None
        self._note(call, label, id, name)
        return call

    def open(self, label: Label | None, id: str, name: str, kind: CallKind) -> OpenCall:
        """A new call, whatever came before."""
        call = self._reply.call(id, kind=kind)
        self._first_labels[call.block] = label
        if label is not None and label in self._early:
            call.is_damaged = self._early.pop(label)
            self.doubtful.append(call)
        before = self._last if label is None else self.by_label.get(label)
        if not name and before is not None and before.is_open:
            self.nameless.append((call, before))
        self._note(call, label, id, name)
        return call

    def _note(self, call: OpenCall, label: Label | None, id: str, name: str) -> None:
        if id:
            self.by_id[id] = call
            self._given_ids.setdefault(call.block, id)
        if label is not None and (owner := self.by_label.get(label)) is not call:
            self._bind(label, owner, call)
        self._last = call
        if name:
            self._name(call, name)

    def _bind(self, label: Label, owner: OpenCall | None, call: OpenCall) -> None:
        self.by_label[label] = call
        self._labels[call] = self._labels.get(call, 0) + 1
        self._writing[call] = None
        if owner is not None:
            self._labels[owner] -= 1
            if not self._labels[owner]:
                del self._labels[owner]
                self._writing.pop(owner, None)

    def has_given_id(self, call: OpenCall) -> bool:
        """Whether the call's id is the provider's, and not made up."""
        return call.block in self._given_ids

    def _find(self, label: Label | None, id: str, name: str, piece: str) -> OpenCall | None:
        owner = self.by_label.get(label) if label is not None else None
        if id:
            return self._by_given_id(owner, label, id, name, piece)
        if owner is not None:
            return None if _is_over(owner, name) else owner  # QUIRKS 4: the latest owner of the index
        if label is None:
            last = self._last
            if name and (last is None or name != last.name or not last.size or last.is_closed):
                return None
            return last
        if name:
            return None
        only = self._only_open()
        if piece:
            self._early[label] = only is None
        return only

    def _by_given_id(
        self, owner: OpenCall | None, label: Label | None, id: str, name: str, piece: str
    ) -> OpenCall | None:
        if owner is not None:
            given = self._given_ids.get(owner.block)
            if given == id:
                return None if _is_over(owner, name) else owner
            if given is None and not owner.is_closed and self._may_be_of(owner, name):
                self._reply.identify(owner, id)  # it came late
                return owner
        known = self.by_id.get(id)
        if known is None:
            return None
        # QUIRKS 21: two calls may share an id; then the second has a name and an index of its own, and the first is not
        # in the middle of its arguments. Without an index, the name and the arguments must tell.
        if label is None:
            return known if self._may_be_of(known, name) and not _begins_anew(known, name, piece) else None
        has_own_label = label != self._first_labels[known.block]
        return None if has_own_label and name and (not known.size or known.is_closed) else known

    def _may_be_of(self, call: OpenCall, name: str) -> bool:
        """Whether a name is this call's: it says nothing new, or makes the name of a declared tool longer."""
        if not name or not call.name or name == call.name:
            return True
        is_longer = name.startswith(call.name) and call.name not in self._tools
        return any(tool.startswith(call.name + name) or (is_longer and tool.startswith(name)) for tool in self._tools)

    def _only_open(self) -> OpenCall | None:
        """QUIRKS 5, 6: a tail under an unknown index continues the one call that is open, if it is one.

        A call whose index was taken over by another can get no more, so it does not count.
        """
        is_last_open = self._last is not None and self._last.is_open
        found = [self._last] if is_last_open else []
        closed: list[OpenCall] = []
        for call in self._writing:
            if not call.is_open:
                closed.append(call)
            elif call is not self._last:
                found.append(call)
                if len(found) > 1:
                    break
        for call in closed:  # looked at once
            del self._writing[call]
        return found[0] if len(found) == 1 else None

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


def _is_over(call: OpenCall, name: str) -> bool:
    """Whether the name is that of another call: it differs, and the arguments are whole."""
    return bool(name) and bool(call.name) and name != call.name and call.is_closed


def _begins_anew(call: OpenCall, name: str, piece: str) -> bool:
    """Whether a piece begins another call of the same name: arguments that are whole, and then others (QUIRKS 36)."""
    if not name or not call.is_closed or not piece.lstrip().startswith("{"):
        return False
    return len(piece) != call.size or piece != call.raw()
