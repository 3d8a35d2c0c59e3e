"""Forks: new runs from the first events of another one, optionally edited; the original stays unchanged."""

from pathlib import Path
from typing import Any

import pytest
from tests.runs.recording_store import RecordingStore, get_record, load_events
from tests.unfinished import recover

from batonkit import Agent, AgentContext, RunContext, Runner, agent, tool
from batonkit.errors import AnswerError, RunError, RunNotFoundError, ThreadExistsError, ToolResultError
from batonkit.log import RunStarted, ToolReturned
from batonkit.messages import AssistantMessage, UserMessage, text_of
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, say, transcript


class ShopTeam:
    """A team that records what its tools did."""

    def __init__(self, steps: Any, store: Any) -> None:
        self.done: list[str] = []
        self.model = ScriptedModel(steps)

        @tool
        async def price(item: str) -> str:
            """Look a price up."""
            self.done.append(item)
            return f"{item}: 5"

        @tool(needs_approval=True)
        async def pay(ctx: RunContext, euro: int) -> str:
            """Pay."""
            self.done.append(f"paid {euro}")
            return f"paid {euro}"

        @tool
        async def ask(ctx: RunContext) -> str:
            """Ask."""
            return f"{await ctx.interrupt('size?', schema=int)}"

        self.runner = Runner(Agent("A", model=self.model, tools=[price, pay, ask]), store=store)


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def store(request: pytest.FixtureRequest) -> RecordingStore | None:
    """Forks work with a store and without."""
    return RecordingStore() if request.param else None


async def test_a_fork_continues_from_the_middle_and_leaves_the_original_unchanged() -> None:
    store = RecordingStore()
    shop = ShopTeam([call("price", item="tea"), call("price", item="rum"), "tea and rum", "only tea"], store)
    first = await shop.runner.run("shop", run_id="r")
    before = await store.load("r")
    at = next(n for n, event in enumerate(first.events, 1) if isinstance(event, ToolReturned))
    fork = await shop.runner.runs.fork("r", at=at, run_id="f")
    assert fork == "f"
    assert not (await get_record(store, "f")).is_leased
    result = await shop.runner.resume("f")
    assert (result.output, result.run_id) == ("only tea", "f")
    assert shop.done == ["tea", "rum"], "recorded steps ran again"
    assert await store.load("r") == before
    started = (await load_events(store, "f"))[0]
    assert isinstance(started, RunStarted)
    assert (started.run_id, started.forked_from) == ("f", f"r@{at}")


async def test_forks_are_erased_with_the_owner_of_the_original() -> None:
    store = MemoryStore()
    runner = Runner(Agent("A", model=ScriptedModel(["one", "two"])), store=store)
    first = await runner.run("hi", owner="ada", run_id="r")
    await runner.runs.fork("r", run_id="f")
    await runner.runs.fork("f", run_id="g")
    await store.delete("r")
    await runner.runs.fork(first.events, run_id="of-events")
    await runner.run("hi", owner="bob", run_id="other")
    assert await store.erase(owner="ada") == 3
    assert [one.run_id for one in (await store.list()).records] == ["other"]


async def test_a_fork_with_another_input_starts_from_the_beginning(store: RecordingStore | None) -> None:
    shop = ShopTeam([call("price", item="tea"), call("ask"), "one", "two"], store)
    first = await shop.runner.run("buy tea")
    fork = await shop.runner.runs.fork(first.events, edit={"run": "buy rum"})
    assert (await shop.runner.resume(fork)).output == "one"
    assert [text_of(message.content) for message in shop.model.requests[-1].messages] == ["buy rum"]
    fork = await shop.runner.runs.fork(
        first.events, edit={"run": [UserMessage("a"), AssistantMessage("b"), UserMessage("c")]}
    )
    await shop.runner.resume(fork)
    assert [text_of(message.content) for message in shop.model.requests[-1].messages] == ["a", "b", "c"]


async def test_a_fork_with_another_tool_result_asks_the_model_again(store: RecordingStore | None) -> None:
    shop = ShopTeam([call("price", item="tea"), call("ask"), "dear", "odd"], store)
    first = await shop.runner.run("buy tea")
    fork = await shop.runner.runs.fork(first.run_id, edit={"1/m1.0": "tea: 900"})
    assert (await shop.runner.resume(fork)).output == "dear"
    assert [text_of(message.content) for message in shop.model.requests[-1].messages][-1] == "tea: 900"
    # Any value that a tool could return is accepted.
    fork = await shop.runner.runs.fork(first.run_id, edit={"1/m1.0": {"tea": 900}})
    await shop.runner.resume(fork)
    assert [text_of(message.content) for message in shop.model.requests[-1].messages][-1] == '{"tea":900}'
    with pytest.raises(ToolResultError):
        await shop.runner.runs.fork(first.run_id, edit={"1/m1.0": object()})
    assert shop.done == ["tea"]


