"""Drives claimed runs: rebuilds each from its log, and continues it until it finishes, waits, or has another owner."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.agent.agent import Agent
from penstock.agent.callbacks import Callbacks
from penstock.agent.calls.step_hooks import with_model
from penstock.agent.config import AgentConfig
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.driver import Driver
from penstock.errors import UsageError
from penstock.log import points
from penstock.log.ending import cancel_claimed, park_if_tried, postpone_claimed, release_claimed
from penstock.log.start import OwnedRun
from penstock.log.store import Claim, DamagedRunError, LostRunError, ParkedRunError, Store, StoreError
from penstock.log.store_retries import awith_retries
from penstock.log.take_up import read_start, take_up
from penstock.loggers import get_logger
from penstock.run.machine import Run
from penstock.runs.client_tools import with_client_tools
from penstock.runs.quarantine import Quarantine
from penstock.runs.worker import beginning_text, claim_kind, ending_text, log_fields

logger = get_logger("penstock.runs")

DEPS_PAUSE = 5.0
"""The seconds until a run is tried again whose `deps` failed, or whose model is not known here."""

MODEL_TRIES = 12
"""How many times a fork with an unknown model is tried until it is parked: another worker may know the model."""

Log = logging.LoggerAdapter[logging.Logger]


class Outcome(Struct):
    """What has become of a claimed run here; see `WorkCounts`."""

    end: str = "failed"


class WorkCounts(Struct):
    """What this process has done with runs since it started.

    `claims` are counted by how the run was found: `started`, `continued`, or `taken_over` from a process that has died.
    `ends` are counted by the reason of the end; `paused` runs wait. Others were `lost` to another process, `released`
    to it, `parked`, `damaged`, or `failed` and are tried again.
    """

    claims: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


class Driving:
    """Drives the claimed runs of a process, and counts them."""

    def __init__(
        self,
        store: Store,
        agents: Mapping[str, Agent[Any, Any]],
        deps: Callable[[Any], Any] | None,
        on_waiting: Callable[[str], Any] | None,
    ) -> None:
        self.quarantine = Quarantine(store)
        self.counts = WorkCounts()
        self._store = store
        self._agents = agents
        self._deps = deps
        self._on_waiting = on_waiting

    async def go_on(self, claim: Claim, owner: str) -> None:
        """Drive a claimed run until it finishes, waits, or has another owner."""
        log = logging.LoggerAdapter(logger, {"fields": log_fields(claim, owner)})
        self.counts.claims[claim_kind(claim)] += 1
        outcome = Outcome()
        with self.quarantine.holding(claim):
            try:
                await self._drive(claim, log, outcome)
            except ParkedRunError as error:
                outcome.end = "parked"
                log.warning("%s", error)
            except DamagedRunError:
                outcome.end = "damaged"
                raise
            finally:
                self.counts.ends[outcome.end] += 1

    def agent(self, name: Any) -> Agent[Any, Any]:
        """The agent with this name."""
        if not isinstance(name, str) or name not in self._agents:
            raise UsageError(f"there is no agent called {name!r} here; there are: {', '.join(self._agents) or 'none'}")
        return self._agents[name]

    async def _drive(self, claim: Claim, log: Log, outcome: Outcome) -> None:
        if points.hook is not None:
            points.hook("after_claim", (), None)
        agent = self.agent(claim.agent)
        driven = await self._prepare(claim, agent, outcome)
        if driven is None:
            return
        log.info("run %s: %s, agent %s", claim.run_id, beginning_text(claim), agent.name or claim.agent)
        driver = Driver(driven)
        try:
            await driver.drain()
        except LostRunError as error:
            outcome.end = "lost"
            log.info("run %s: %s", claim.run_id, error)
            return
        except asyncio.CancelledError:  # the worker stops; the run may have ended nevertheless
            outcome.end = "released" if driver.done is None else driver.done.reason
            log.info("run %s: %s", claim.run_id, ending_text(driver.done))
            raise
        outcome.end = "released" if driver.done is None else driver.done.reason
        log.info("run %s: %s", claim.run_id, ending_text(driver.done))
        if self._on_waiting is not None and driver.done is not None and driver.done.reason == "paused":
            result = self._on_waiting(claim.run_id)
            if isawaitable(result):
                await result

    async def _prepare(self, claim: Claim, agent: Agent[Any, Any], outcome: Outcome) -> DrivenRun | None:
        """The run as it is driven; None if it was cancelled, and has ended."""
        try:
            config, run, owned = await awith_retries(partial(self._rebuild, claim, agent.config))
            if not await awith_retries(partial(self._may_continue, owned, config)):
                outcome.end = "cancelled"
                return None
            deps = self._deps(owned.meta) if self._deps else None
            if isawaitable(deps):
                deps = await deps
            return DrivenRun(config, run, deps, replace(owned, outlives_reader=True))
        except asyncio.CancelledError:  # the worker stops
            outcome.end = "released"
            with suppress(StoreError):
                await asyncio.to_thread(release_claimed, self._store, claim)
            raise
        except StoreError:  # the run is damaged or parked, or the store is away
            raise
        except (SystemExit, KeyboardInterrupt):  # the process ends
            with suppress(StoreError):
                release_claimed(self._store, claim)
            raise
        except BaseException:  # of `deps`, or there is no such model: what fails around a run is tried again
            with suppress(StoreError):
                await asyncio.to_thread(postpone_claimed, self._store, claim, DEPS_PAUSE)
            raise

    def _may_continue(self, owned: OwnedRun, config: AgentConfig) -> bool:
        """Whether a claimed run continues here; False if it was cancelled, and has ended.

        A `UsageError` if the model of a fork is not known. After some tries, the fork is parked.
        """
        if (owned.claim.lost or owned.model) and self._end_cancelled(owned):
            return False
        try:
            with_model(config, owned.model)
        except UsageError as error:
            park_if_tried(self._store, owned.claim, MODEL_TRIES, str(error))
            raise
        return True

    def _end_cancelled(self, owned: OwnedRun) -> bool:
        """End a run that may have ended its workers, or whose model may be unknown, if it was cancelled."""
        cancel = next((input for input in owned.inputs if input.kind == "cancel"), None)
        return cancel is not None and cancel_claimed(self._store, owned.claim, cancel.body.decode("utf-8", "replace"))

    def _rebuild(self, claim: Claim, config: AgentConfig) -> tuple[AgentConfig, Run, OwnedRun]:
        """The claimed run, rebuilt, and its configuration."""
        config = replace(config, approvals="pause", callbacks=Callbacks(), separate_text=False)
        with suppress(DamagedRunError):  # which `take_up` reports
            config = with_client_tools(config, read_start(self._store, claim.run_id).meta)
        rules = config.policies, config.limits, config.run_repaired, config.output
        return config, *take_up(self._store, claim, *rules)
