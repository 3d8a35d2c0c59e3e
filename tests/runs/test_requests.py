"""Model requests that are restored from logs."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from batonkit import (
    Agent,
    HandoffInputData,
    ModelSettings,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    Transfer,
    agent,
    handoff,
    plan_execute,
    tool,
)
from batonkit.agents import AgentContext
from batonkit.agents.middleware import Middleware, model_middleware
from batonkit.errors import RunNotFoundError
from batonkit.log import AgentResponded, HistoryEntry
from batonkit.messages import Message, UserMessage, text_of
from batonkit.models import ModelRequest, ModelResponse
from batonkit.runs import HistoryOptions
from batonkit.stores import MemoryStore, SQLiteStore
from batonkit.team import RecordedRequest
from batonkit.testing import ScriptedModel, call, transfer_to
from batonkit.workflows import make_executor, make_planner, make_replanner


def _describe(request: ModelRequest | RecordedRequest) -> str:
    parts = (request.messages, request.instructions, request.tools, request.settings, request.output_schema)
    plain = [msgspec.json.encode(part).decode() for part in (tuple(parts[0]), *parts[1:])]
    return "\n".join([request.agent, *plain, str(request.tool_choice)])


async def check_requests(runner: Runner[Any, Any], model: ScriptedModel, *run_ids: str) -> list[RecordedRequest]:
    """Check that the logs restore exactly the requests that the model received; return them."""
    restored = [request for run_id in run_ids for request in (await runner.runs.requests(run_id)).values()]
    assert Counter(map(_describe, restored)) == Counter(map(_describe, model.requests))
    return restored


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"a picture of {place}"


class Reason(BaseModel):
    why: str


def make_team(model: ScriptedModel, store: Any = None, *, middleware: Any = (), **options: Any) -> Runner[Any, Any]:
    billing = Agent("Billing", description="bills", tools=[look], instructions="Bill.")
    desk = Agent("Desk", tools=[look], handoffs=[handoff(billing, input_type=Reason, **options)], sub_agents=[])
    return Runner(desk, model=model, store=store if store is not None else MemoryStore(), middleware=middleware)


SCRIPT = {
    "Desk": [[call("look", place="Rome"), call("look", place="Bonn")], call("transfer_to_billing", why="money")],
    "Billing": [call("look", place="Paris"), "42 euros"],
}


def only_user_input(entries: Any) -> list[Message]:
    """Select the user's messages."""
    return [entry.message for entry in entries if isinstance(entry, HistoryEntry) and entry.is_user_input]


def redact(data: HandoffInputData) -> HandoffInputData:
    """Replace the results of tools by a note."""
    return data.clone(new_items=(*data.new_items, UserMessage("the rest is secret")))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"history": "verbatim"},
        {"history": "lineage"},
        {"history": "answers"},
        {"history": "none"},
        {"history": only_user_input},
        {"input_filter": redact},
    ],
)
async def test_requests_of_a_team_are_restored(options: Any, tmp_path: Path) -> None:
    model, store = ScriptedModel(SCRIPT), SQLiteStore(tmp_path / "runs.db")
    runner = make_team(model, store, **options)
    result = await runner.run("what do I owe?")
    restored = await check_requests(runner, model, result.run_id)
    expected = options.get("history", "filter" if options else "rewritten")
    assert restored[-1].policy == (expected if isinstance(expected, str) else "function")
    await runner.close()


async def test_a_record_has_no_messages_and_repeats_no_contents() -> None:
    model = ScriptedModel({"Desk": [*[call("look", place=f"place {n}") for n in range(30)], "done"]}, cycle=False)
    runner = Runner(Agent("Desk", tools=[look], instructions="x" * 500, max_turns=40), model=model, store=MemoryStore())
    result = await runner.run("go")
    records = [event.request for event in result.events if isinstance(event, AgentResponded)]
    assert [record.messages for record in records if record is not None] == [None] * 31
    assert [bool(record.contents) for record in records if record is not None] == [True, *[False] * 30]
    await check_requests(runner, model, result.run_id)


