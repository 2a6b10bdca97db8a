"""Runs as workflows of DBOS: its queues with their limits, and its dashboard.

    DBOS(config={"name": "support", "system_database_url": url, "executor_id": executor_id()})
    register(runs)
    DBOS.launch()
    DBOS.register_queue(QUEUE, global_concurrency=50)
    work(runs)

DBOS alone does not take over the workflows of a process that died: it waits for a process with the same executor id. So
`work` looks for runs whose lease has expired, and starts another workflow for them. What the old process still does is
refused by the log of the run. Every process needs its own executor id: two processes with one name would start each
other's workflows again. Needs the extra `dbos`.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid

from penstock.errors import UsageError
from penstock.log.follower import new_owner
from penstock.log.store import StoreError
from penstock.loggers import get_logger
from penstock.runs.runs import Runs

try:
    from dbos import DBOS, EnqueueOptions, WorkflowStatus
except ImportError as error:
    raise UsageError(f"this needs dbos ({error}): pip install 'penstock-llm[dbos]'") from error

QUEUE = "penstock"
"""The name of the queue and of its workflow, unless another is named."""

SWEEP = 5.0
"""The seconds between two checks for runs without a workflow."""

PAGE = 1000
"""How many workflows are read at a time."""

logger = get_logger("penstock.runs")


def executor_id() -> str:
    """A unique name for this process, for the configuration of DBOS."""
    return new_owner()


def register(runs: Runs, *, queue: str = QUEUE) -> None:
    """Declare the workflow that drives a run: before `DBOS.launch()`."""

    @DBOS.workflow(name=queue)
    async def drive(run_id: str) -> str:
        return (await runs.adrive(run_id)).state

    del drive  # DBOS knows it by its name


def enqueue(run_id: str, *, queue: str = QUEUE, priority: int = 0) -> str:
    """Add a workflow for a run; returns the id of the new or existing workflow."""
    options: EnqueueOptions = {
        "workflow_name": queue, "queue_name": queue, "workflow_id": f"{run_id}:{uuid.uuid4().hex}",
        "deduplication_id": run_id, "duplication_policy": "return-existing",
    }  # fmt: skip
    if priority:
        options["priority"] = priority
    return DBOS.enqueue_workflow_with_options(options, run_id).workflow_id


def sweep(runs: Runs, *, queue: str = QUEUE) -> list[str]:
    """Add workflows for all runs that can continue and have no workflow; returns their ids.

    These are runs that were started or decided without `enqueue`, runs with an expired approval, and runs of dead
    processes. The workflow of a dead process is cancelled, because it would count for the limits of the queue.
    """
    workflows = _active(queue)
    before = (time.time() - runs.lease) * 1000
    added: list[str] = []
    for run_id in runs.claimable():
        workflow = workflows.get(run_id)
        if workflow is not None:
            if workflow.status != "PENDING" or (workflow.updated_at or 0) >= before:
                continue  # it waits in the queue, or has just begun
            DBOS.cancel_workflows([workflow.workflow_id])
        enqueue(run_id, queue=queue)
        added.append(run_id)
    return added


def work(runs: Runs, *, queue: str = QUEUE, every: float = SWEEP, stop: threading.Event | None = None) -> None:
    """Sweep until `stop` is set, or forever. DBOS drives the runs in its own threads."""
    stop = stop or threading.Event()
    while not stop.is_set():
        try:
            sweep(runs, queue=queue)
        except StoreError as error:
            logger.warning("cannot look for runs: %s", error)
        stop.wait(every)


def _active(queue: str) -> dict[str, WorkflowStatus]:
    """The workflows that wait in a queue, or that some process executes or has executed until it died, by run."""
    workflows: dict[str, WorkflowStatus] = {}
    for offset in itertools.count(step=PAGE):
        page = DBOS.list_workflows(
            queue_name=queue, status=["ENQUEUED", "PENDING", "DELAYED"], load_input=False, load_output=False,
            limit=PAGE, offset=offset,
        )  # fmt: skip
        workflows |= {workflow.deduplication_id or workflow.workflow_id: workflow for workflow in page}
        if len(page) < PAGE:
            break
    return workflows
