"""Prices of models, and the cost of model calls."""

from typing import Any

import pytest

from batonkit import Agent, Limits, Runner, SetupError, tool
from batonkit.agents import Compaction
from batonkit.errors import LimitError, ModelError, UnknownPriceError
from batonkit.log import AgentResponded, decode_log, encode_log
from batonkit.messages import Usage
from batonkit.models import FallbackModel, GenAIPrices, ModelPrice, PriceTable
from batonkit.models.prices import UnknownPrices, add_cost, default_prices
from batonkit.testing import ScriptedModel, call, say, transfer_to

MILLION = 1_000_000
PRICES = PriceTable({"x:small": ModelPrice(input=1, output=2), "x:large": ModelPrice(input=10, output=20)})


@tool
async def look_up() -> str:
    """Look it up."""
    return "found"


def test_cached_written_and_reasoning_tokens_have_their_own_prices() -> None:
    price = ModelPrice(input=2, output=10, cached_input=0.5, cache_write=4, reasoning=20)
    usage = Usage(4 * MILLION, 3 * MILLION, MILLION, MILLION, cache_write_tokens=MILLION)
    assert price.cost(usage) == 2 * 2 + 0.5 + 4 + 2 * 10 + 20
    assert ModelPrice(input=2, output=10).cost(usage) == 4 * 2 + 3 * 10


def test_genai_prices_knows_the_models_of_providers() -> None:
    prices = GenAIPrices()
    plain = prices.cost("openai:gpt-5", Usage(1000, 100))
    cached = prices.cost("openai:gpt-5", Usage(1000, 100, cached_tokens=900))
    assert plain is not None
    assert cached is not None
    assert 0 < cached < plain
    assert prices.cost("openai-responses:gpt-5", Usage(1000, 100)) == plain
    assert prices.cost("litellm:openai/gpt-5", Usage(1000, 100)) == plain
    assert prices.cost("litellm:gpt-5", Usage(1000, 100)) == plain
    written = prices.cost("anthropic:claude-sonnet-4-5", Usage(1000, 0, cache_write_tokens=1000))
    unwritten = prices.cost("anthropic:claude-sonnet-4-5", Usage(1000, 0))
    assert written is not None
    assert unwritten is not None
    assert written > unwritten > 0
    for model in ("google:gemini-2.5-flash", "deepseek:deepseek-chat", "litellm:gemini/gemini-2.5-flash"):
        assert (prices.cost(model, Usage(1000, 100, reasoning_tokens=50)) or 0) > 0


@pytest.mark.parametrize("model", ["local:qwen", "ollama:llama", "vllm:x", "lmstudio:x", "scripted"])
def test_models_on_own_machines_cost_nothing(model: str) -> None:
    for prices in (GenAIPrices(), UnknownPrices()):
        assert prices.cost(model, Usage(1000, 100)) == 0.0


@pytest.mark.parametrize("model", ["openai:no-such-model", "ark:doubao", "mine", "openai:gpt-realtime"])
def test_other_models_have_no_known_price(model: str) -> None:
    for prices in (GenAIPrices(), UnknownPrices()):
        assert prices.cost(model, Usage(1000, 100)) is None
    assert add_cost(default_prices(), Usage(1000, 100), model) == Usage(1000, 100, unpriced_calls=1)


def test_counts_that_contradict_each_other_have_no_known_price() -> None:
    assert GenAIPrices().cost("openai:gpt-5", Usage(10, 1, cached_tokens=50)) is None


def test_a_table_comes_before_other_prices() -> None:
    table = PriceTable({"openai:gpt-5": ModelPrice(input=1, output=1), "mine:a": ModelPrice(input=3, output=3)})
    assert table.cost("openai:gpt-5", Usage(MILLION, 0)) == 1
    assert table.cost("mine:a", Usage(0, MILLION)) == 3
    assert (table.cost("openai:gpt-5-mini", Usage(MILLION, 0)) or 0) > 0
    assert PriceTable({}, others=UnknownPrices()).cost("openai:gpt-5", Usage(1, 1)) is None