async def test_a_fork_with_another_answer_takes_the_other_branch() -> None:
    shop = ShopTeam([call("pay", euro=5), "paid", "left"], RecordingStore())
    waiting = await shop.runner.run("buy tea")
    await shop.runner.resume(waiting.run_id, True)
    no = {"approved": False, "reason": "too dear"}
    fork = await shop.runner.runs.fork(waiting.run_id, edit={"1/m1.0/ask1!": no})
    result = await shop.runner.resume(fork)
    assert (result.output, shop.done) == ("left", ["paid 5"])
    assert "A: pay failed -> This call of `pay` was not approved: too dear" in transcript(result.events)


async def test_a_suspended_run_and_its_fork_can_be_answered_differently(store: RecordingStore | None) -> None:
    shop = ShopTeam([call("pay", euro=5), "left", "paid"], store)
    waiting = await shop.runner.run("buy tea")
    fork = await shop.runner.runs.fork(waiting.run_id)
    assert (await shop.runner.resume(fork, False)).output == "left"
    assert (await shop.runner.resume(waiting.run_id, True)).output == "paid"
    assert shop.done == ["paid 5"]


async def test_an_edited_response_is_read_by_the_next_agent() -> None:
    store = RecordingStore()
    shop = ShopTeam([say("Let me see.", call("price", item="tea")), "five", "six"], store)
    await shop.runner.run("buy tea", run_id="r")
    fork = await shop.runner.runs.fork("r", edit={"1/m1": "Hold on."})
    assert (await shop.runner.resume(fork)).output == "six"
    assert [text_of(message.content) for message in shop.model.requests[-1].messages][1] == "Hold on."
    assert shop.done == ["tea", "tea"]
    with pytest.raises(RunError, match="can be replaced with another text"):
        await shop.runner.runs.fork("r", edit={"1/m1": 5})


async def test_several_results_of_one_turn_can_be_edited_together() -> None:
    # In any order.
    store = RecordingStore()
    shop = ShopTeam([[call("price", item="tea"), call("price", item="rum")], "x", "y", "z"], store)
    await shop.runner.run("buy", run_id="r")
    for edit in ({"1/m1.0": "T", "1/m1.1": "R"}, {"1/m1.1": "R", "1/m1.0": "T"}):
        result = await shop.runner.resume(await shop.runner.runs.fork("r", edit=edit))
        assert [text_of(message.content) for message in result.messages[2:4]] == ["T", "R"]
    assert shop.done == ["tea", "rum"]


async def test_the_result_of_a_step_can_be_edited() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.say(f"drew {await ctx.step('draw', lambda: 6)}")

    runner = Runner(a, store=RecordingStore())
    await runner.run("hi", run_id="r")
    result = await runner.resume(await runner.runs.fork("r", edit={"1/step:draw": 1}))
    assert result.messages[-1].content == "drew 1"


async def test_an_invalid_fork_is_refused_and_nothing_is_stored() -> None:
    store = RecordingStore()
    shop = ShopTeam([call("ask"), "done"], store)
    await shop.runner.run("buy tea", run_id="r")
    await shop.runner.resume("r", 5)
    size = len(await load_events(store, "r"))
    for at in (0, -1, size + 1):
        with pytest.raises(RunError, match=f"has {size} events"):
            await shop.runner.runs.fork("r", at=at)
    with pytest.raises(RunError, match="no event `2/m1`"):
        await shop.runner.runs.fork("r", edit={"2/m1": "x"})
    with pytest.raises(RunError, match="no event `1/m2`"):
        await shop.runner.runs.fork("r", at=3, edit={"1/m2": "x"})
    with pytest.raises(RunError, match="an AgentStarted event cannot be edited"):
        await shop.runner.runs.fork("r", edit={"1/start": "x"})
    with pytest.raises(AnswerError, match="does not fit"):
        await shop.runner.runs.fork("r", edit={"1/m1.0/ask1!": "large"})
    with pytest.raises(RunNotFoundError):
        await shop.runner.runs.fork("q")
    assert [record.run_id for record in (await store.list()).records] == ["r"]


