"""The metrics of a process that drives runs: those of its log, and those of its own work."""

from __future__ import annotations

from penstock.asgi.metrics import Metrics
from penstock.log.flusher import COMMIT_SECONDS, flusher_of
from penstock.log.retention.survey import RunCounts
from penstock.log.store import Store
from penstock.runs.runs import Runs
from penstock.serve.operations.log_watch import LogWatch

STATES = ("ready", "running", "waiting", "parked", "damaged")
"""The states of unfinished runs."""

CLAIMS = ("started", "continued", "taken_over")
"""How a run was claimed."""


class RunMetrics:
    """The metrics of a log, which every process on it has alike, and of the runs that this process drives."""

    def __init__(self, store: Store, runs: Runs, watch: LogWatch) -> None:
        self._watch = watch
        self._counts: RunCounts | None = None
        self.is_draining = False
        self.metrics = metrics = Metrics("penstock")
        self._declare_log(metrics)
        self._declare_process(metrics, runs)
        self._declare_flusher(metrics, store)

    async def text(self) -> bytes:
        """The metrics as Prometheus reads them. Those of the log are missing while it cannot be reached."""
        self._counts = await self._watch.counts()
        return self.metrics.text()

    def _declare_log(self, metrics: Metrics) -> None:
        metrics.gauge("log_up", "Whether the log of runs can be reached", lambda: float(self._counts is not None))
        metrics.table("gauge", "runs", "Unfinished runs of the log by state", "state", self._runs)
        metrics.table("gauge", "ready_runs", "Runs without an owner, by agent", "agent", self._ready)
        metrics.gauge(
            "oldest_ready_seconds", "How long the first run in the queue has waited for a worker",
            lambda: None if self._counts is None else self._counts.oldest_ready,
        )  # fmt: skip
        metrics.gauge(
            "expired_runs", "Runs whose owner has died, and that nobody has taken over yet",
            lambda: None if self._counts is None else self._counts.expired,
        )  # fmt: skip
        metrics.gauge(
            "workers", "Processes that drive runs and are alive",
            lambda: None if self._counts is None else self._counts.workers,
        )  # fmt: skip

    def _declare_process(self, metrics: Metrics, runs: Runs) -> None:
        metrics.gauge("driven_runs", "Runs that this process drives", lambda: len(runs.driven))
        metrics.table(
            "counter", "claims_total", "Runs that this process has claimed: started, continued, or taken over", "how",
            lambda: dict.fromkeys(CLAIMS, 0) | runs.counts.claims,
        )  # fmt: skip
        metrics.gauge("draining", "Whether this process is about to stop", lambda: float(self.is_draining))
        metrics.table(
            "counter", "ended_runs_total", "How this process has left runs, by the reason", "reason",
            lambda: runs.counts.ends,
        )  # fmt: skip
        metrics.gauge(
            "stranded_runs", "Runs of agents that this process does not have", lambda: runs.unclaimed.stranded
        )

    def _declare_flusher(self, metrics: Metrics, store: Store) -> None:
        flusher = flusher_of(store)
        metrics.histogram(
            "commit_seconds", "How long commits of events took", COMMIT_SECONDS,
            lambda: ([*flusher.commits], flusher.commit_seconds),
        )  # fmt: skip
        metrics.gauge("commit_backlog", "Units of events that wait for a commit", lambda: flusher.backlog)
        metrics.gauge("log_behind", "Whether the last write to the log has failed", lambda: float(flusher.is_behind))

    def _runs(self) -> dict[str, float]:
        return {} if self._counts is None else {state: self._counts.runs.get(state, 0) for state in STATES}

    def _ready(self) -> dict[str, float]:
        return {} if self._counts is None else {**self._counts.ready}
