"""What a run costs: prices, sums, limits, and what is stored."""

from __future__ import annotations

import importlib.util
import math
import sys
from functools import partial
from typing import Any

import pytest

import penstock.log
from penstock import Agent, Limits, Model, Nested, Prices, Retry, StepStart, Usage, UsageError, tool
from penstock.hooks import fallback
from penstock.log.take_up import read_log
from penstock.prices import as_cost, safe_cost
from penstock.providers import PRICE_PROVIDERS, PROVIDERS
from penstock.run.events import Done
from penstock.run.limits import add_usage, dollars, over_cost
from penstock.run.rebuild import rebuild
from penstock.runs.runs import Runs
from penstock.serve import app
from penstock.testing import Reply, Scripted, Status, call
from tests.scripted_runs import MODES, drive, end_of, events_of, made, streaming, sync_and_async

PER_TOKEN = Prices(input=1e6, output=1e6)
"""With this price, the cost of a run is the number of its tokens."""
KNOWN = {"m": PER_TOKEN}


def tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


@tool
def look() -> str:
    """Look."""
    return "seen"


def looking(*replies: Any, **options: Any) -> Agent:
    return made([Reply(call("look", {})), *(replies or ["Done."])], look, **options)


# -- prices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", [{"input": -1}, {"output": math.nan}, {"input": math.inf}, {"cache_read": "0.1"}, {"reasoning": -0.5},
              {"input": None}, {"output": True}],
)  # fmt: skip
def test_a_price_that_is_no_amount_is_an_error(field: Any) -> None:
    with pytest.raises(UsageError, match=f"Prices: {next(iter(field))} must be a price per million tokens"):
        Prices(**({"input": 1.0, "output": 1.0} | field))


@pytest.mark.parametrize(
    "prices", [5, "openai", ["m"], {"m": 3.0}, {"m": {"input": 1}}, {1: PER_TOKEN}, {"": PER_TOKEN}]
)
def test_a_table_with_nonsense_is_an_error_at_the_start(prices: Any) -> None:
    with pytest.raises(UsageError, match="prices"):
        Agent("openai:m", prices=prices)


def test_a_function_that_returns_nonsense_costs_what_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    for value in (-1, math.nan, "free", True):
        assert safe_cost(lambda model, usage, value=value: value, "p:m", Usage(1, 1)) is None  # type: ignore[misc]
    assert "prices returned -1" in caplog.text


def test_genai_prices_knows_models_by_their_provider() -> None:
    cost = as_cost("genai-prices")
    assert cost is not None
    plain = cost("openai:gpt-4o", Usage(input_tokens=1_000_000))
    cached = cost("openai:gpt-4o", Usage(input_tokens=1_000_000, cached_tokens=1_000_000))
    assert plain is not None
    assert cached is not None
    assert 0 < cached < plain < 100
    assert cost("anthropic:claude-sonnet-4-5", Usage(output_tokens=1_000_000)) is not None
    for unknown in ("openai:no-such-model", "vllm:gpt-4o", "sim:demo", ""):
        assert cost(unknown, Usage(1, 1)) is None


def test_providers_have_the_names_of_genai_prices() -> None:
    from genai_prices.data import providers

    known = {provider.id for provider in providers}
    assert {*PRICE_PROVIDERS.values()} <= known
    assert PRICE_PROVIDERS.keys() <= PROVIDERS.keys() - known
    local = {"ollama", "vllm", "sglang", "llamacpp", "lmstudio", "openai-compatible"}
    assert PROVIDERS.keys() - known - PRICE_PROVIDERS.keys() - local == {"dashscope", "mantle", "nvidia"}, "not there"


def test_without_the_package_its_prices_are_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("penstock.prices.find_spec", lambda name: None if name == "genai_prices" else find(name))
    with pytest.raises(UsageError, match=r"pip install 'penstock-llm\[prices\]'"):
        Agent("openai:gpt-5", prices="genai-prices")


def test_prices_are_imported_only_when_they_are_used() -> None:
    import subprocess

    code = "import sys, penstock; penstock.Agent('openai:gpt-5'); print('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


# -- sums --------------------------------------------------------------------------------------------------------------


def test_a_sum_is_known_if_all_its_parts_are() -> None:
    known, unknown, nothing = Usage(1, 1, cost=0.5), Usage(1, 1), Usage()
    assert add_usage(known, known).cost == 1.0
    assert add_usage(known, nothing).cost == add_usage(nothing, known).cost == 0.5
    assert add_usage(known, unknown).cost is add_usage(unknown, known).cost is None
    assert add_usage(nothing, nothing).cost is None


@sync_and_async
def test_a_run_costs_what_its_responses_cost(mode: str) -> None:
    events, run = drive(streaming(looking(prices=KNOWN)), mode)
    assert run.cost == run.usage.cost == pytest.approx(tokens(run.usage))
    assert end_of(events).usage.cost == run.cost > 0
    assert all(event.cost == tokens(event) for event in events if isinstance(event, Usage))


