"""The cost of compaction, counted in function calls instead of time."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.team.test_scale import count_calls, run_without_event_loop

from batonkit import Agent, Limits, RunContext, Runner, tool
from batonkit.agents import Compaction, loop
from batonkit.log import HistoryCompacted, decode_log, encode_log
from batonkit.messages import Message, estimate_tokens
from batonkit.testing import ScriptedModel, call

AT_TOKENS = 1000


@tool(in_thread=False)
def look(number: int) -> str:
    """Look something up."""
    return "x" * 100


def shorten(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
    return "s" * 400


def long_run(turns: int, *, is_compacted: bool = True) -> tuple[Runner[Any, Any], ScriptedModel]:
    compaction = Compaction(at_tokens=AT_TOKENS, keep_last=5, summarizer=shorten) if is_compacted else None
    agent = Agent("Clerk", tools=[look], max_turns=turns + 1)
    model = ScriptedModel([*[call("look", number=number) for number in range(turns)], "done"])
    return Runner(agent, model=model, compaction=compaction, limits=Limits(model_calls=None)), model


@pytest.mark.counts_calls
def test_the_cost_per_turn_of_a_long_activation_is_constant() -> None:
    counts: list[int] = []
    for turns in (100, 400, 700, 2000):
        runner, model = long_run(turns)
        counts.append(count_calls(lambda runner=runner: run_without_event_loop(runner)))
        # The prompt never exceeds the limit.
        assert max(estimate_tokens(request.messages) for request in model.requests[:: turns // 100]) <= AT_TOKENS

    per_turn = [
        (more - fewer) / turns for fewer, more, turns in zip(counts, counts[1:], (300, 300, 1300), strict=False)
    ]
    assert max(per_turn) <= 1.05 * min(per_turn)


async def test_a_long_activation_resumes_from_any_point() -> None:
    runner, model = long_run(300)
    result = await runner.run("go", run_id="r")
    assert sum(isinstance(event, HistoryCompacted) for event in result.events) > 5

    for length in range(20, len(result.events), 97):
        recorded = decode_log(encode_log(result.events[:length]))
        resumed, rest = long_run(300)
        rest.fast_forward(recorded)
        again = await resumed.resume(await resumed.runs.load(recorded))
        assert [list(request.messages) for request in rest.requests] == [
            list(request.messages) for request in model.requests[len(model.requests) - len(rest.requests) :]
        ]
        assert again.messages == result.messages


async def test_without_compaction_nothing_is_created_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Compactor", None)
    runner, _ = long_run(3, is_compacted=False)
    assert (await runner.run("go")).output == "done"
