"""Ownership of a run: its log in this process, the lease on it, and the loss of it."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.agent.run_errors import lease_error
from penstock.errors import UsageError
from penstock.log import points
from penstock.log.flusher import flusher_of
from penstock.log.run_writer import RunCallbacks, RunWriter
from penstock.log.start import OwnedRun
from penstock.run.commands import AskModel, PrepareStep, ReviseResult, StartTool


class Ownership:
    """Whether this process may continue a run. It owns a run without a log for good, one with a log by a lease.

    `owned` is the claim on the run, None if it has no log. `log` is its writer, from `open` on. A run that `is_left`
    is not driven by this process any more.
    """

    def __init__(self, owned: OwnedRun | None) -> None:
        self.owned = owned
        self.log: RunWriter | None = None
        self.is_left = False
        self._lost: Exception | None = None

    @property
    def has_log(self) -> bool:
        """Whether the run is kept in a log."""
        return self.owned is not None

    @property
    def outlives_reader(self) -> bool:
        """Whether the run continues here or elsewhere when its reader leaves."""
        return self.owned is not None and self.owned.outlives_reader

    def detach(self) -> None:
        """Let the run continue when its reader leaves."""
        if self.owned is None:
            raise UsageError("only a run with a log can continue without its reader: start it with log=")
        self.owned = replace(self.owned, outlives_reader=True)

    def open(self, callbacks: RunCallbacks) -> RunWriter:
        """Begin to write the log; from here on the lease is renewed."""
        assert self.owned is not None
        self.log = flusher_of(self.owned.store).attach(self.owned.claim, callbacks, self.owned.inputs)
        return self.log

    def lose(self, error: Exception) -> None:
        """Another worker has the run."""
        self._lost = error

    def raise_lost(self) -> None:
        """Raise the error with which the run was lost."""
        assert self._lost is not None
        raise self._lost

    def check(self, command: PrepareStep | AskModel | StartTool | ReviseResult) -> None:
        """The reader has reached this command: raise a `LostRunError` if it must not be carried out here."""
        match command:
            case StartTool():
                self.visit("before_tool_start", command.name)
            case AskModel():
                self.visit("before_request")
            case PrepareStep() | ReviseResult():
                pass
        self.check_lease()

    def check_lease(self) -> None:
        """Raise a `LostRunError` if no tool may start and no request be sent: the lease of this process has ended."""
        if self._lost is not None:
            raise self._lost
        if self.log is not None and not self.is_left and not self.log.is_owner:
            self.is_left = True
            raise lease_error(self.log)

    def may_start(self) -> bool:
        """Whether a tool may still begin: right before its function is called, in any thread.

        Between the start of its task or thread and this moment, the process may have been frozen or busy.
        """
        if self.log is None or self.log.is_owner:
            return True
        if not self.log.is_closed:  # else the run has ended, or whoever closed the log has reported the loss
            self.log.callbacks.on_lost(self._lost or lease_error(self.log))
        return False

    def visit(self, point: points.Point, detail: str = "") -> None:
        """A point at which a test may end the process."""
        if points.hook is not None and self.log is not None:
            points.hook(point, (detail,), self.log)