def test_the_model_that_responded_is_priced() -> None:
    table = PriceTable({"openai:small": ModelPrice(input=1, output=1)}, others=UnknownPrices())
    usage = Usage(MILLION, 0)
    assert add_cost(table, usage, "fallback(openai:large, openai:small)", "openai:small").cost == 1
    assert add_cost(table, usage, "openai:alias", "small").cost == 1
    # A dated name is unknown, but the name that was called is not.
    assert add_cost(table, usage, "openai:small", "small-2026-01-01").cost == 1
    assert add_cost(table, Usage(5, 5, cost=2.0), "openai:small").cost == 2.0
    assert add_cost(None, usage, "openai:small") == usage


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("genai-prices", r"give a PriceTable, True or False"),
        (PriceTable, r"give a PriceTable"),
        (3, r"give a PriceTable"),
    ],
)
def test_invalid_prices_are_refused(prices: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Runner(Agent("A"), prices=prices)


def test_invalid_tables_are_refused() -> None:
    wrong: Any = {"openai:gpt-5": 3.0}
    with pytest.raises(SetupError, match=r"give ModelPrice\(input=…, output=…\)"):
        PriceTable(wrong)
    with pytest.raises(SetupError, match=r"ModelPrice\(output=-1\) is negative"):
        ModelPrice(input=1, output=-1)


def team_of(small: str, large: str) -> Agent:
    """`A` calls a tool with the small model, and hands over to `B`, which answers with the large one."""
    first = [say("", call("look_up"), usage=Usage(100, 10)), say("", transfer_to("B"), usage=Usage(200, 20))]
    b = Agent("B", description="Ends.", model=ScriptedModel([say("done", usage=Usage(1000, 100))], name=large))
    return Agent("A", model=ScriptedModel(first, name=small), tools=[look_up], sub_agents=[b])


async def test_the_cost_of_a_run_is_known_by_model_agent_and_edge() -> None:
    result = await Runner(team_of("x:small", "x:large"), prices=PRICES).run("hi")
    usage = result.usage
    assert usage.by_model["x:small"].cost == pytest.approx(300e-6 + 60e-6)
    assert usage.by_model["x:large"].cost == pytest.approx(10_000e-6 + 2_000e-6)
    assert usage.by_agent["A"].cost == usage.by_edge["", "A"].cost == usage.by_model["x:small"].cost
    assert usage.by_edge["A", "B"].cost == usage.by_model["x:large"].cost
    assert usage.total.cost == pytest.approx(12_360e-6)
    assert usage.total.unpriced_calls == 0


async def test_a_recorded_cost_is_never_computed_again() -> None:
    result = await Runner(team_of("x:small", "x:large"), prices=PRICES).run("hi")
    log = decode_log(encode_log(result.events))
    expensive = PriceTable({name: ModelPrice(input=9, output=9) for name in ("x:small", "x:large")})
    replayed = await Runner(team_of("x:small", "x:large"), prices=expensive).runs.replay(log)
    assert replayed.usage.total == result.usage.total
    assert replayed._run.meter.cost == pytest.approx(result.usage.total.cost)


async def test_a_limit_on_the_cost_stops_the_run_with_every_provider() -> None:
    runner = Runner(team_of("x:small", "x:large"), prices=PRICES, limits=Limits(cost=200e-6))
    with pytest.raises(LimitError, match=r"limit of 0.0002 cost"):
        await runner.run("hi", run_id="r1")
    used = [event.usage for event in await runner.runs.events("r1") if isinstance(event, AgentResponded)]
    assert [usage.cost for usage in used if usage is not None] == pytest.approx([120e-6, 240e-6])


async def test_a_limit_on_the_cost_refuses_models_of_unknown_price() -> None:
    with pytest.raises(UnknownPriceError, match=r"at A → B is unknown.*PriceTable.*batonkit\[prices\]") as caught:
        await Runner(team_of("x:small", "x:unknown"), prices=PRICES, limits=Limits(cost=1)).run("hi")
    assert caught.value.path == ("A", "B")
    # Without a limit, the run says how many calls have an unknown price.
    result = await Runner(team_of("x:small", "x:unknown"), prices=PRICES).run("hi")
    assert (result.usage.by_agent["B"].unpriced_calls, result.usage.total.unpriced_calls) == (1, 1)
    assert result.usage.total.cost == pytest.approx(360e-6)


async def test_a_fallback_is_paid_at_the_price_of_the_model_that_answered() -> None:
    broken = ScriptedModel([ModelError("down", model="x:large")], name="x:large")
    small = ScriptedModel([say("done", usage=Usage(100, 0))], name="x:small")
    model = FallbackModel(broken, small, should_fall_back=lambda error: True)
    result = await Runner(Agent("A", model=model), prices=PRICES).run("hi")
    assert result.usage.total.cost == pytest.approx(100e-6)


async def test_the_summaries_of_compaction_have_a_cost() -> None:
    @tool
    async def read() -> str:
        """Read a page."""
        return "word " * 30

    summarizer = ScriptedModel([say("short", usage=Usage(500, 50))], name="x:small", cycle=True)
    compaction = Compaction(at_tokens=120, keep_last=2, summarizer=summarizer)
    model = ScriptedModel([*[call("read") for _ in range(8)], "done"])
    result = await Runner(Agent("A", tools=[read], compaction=compaction), model=model, prices=PRICES).run("hi")
    assert len(summarizer.requests) > 0
    assert result.usage.by_model["x:small"].cost == pytest.approx(600e-6 * len(summarizer.requests))


async def test_without_prices_only_reported_costs_count() -> None:
    model = ScriptedModel([say("done", usage=Usage(10, 1))], name="x:unknown")
    result = await Runner(Agent("A", model=model), prices=False).run("hi")
    assert result.usage.total == Usage(10, 1, model_calls=1)