@sync_and_async
def test_without_prices_or_with_an_unknown_model_the_cost_is_not_known(mode: str) -> None:
    other: Any = {"other": PER_TOKEN}
    for prices in (None, other, lambda model, usage: None):
        _, run = drive(streaming(looking(prices=prices)), mode)
        assert run.cost is None


def test_a_result_has_the_cost_of_its_run() -> None:
    result = looking(prices=KNOWN).run("Go.")
    assert result.cost == tokens(result.usage)


def test_cached_and_reasoning_tokens_have_their_own_prices() -> None:
    prices = Prices(input=1e6, output=2e6, cache_read=1e5, cache_write=3e6, reasoning=5e6)
    usage = Usage(100, 50, cached_tokens=40, reasoning_tokens=10, cache_write_tokens=20)
    cost = as_cost({"p:m": prices})
    assert cost is not None
    assert cost("p:m", usage) == pytest.approx(40 * 1 + 40 * 0.1 + 20 * 3 + 40 * 2 + 10 * 5)


@sync_and_async
def test_a_fallback_model_is_priced_by_its_own_name(mode: str) -> None:
    failing = Model("openai-compatible:m", via=Scripted([Status(500)] * 9))
    other = Model("openai-compatible:other", via=Scripted(["Done."]))
    prices = {"m": PER_TOKEN, "other": Prices(input=2e6, output=2e6)}
    agent = Agent(failing, before_step=fallback(other), prices=prices, retries=penstock.Retries(attempts=0))
    events, run = drive(streaming(agent), mode)
    assert any(isinstance(event, Retry) for event in events)
    assert run.cost == 2 * tokens(run.usage)


@sync_and_async
def test_what_a_hook_uses_costs_the_price_of_its_model(mode: str) -> None:
    def hook(step: Any) -> Any:
        return step.add_usage(Usage(100, 10), "small") if step.number == 1 else step

    agent = made(["Done."], before_step=hook, models={"small": "openai:small"}, prices={**KNOWN, "small": PER_TOKEN})
    _, run = drive(streaming(agent), mode)
    assert run.cost == tokens(run.usage) > 110
    unknown = made(["Done."], before_step=hook, models={"small": "openai:small"}, prices=KNOWN)
    assert drive(streaming(unknown), mode)[1].cost is None


@sync_and_async
def test_agents_inside_count_at_their_own_prices_or_those_around_them(mode: str) -> None:
    for prices, factor in ((None, 1), ({"m": Prices(input=3e6, output=3e6)}, 3)):
        inner = looking(name="inner", prices=prices)
        helper = inner.as_tool(description="Look.")
        agent = made([Reply(call("inner", {"prompt": "Look."})), "Done."], helper, prices=KNOWN)
        events, run = drive(streaming(agent), mode)
        ends = [event.event for event in events if isinstance(event, Nested)]
        [end] = [event for event in ends if isinstance(event, Done)]
        assert end.usage.cost == factor * tokens(end.usage)
        assert run.cost == pytest.approx(tokens(run.usage) + (factor - 1) * tokens(end.usage))


# -- stored ------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_rebuilt_has_the_cost_that_it_had() -> None:
    store = penstock.log.memory()
    inner = looking(name="inner")
    agent = made(
        [Reply(call("inner", {"prompt": "Look."})), Reply(call("look", {})), "Done."],
        look, inner.as_tool(description="Look."), name="agent", prices=KNOWN,
    )  # fmt: skip
    with agent.stream("Go.", log=store, run_id="r") as run:
        list(run)
    events = [event for _, _, event in read_log(store, "r")]
    rebuilt = rebuild(events, agent.config.policies)
    assert rebuilt.usage.cost == run.cost == tokens(run.usage)
    [end] = [place for place, event in enumerate(events) if isinstance(event, Done)]
    assert rebuild(events[:end], agent.config.policies).usage.cost == run.cost


def test_a_stored_run_goes_on_with_its_cost() -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = made([Reply(call("pay", {})), "Done."], pay, prices=KNOWN)
    paused = agent.run("Pay.")
    assert paused.cost is not None
    run = agent.resume(paused.state)
    assert run.cost == paused.cost
    run.decide(run.waiting[0].call_id, True)
    with run:
        list(run)
    assert run.cost == tokens(run.usage) > paused.cost


# -- the limit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [-1, math.nan, math.inf, "1", True])
def test_a_limit_that_is_no_amount_is_an_error(cost: Any) -> None:
    with pytest.raises(UsageError, match="cost must be a number of US dollars"):
        Limits(cost=cost)


@sync_and_async
def test_a_request_that_costs_too_much_is_not_sent(mode: str) -> None:
    model = Scripted([Reply(call("look", {})), "Done."])
    agent = Agent(Model("openai-compatible:m", via=model), [look], prices=KNOWN, limits=Limits(cost=1.0))
    done = end_of(events_of(agent, mode))
    assert (done.reason, len(model.requests)) == ("limit", 0)
    assert "the next request about $" in done.why
    assert "the run may cost $1.00" in done.why