async def test_messages_that_middleware_changed_are_recorded_once() -> None:
    note = UserMessage("be brief")

    @model_middleware
    async def remind(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        changed = msgspec.structs.replace(
            request, messages=[note, *request.messages[-3:]], settings=ModelSettings(temperature=0.5)
        )
        return await next(changed)

    model = ScriptedModel(SCRIPT)
    runner = make_team(model, middleware=[remind])
    result = await runner.run("what do I owe?")
    restored = await check_requests(runner, model, result.run_id)
    assert [request.sources[0].form for request in restored] == ["added"] * 4
    contents = [e.request.contents for e in result.events if isinstance(e, AgentResponded) and e.request is not None]
    assert sum("be brief" in str(each) for each in contents) == 1
    assert restored[0].settings.temperature == 0.5


async def test_the_last_request_of_a_repeated_call_is_recorded_and_none_without_a_call() -> None:
    class Twice(Middleware):
        async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: Any) -> ModelResponse:
            await next(request)
            return await next(msgspec.structs.replace(request, instructions="again"))

    model = ScriptedModel(["one", "two"])
    runner = Runner(Agent("A"), model=model, store=MemoryStore(), middleware=[Twice()])
    result = await runner.run("hi")
    (request,) = (await runner.runs.requests(result.run_id)).values()
    assert request.instructions == "again"

    @model_middleware
    async def answer(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        return ModelResponse(msgspec.convert({"role": "assistant", "content": "no"}, Message))

    runner = Runner(Agent("A"), model=ScriptedModel([]), store=MemoryStore(), middleware=[answer])
    result = await runner.run("hi")
    assert await runner.runs.requests(result.run_id) == {}


async def test_requests_of_nested_agents_are_restored() -> None:
    model = ScriptedModel(
        {
            "Left": [call("look", place="left"), "left"],
            "Right": ["right"],
            "Helper": [call("look", place="help"), "helped"],
            "Last": [call("helper", input="help me"), "done"],
        }
    )
    helper = Agent("Helper", tools=[look]).as_tool("helper", "helps")
    both = ParallelAgent("Both", sub_agents=[Agent("Left", tools=[look]), Agent("Right")])
    team = SequentialAgent("All", sub_agents=[both, Agent("Last", tools=[helper])])
    runner = Runner(team, model=model, store=MemoryStore())
    await check_requests(runner, model, (await runner.run("go")).run_id)


async def test_requests_with_corrections_limits_and_refused_transfers_are_restored() -> None:
    model = ScriptedModel(
        {
            "A": [[transfer_to("B"), transfer_to("C")], call("nothing"), "not json", '{"why": "since"}'],
            "B": [call("look", place="B"), call("look", place="C"), transfer_to("A")],
        }
    )
    c = Agent("C", description="c")
    b = Agent("B", description="b", tools=[look], max_turns=3)
    a = Agent("A", description="a", sub_agents=[b, c], output_type=Reason)
    runner = Runner(a, model=model, store=MemoryStore(), history=HistoryOptions(show_transfers=False))
    await check_requests(runner, model, (await runner.run("go")).run_id)
    limited = Agent("L", tools=[look], max_turns=1)
    model = ScriptedModel([call("look", place="x"), "enough"])
    runner = Runner(limited, model=model, store=MemoryStore())
    await check_requests(runner, model, (await runner.run("go")).run_id)


async def test_requests_of_all_runs_of_a_thread_are_restored() -> None:
    model = ScriptedModel({"Desk": SCRIPT["Desk"], "Billing": [*SCRIPT["Billing"], call("look", place="Oslo"), "43"]})
    runner = make_team(model)
    first = await runner.run("what do I owe?", thread="t")
    second = await runner.run("and now?", thread="t")
    restored = await check_requests(runner, model, first.run_id, second.run_id)
    assert {source.run_id for source in restored[-1].sources} == {first.run_id, second.run_id}
    contents = [e.request.contents for e in second.events if isinstance(e, AgentResponded) and e.request is not None]
    assert "what do I owe?" not in str(contents), "the log of the first run has it"
    await runner.runs.requests(first.run_id)


async def test_the_messages_of_a_deleted_run_of_a_thread_are_gone() -> None:
    store = MemoryStore()
    model = ScriptedModel({"Desk": ["one", "two"]})
    runner = make_team(model, store)
    first = await runner.run("hi", thread="t")
    second = await runner.run("again", thread="t")
    (request,) = (await runner.runs.requests(second.run_id)).values()
    assert not request.lacks_earlier_runs
    await store.delete(first.run_id)
    (request,) = (await runner.runs.requests(second.run_id)).values()
    assert (request.messages, request.lacks_earlier_runs) == ((UserMessage("again"),), True)


async def stored_bytes(store: MemoryStore, run_id: str) -> int:
    return sum([len(line) for line in await store.load(run_id)])


async def test_the_log_of_a_run_does_not_grow_with_its_thread() -> None:
    # All runs but the first have the same size, and each request is restored.
    model, store = ScriptedModel(["answer"], cycle=True), MemoryStore()
    runner = make_team(model, store)
    run_ids = [(await runner.run(f"question {number:03}", thread="t")).run_id for number in range(200)]
    sizes = [await stored_bytes(store, run_id) for run_id in run_ids[1:]]
    assert max(sizes) - min(sizes) < 100
    await check_requests(runner, model, *run_ids)


async def test_the_logs_of_agents_that_take_turns_do_not_grow_with_their_thread() -> None:
    # Agents read the same conversation in different words.
    turn = [call("look", place="Rome"), call("transfer_to_billing", why="money")]
    model = ScriptedModel({"Desk": turn, "Billing": [call("look", place="Paris"), "42 euros"]}, cycle=True)
    store = MemoryStore()
    runner = make_team(model, store)
    run_ids = [(await runner.run(f"question {number:03}", thread="t", start_at="root")).run_id for number in range(30)]
    sizes = [await stored_bytes(store, run_id) for run_id in run_ids[2:]]
    assert max(sizes) - min(sizes) < 200
    await check_requests(runner, model, *run_ids)


async def test_requests_after_trimmed_runs_say_what_is_missing() -> None:
    model = ScriptedModel([f"answer {number}" for number in range(5)])
    runner = make_team(model)
    run_ids = [(await runner.run(f"question {number}", thread="t")).run_id for number in range(4)]
    await runner.thread("t").trim(keep=2)
    before = [await runner.runs.requests(run_id) for run_id in run_ids[2:]]
    third, fourth = [next(iter(each.values())) for each in before]
    assert third.messages == (UserMessage("question 2"),)
    assert [text_of(each.content) for each in fourth.messages] == ["question 2", "answer 2", "question 3"]
    assert third.lacks_earlier_runs
    assert fourth.lacks_earlier_runs
    assert [len(each.tools) for each in (third, fourth)] == [2, 2], "each run has the other parts of its requests"
    # The next run reads only what is left, and is restored exactly.
    last = await runner.run("question 4", thread="t")
    (request,) = (await runner.runs.requests(last.run_id)).values()
    assert _describe(request) == _describe(model.requests[-1])


async def test_a_run_that_got_the_id_of_a_deleted_one_is_not_taken_for_it() -> None:
    model, store = ScriptedModel(["answer"], cycle=True), MemoryStore()
    runner = make_team(model, store)
    await runner.run("question 0", thread="t", run_id="first")
    second = await runner.run("question 1", thread="t")
    await store.delete("first")
    await runner.run("something else", run_id="first")
    (request,) = (await runner.runs.requests(second.run_id)).values()
    assert (request.messages, request.lacks_earlier_runs) == ((UserMessage("question 1"),), True)


async def test_the_requests_of_a_run_that_was_resumed_often_are_restored() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("which?"))

    model = ScriptedModel([*[call("ask")] * 20, "done"])
    runner = Runner(Agent("A", tools=[ask], max_turns=40), model=model, store=MemoryStore())
    result = await runner.run("go")
    while result.status == "suspended":
        result = await runner.resume(result.run_id, "this")
    await check_requests(runner, model, result.run_id)