async def test_a_fork_is_suspended_and_not_recovered() -> None:
    store = RecordingStore()
    shop = ShopTeam(["one", "two"], store)
    await shop.runner.run("hi", run_id="r", thread="t")
    fork = await shop.runner.runs.fork("r", at=1)
    assert ((await get_record(store, fork)).status, await recover(shop.runner)) == ("suspended", {})
    # It is not part of the thread.
    assert [record.run_id for record in await shop.runner.thread("t").runs()] == ["r"]


async def test_a_fork_can_continue_the_conversation_in_a_new_thread() -> None:
    # What `/fork` of `baton chat` does.
    store = RecordingStore()
    shop = ShopTeam(["one", call("price", item="tea"), "two", "three", "other three"], store)
    for text in ("first", "second", "third"):
        await shop.runner.run(text, thread="a", run_id=text)
    before = [await store.load(run_id) for run_id in ("first", "second", "third")]
    fork = await shop.runner.runs.fork("second", thread="b")
    assert (await shop.runner.resume(fork)).output == "two"
    assert shop.done == ["tea"], "a recorded tool ran again"
    assert (await shop.runner.run("third again", thread="b")).output == "other three"
    read = [text_of(message.content) for message in shop.model.requests[-1].messages]
    assert read == ["first", "one", "second", "", "tea: 5", "two", "third again"]
    assert (await shop.runner.thread("b").runs())[0].run_id == fork
    assert before == [await store.load(run_id) for run_id in ("first", "second", "third")]
    assert len(await shop.runner.thread("a").runs()) == 3
    with pytest.raises(ThreadExistsError):
        await shop.runner.runs.fork("second", thread="a")


async def test_a_fork_into_a_thread_works_without_a_store() -> None:
    shop = ShopTeam(["one", "two"], None)
    first = await shop.runner.run("first")
    fork = await shop.runner.runs.fork(first.events, thread="b")
    await shop.runner.resume(fork)
    await shop.runner.run("second", thread="b")
    assert [message.content for message in await shop.runner.thread("b").messages()] == [
        "first",
        "one",
        "second",
        "two",
    ]


async def check_later_message_can_be_edited(store: Any) -> None:
    """Edit the second message of a thread in a new thread, whose runs read the messages before it."""
    shop = ShopTeam(["one", "two", "changed", "copied", "and on"], store)
    await shop.runner.run("first", thread="a", run_id="r1")
    await shop.runner.run("second", thread="a", run_id="r2")
    edited = await shop.runner.runs.fork("r2", edit={"run": "something else"}, thread="b")
    assert (await shop.runner.resume(edited)).output == "changed"
    copied = await shop.runner.runs.fork("r2", at=1, thread="c")
    assert (await shop.runner.resume(copied)).output == "copied"
    assert (await shop.runner.run("go on", thread="b")).output == "and on"
    read = [text_of(message.content) for message in shop.model.requests[-1].messages]
    assert read == ["first", "one", "something else", "changed", "go on"]
    assert [text_of(message.content) for message in await shop.runner.thread("b").messages()] == [*read, "and on"]
    assert [text_of(message.content) for message in await shop.runner.thread("a").messages()][2:] == ["second", "two"]
    if shop.runner._access.store is not None:
        (request,) = (await shop.runner.runs.requests(edited)).values()
        assert [text_of(message.content) for message in request.messages] == read[:3]
    await shop.runner.close()


@pytest.mark.parametrize("kind", ["none", "memory", "sqlite"])
async def test_a_later_message_can_be_edited_in_a_new_thread(kind: str, tmp_path: Path) -> None:
    stores = {"none": None, "memory": MemoryStore(), "sqlite": tmp_path / "runs.db"}
    await check_later_message_can_be_edited(stores[kind])


async def test_a_log_of_a_later_message_can_be_loaded_before_its_first_agent_has_started() -> None:
    shop = ShopTeam(["one", "two"], MemoryStore())
    await shop.runner.run("first", thread="a", run_id="r1")
    await shop.runner.submit("second", thread="a", run_id="r2")
    elsewhere = ShopTeam(["done"], MemoryStore())
    await elsewhere.runner.runs.load(await shop.runner.runs.events("r2"))
    assert (await elsewhere.runner.resume("r2")).output == "done"


async def test_a_fork_into_a_thread_that_has_runs_says_that_the_thread_must_be_new() -> None:
    shop = ShopTeam(["one", "two"], MemoryStore())
    await shop.runner.run("first", thread="a", run_id="r1")
    with pytest.raises(ThreadExistsError) as caught:
        await shop.runner.runs.fork("r1", thread="a")
    assert str(caught.value) == (
        "thread `a` has runs, the last one is `r1`; a fork begins a new thread: choose another id"
    )
