"""The configuration of tracing: `Agent(tracing=Tracing(...))`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.prices import PriceTable, as_cost, safe_cost

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from penstock.agent.config import AgentConfig
    from penstock.tracing.run_trace import RunTrace


class Tracing:
    """OpenTelemetry spans and metrics of the runs of an agent.

    Without providers, those of the process are used (`opentelemetry.trace.set_tracer_provider`). `content=True` adds
    prompts, responses, arguments and results to the spans. `cost` is a table of `Prices` by the name of the model, or a
    function of that name and a `Usage`; the result is in `currency`. Without it, the cost is that of `Agent(prices=…)`,
    in US dollars.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
        cost: PriceTable | None = None,
        currency: str = "USD",
    ) -> None:
        _expect_api()
        from penstock.tracing.instruments import Instruments

        self.content = content
        self.cost = as_cost(cost, "cost")
        self.currency = "USD" if cost is None else currency
        self.instruments = Instruments(tracer_provider, meter_provider)

    def cost_of(self, model: str, usage: Usage) -> float | None:
        """What this usage of a model costs; None if that is not known."""
        return usage.cost if self.cost is None else safe_cost(self.cost, model, usage)

    def observe(self, config: AgentConfig, run_id: str, meta: Any) -> RunTrace:
        """The trace of a run; `meta` is what the run was started with."""
        from penstock.tracing.run_trace import RunTrace

        return RunTrace(self, config, run_id, meta)


def carrier() -> dict[str, str]:
    """The current trace context, for `meta=` of a run with a log: every process that drives the run continues it."""
    _expect_api()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    fields: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(fields)
    return fields


def _expect_api() -> None:
    if find_spec("opentelemetry") is None:
        raise UsageError("tracing needs the API of OpenTelemetry: pip install 'penstock-llm[otel]'")