async def test_a_resumed_run_records_its_further_requests() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("which?"))

    model = ScriptedModel([call("look", place="Rome"), call("ask"), call("look", place="Bonn"), "done"])
    runner = Runner(Agent("A", tools=[look, ask], instructions="Help."), model=model, store=MemoryStore())
    result = await runner.run("go")
    result = await runner.resume(result.run_id, "this")
    restored = await check_requests(runner, model, result.run_id)
    assert len(restored) == 4
    contents = [e.request.contents for e in result.events if isinstance(e, AgentResponded) and e.request is not None]
    assert [bool(each) for each in contents] == [True, False, False, False]
    fork = await runner.runs.fork(result.run_id, at=3)
    assert [*(await runner.runs.requests(fork))] == [restored[0].key]


async def test_plans_and_custom_agents_are_restored() -> None:
    model = ScriptedModel(
        {
            "Planner": ['{"steps": ["look", "tell"]}'],
            "Executor": [call("look", place="Rome"), "looked", "told"],
            "Replanner": [call("plan", steps=["tell"]), call("respond", response="done")],
        }
    )
    planner, replanner = make_planner(), make_replanner()
    team = plan_execute(planner=planner, executor=make_executor(tools=[look]), replanner=replanner)
    runner = Runner(team, model=model, store=MemoryStore())
    result = await runner.run("go")
    assert result.status == "completed"
    await check_requests(runner, model, result.run_id)

    @agent("Custom", sub_agents=[Agent("Inner", description="i")])
    async def custom(ctx: AgentContext) -> Any:
        await ctx.say("one moment")
        return Transfer("Inner", payload={"why": "said"})

    model = ScriptedModel({"Inner": ["hello"]})
    runner = Runner(custom, model=model, store=MemoryStore())
    await check_requests(runner, model, (await runner.run("go")).run_id)


async def test_headers_and_query_parameters_are_not_recorded() -> None:
    settings = ModelSettings(extra_headers={"X-Key": "secret"}, extra_query={"key": "secret"}, seed=3)
    runner = Runner(Agent("A", model_settings=settings), model=ScriptedModel(["hi"]), store=MemoryStore())
    result = await runner.run("hi")
    assert "secret" not in str(result.events)
    (request,) = (await runner.runs.requests(result.run_id)).values()
    assert (request.settings.seed, request.settings.extra_headers) == (3, {"X-Key": "(not recorded)"})


async def test_without_a_store_nothing_is_recorded() -> None:
    runner = Runner(Agent("A"), model=ScriptedModel(["hi"]))
    result = await runner.run("hi")
    assert [e.request for e in result.events if isinstance(e, AgentResponded)] == [None]
    with pytest.raises(RunNotFoundError):
        await runner.runs.requests(result.run_id)