@sync_and_async
def test_a_run_ends_before_the_request_that_would_exceed_the_limit(mode: str) -> None:
    whole = looking(prices=KNOWN).run("Go.")
    first = looking(prices=KNOWN, limits=Limits(steps=1)).run("Go.").cost
    assert first is not None
    assert whole.cost is not None
    model = Scripted([Reply(call("look", {})), "Done."])
    agent = Agent(Model("openai-compatible:m", via=model), [look], prices=KNOWN, limits=Limits(cost=first + 2))
    done = end_of(events_of(agent, mode))
    assert (done.reason, len(model.requests), done.usage.cost) == ("limit", 1, first)
    again = Scripted([Reply(call("look", {})), "Done."])
    enough = Agent(Model("openai-compatible:m", via=again), [look], prices=KNOWN, limits=Limits(cost=10 * whole.cost))
    assert end_of(events_of(enough, mode)).reason == "answered"


@sync_and_async
def test_no_tool_runs_after_a_response_that_cost_too_much(mode: str) -> None:
    ran: list[str] = []

    @tool
    def write() -> str:
        """Write."""
        ran.append("write")
        return ""

    prices = {"m": Prices(input=0, output=1e6)}
    agent = made([Reply(call("write", {})), "Done."], write, prices=prices, limits=Limits(cost=0.5))
    done = end_of(events_of(agent, mode))
    assert (done.reason, ran) == ("limit", [])
    assert "the run cost $" in done.why


@sync_and_async
def test_the_limit_holds_for_requests_of_agents_inside(mode: str) -> None:
    """The outer response is free, so that only the inner request can exceed the limit."""
    model = Scripted(["Never sent."])
    inner = Agent(Model("openai-compatible:dear", via=model), name="inner", prices={"dear": PER_TOKEN})
    agent = made(
        [Reply(call("inner", {"prompt": "Look."})), "Done."], inner.as_tool(description="Look."),
        prices={"m": Prices(input=0, output=0)}, limits=Limits(cost=0.5),
    )  # fmt: skip
    done = end_of(events_of(agent, mode))
    assert (done.reason, len(model.requests)) == ("limit", 0)
    assert "the next request about $" in done.why


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_without_the_price_of_a_model_is_an_error_at_the_start(mode: str) -> None:
    limits = Limits(cost=1.0)
    for options, message in (({}, "needs prices"), ({"prices": {"other": PER_TOKEN}}, "needs the price of")):
        agent: Agent = looking(limits=limits, **options)
        with pytest.raises(UsageError, match=message):
            events_of(agent, mode)
    inner = Agent("openai:unknown", name="inner").as_tool(description="Look.")
    with pytest.raises(UsageError, match="needs the price of 'openai:unknown'"):
        events_of(made(["Done."], inner, prices=KNOWN, limits=limits), mode)


def test_workers_and_servers_refuse_a_limit_without_the_price_of_a_model() -> None:
    store = penstock.log.memory()
    agent = looking(limits=Limits(cost=1.0), prices={"other": PER_TOKEN}, name="agent")
    runs = Runs(store, {"agent": agent})
    run_id = runs.start("agent", "Go.")
    for start in (partial(runs.drive, run_id), runs.work, partial(app, agent, log=store)):
        with pytest.raises(UsageError, match="needs the price of 'openai-compatible:m'"):
            start()
    assert runs.find(run_id).state == "ready"


@sync_and_async
def test_a_model_without_a_price_that_a_hook_chooses_ends_the_run_before_its_request(mode: str) -> None:
    other = Scripted(["Done."])
    model = Model("openai-compatible:other", via=other)
    agent = made(["Done."], before_step=lambda step: step.replace(model=model), prices=KNOWN, limits=Limits(cost=9e9))
    done = end_of(events_of(agent, mode))
    assert (done.reason, len(other.requests)) == ("limit", 0)
    assert "the price of the next request is not known" in done.why


def test_the_estimate_counts_instructions_and_tools() -> None:
    def why(**options: Any) -> str:
        return made(["Done."], prices=KNOWN, limits=Limits(cost=0.001), **options).run("Go.").why

    assert made(["Done."], look, prices=KNOWN, limits=Limits(cost=0.001)).run("Go.").why != why()
    assert why(instructions="Be brief. " * 100) != why()


def test_a_step_that_is_not_sent_has_no_start() -> None:
    events = events_of(looking(prices=KNOWN, limits=Limits(cost=1.0)), "sync")
    assert not any(isinstance(event, StepStart) for event in events)


def test_sums_of_prices_may_be_inexact() -> None:
    assert over_cost(Limits(cost=0.3), Usage(1, 1, cost=0.1 + 0.2), 0.0) == ""
    assert over_cost(Limits(cost=0.3), Usage(1, 1, cost=0.3), 0.001)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0.00"), (1234.5, "$1,234.50"), (0.5, "$0.500"), (0.00231, "$0.00231"), (1e-7, "$0.000000100")],
)
def test_amounts_are_shown_with_three_digits(amount: float, text: str) -> None:
    assert dollars(amount) == text
