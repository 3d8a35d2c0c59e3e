"""Threads: consecutive runs that share their history and active agent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.runs.recording_store import RecordingStore, get_record
from tests.unfinished import recover

from batonkit import Agent, RunContext, Runner, SetupError, agent, tool
from batonkit.agents import AgentContext
from batonkit.errors import ModelError, RunConflictError, ThreadBusyError, TransferError
from batonkit.log import RunStarted
from batonkit.messages import text_of
from batonkit.stores import FullStore, KeyValueStore, MemoryStore, SQLiteStore
from batonkit.testing import FaultyStore, ScriptedModel, call, transfer_to


class Dictionary(dict[str, bytes]):
    """A key-value store in memory."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


def store_of(kind: str, folder: Path) -> FullStore:
    if kind == "sqlite":
        return SQLiteStore(folder / "runs.db")
    return MemoryStore() if kind == "memory" else KeyValueStore(Dictionary())


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask."""
    return str(await ctx.interrupt(question))


def make_runner(steps: Any, store: Any = None) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a runner with two agents that can transfer to each other."""
    model = ScriptedModel(steps)
    b = Agent("B", description="b", tools=[ask])
    return Runner(Agent("A", description="a", sub_agents=[b], tools=[ask]), model=model, store=store), model


def request_texts(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return the texts of a request, by default of the last one."""
    return [text_of(message.content) for message in model.requests[number].messages]


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_thread_continues_with_its_history_and_active_agent(is_stored: bool) -> None:
    runner, model = make_runner(
        {"A": [transfer_to("B")], "B": ["I am B", "still B"]}, RecordingStore() if is_stored else None
    )
    first = await runner.run("hi", thread="u42")
    second = await runner.run("and now?", thread="u42")
    assert (first.agent, second.agent, second.output) == ("B", "B", "still B")
    assert request_texts(model)[0] == "hi"
    assert request_texts(model)[-2:] == ["I am B", "and now?"]
    assert [text_of(message.content) for message in second.messages] == ["and now?", "still B"]
    thread = runner.thread("u42")
    assert await thread.active_agent() == "B"
    assert [record.run_id for record in await thread.runs()] == [first.run_id, second.run_id]
    contents = [text_of(message.content) for message in await thread.messages()]
    assert contents[:1] + contents[-3:] == ["hi", "I am B", "and now?", "still B"]


async def test_start_at_root_starts_with_the_root_agent() -> None:
    runner, model = make_runner({"A": [transfer_to("B"), "A again"], "B": ["I am B"]})
    await runner.run("hi", thread="t")
    assert (await runner.run("and now?", thread="t", start_at="root")).output == "A again"
    assert "I am B" in " ".join(request_texts(model))
    wrong: Any = "mine"
    with pytest.raises(SetupError, match="start_at"):
        await runner.run("x", thread="t", start_at=wrong)


async def test_another_process_continues_the_thread() -> None:
    store = RecordingStore()
    await make_runner({"A": [transfer_to("B")], "B": ["I am B"]}, store)[0].run("hi", thread="t")
    runner, model = make_runner({"B": ["still B"]}, store)
    assert (await runner.run("and now?", thread="t")).output == "still B"
    assert request_texts(model)[-2:] == ["I am B", "and now?"]


async def test_a_thread_whose_active_agent_is_gone_starts_with_the_root_agent() -> None:
    store = RecordingStore()
    await make_runner({"A": [transfer_to("B")], "B": ["I am B"]}, store)[0].run("hi", thread="t")
    alone = Runner(Agent("A", model=ScriptedModel(["alone"])), store=store)
    assert (await alone.run("and now?", thread="t")).output == "alone"


EXPERTS = {"Guest": Agent("Guest"), "B": Agent("B", instructions="Made elsewhere.")}


def find_expert(name: str) -> Agent:
    """Look an expert up."""
    return EXPERTS[name]


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_thread_warns_if_the_team_does_not_know_its_active_agent(
    is_stored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # The next run went to the root without a word.
    model = ScriptedModel({"A": [call("find_expert", name="Guest"), "A again"], "Guest": ["I am a guest"]})
    store = RecordingStore() if is_stored else None
    runner = Runner(Agent("A", tools=[find_expert]), model=model, store=store)
    assert (await runner.run("hi", thread="t")).agent == "Guest"
    assert caplog.messages == []
    assert (await runner.run("and now?", thread="t")).output == "A again"
    (warned,) = caplog.messages
    assert warned == (
        "thread `t` continues with the root agent `A`: its active agent `Guest` is not part of the team; "
        "list it in Runner(extra_agents=[…]) if a function looks it up"
    )


async def test_resuming_a_run_whose_agent_a_function_made_says_how_to_list_it() -> None:
    store = RecordingStore()

    @tool
    def call_guest() -> Agent:
        """Hand over to an agent that is made now."""
        return Agent("Guest", tools=[ask])

    def new_runner(*extra: Agent) -> Runner[Any, Any]:
        model = ScriptedModel({"A": [call("call_guest")], "Guest": [call("ask", question="?"), "done"]})
        return Runner(Agent("A", tools=[call_guest]), model=model, store=store, extra_agents=extra)

    asked = await new_runner().run("hi")
    with pytest.raises(TransferError) as caught:
        await new_runner().resume(asked.run_id, "yes")
    assert str(caught.value) == (
        "`A` transferred to `Guest` with `call_guest` before the run was resumed, but `Guest` is not part of this "
        "team; if a function made it, list it in Runner(extra_agents=[…])"
    )
    listed = new_runner(Agent("Guest", tools=[ask]))
    assert (await listed.resume(asked.run_id, accept_changes=True)).agent == "Guest"


async def test_a_thread_finds_its_active_agent_by_name(caplog: pytest.LogCaptureFixture) -> None:
    # Another object of the same name was returned.
    model = ScriptedModel({"A": [call("find_expert", name="B")], "B": ["I am B", "still B"]})
    runner = Runner(Agent("A", tools=[find_expert]), model=model, extra_agents=[Agent("B")])
    await runner.run("hi", thread="t")
    caplog.clear()
    assert (await runner.run("and now?", thread="t")).output == "still B"
    assert caplog.messages == []


async def test_threads_are_separate() -> None:
    runner, model = make_runner({"A": ["one", "two", "three"]})
    await runner.run("mine", thread="a")
    await runner.run("yours", thread="b")
    assert request_texts(model) == ["yours"]
    await runner.run("without a thread")
    assert request_texts(model) == ["without a thread"]


# --- one run at a time


async def test_a_thread_with_a_run_that_has_not_ended_is_busy() -> None:
    store = RecordingStore()
    runner, _ = make_runner({"A": [call("ask", question="?"), "done", "next"]}, store)
    waiting = await runner.run("hi", thread="t")
    for attempt in (runner.run("hello", thread="t"), runner.submit("hello", thread="t")):
        with pytest.raises(ThreadBusyError, match=f"{waiting.run_id}.*suspended"):
            await attempt
    assert len(await runner.thread("t").runs()) == 1
    await runner.resume(waiting.run_id, "yes")
    assert (await runner.run("hello", thread="t")).output == "next"


async def test_of_two_concurrent_runs_of_a_thread_one_is_refused() -> None:
    for _ in range(5):
        runner, _ = make_runner({"A": ["one", "two"]}, RecordingStore())
        ended = await asyncio.gather(*[runner.run("hi", thread="t") for _ in range(2)], return_exceptions=True)
        kinds = sorted(type(one).__name__ for one in ended)
        assert kinds in (["RunResult", "ThreadBusyError"], ["RunResult", "RunResult"])
        runs = await runner.thread("t").runs()
        assert len(runs) == kinds.count("RunResult")
        starts = [event for event in await runner.thread("t").events() if isinstance(event, RunStarted)]
        assert [start.previous_run_id for start in starts] == ["", *[run.run_id for run in runs[:-1]]]


async def test_a_run_is_refused_if_another_one_finished_since_the_thread_was_read() -> None:
    # The run before it is not the last one any more.
    store = RecordingStore()
    slow, _ = make_runner({"A": ["late"]}, store)
    fast, _ = make_runner({"A": ["early"]}, store)

    async def finish_first() -> None:
        await fast.run("hi", thread="t", run_id="fast")

    store.faults["create"].append(finish_first)
    with pytest.raises(ThreadBusyError, match="fast"):
        await slow.run("hi", thread="t", run_id="slow")
    assert [record.run_id for record in await slow.thread("t").runs()] == ["fast"]


async def test_a_cancelled_run_cannot_be_resumed_while_its_thread_is_busy() -> None:
    store = RecordingStore()
    runner, _ = make_runner(
        {"A": [call("ask", question="first?"), call("ask", question="second?"), "end", "end"]}, store
    )
    first = await runner.run("hi", thread="t")
    await runner.runs.cancel(first.run_id)
    second = await runner.run("hello", thread="t")
    lines = await store.load(first.run_id)
    for attempt in (runner.resume(first.run_id, "yes"), runner.runs.retry(first.run_id)):
        with pytest.raises(ThreadBusyError, match=second.run_id):
            await attempt
    record = await get_record(store, first.run_id)
    assert (await store.load(first.run_id), record.status, record.lease_until) == (lines, "cancelled", 0.0)
    await runner.resume(second.run_id, "yes")
    # Its successor does not know what it would do now.
    with pytest.raises(RunConflictError, match=rf"runner\.runs\.fork\('{first.run_id}'\)"):
        await runner.resume(first.run_id, "yes")
    assert (await runner.resume(await runner.runs.fork(first.run_id), "yes")).status == "completed"


# --- failed and cancelled runs


async def test_a_cancelled_run_is_part_of_the_thread() -> None:
    runner, model = make_runner({"A": [[call("ask", question="?"), call("nope")], "done"]}, RecordingStore())
    first = await runner.run("hi", thread="t")
    await runner.runs.cancel(first.run_id)
    assert (await runner.run("hello", thread="t")).output == "done"
    assert request_texts(model) == [
        "hi",
        "",
        "This call did not finish.",
        "There is no tool `nope`; the tools are: `ask`, `transfer_to_agent`.",
        "hello",
    ]


async def test_a_run_that_failed_immediately_leaves_its_input_in_the_thread() -> None:
    runner, model = make_runner({"A": [ModelError("overloaded"), "done"]}, RecordingStore())
    with pytest.raises(ModelError):
        await runner.run("hi", thread="t")
    await runner.run("hello?", thread="t")
    assert request_texts(model) == ["hi", "hello?"]


async def test_call_ids_are_unique_across_the_runs_of_a_thread() -> None:
    # The history any provider receives is valid.
    runner, model = make_runner({"A": [call("nope", id="c1"), "one", call("nope", id="c1"), "two"]}, RecordingStore())
    await runner.run("hi", thread="t")
    await runner.run("hello", thread="t")
    ids = [call.id for message in model.requests[-1].messages for call in getattr(message, "tool_calls", ())]
    assert len(ids) == len(set(ids)) == 2


# --- maintenance


async def test_a_thread_is_trimmed_exported_and_deleted() -> None:
    store = RecordingStore()
    runner, model = make_runner({"A": ["one", "two", "three", "four"]}, store)
    for word in ("a", "b", "c"):
        await runner.run(word, thread="t")
    thread = runner.thread("t")
    exported = await thread.events()
    assert [event.input[0].content for event in exported if isinstance(event, RunStarted)] == ["a", "b", "c"]
    assert await thread.trim(1) == 2
    assert [text_of(message.content) for message in await thread.messages()] == ["c", "three"]
    await runner.run("d", thread="t")
    assert request_texts(model) == ["c", "three", "d"]
    assert await thread.delete() == 2
    assert (await thread.runs(), await thread.messages(), await thread.active_agent()) == ([], (), "")


@pytest.mark.parametrize("deleter", ["runs.delete", "another process"])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "keyvalue"])
async def test_a_run_in_the_middle_of_a_thread_is_deleted_and_the_rest_is_read(
    deleter: str, kind: str, tmp_path: Path
) -> None:
    await check_that_the_rest_is_read(store_of(kind, tmp_path), deleter)


async def check_that_the_rest_is_read(store: FullStore, deleter: str) -> None:
    """Delete runs in the middle of a thread, and read the thread."""
    runner, model = make_runner({"A": ["one", "two", "three", "four", "five"]}, store)
    for word in ("a", "b", "c"):
        await runner.run(word, thread="t", run_id=word)
    if deleter == "runs.delete":
        await runner.runs.delete("b")
    else:
        await store.delete("b")
    await runner.run("d", thread="t", run_id="d")
    assert request_texts(model) == ["a", "one", "c", "three", "d"]
    thread = Runner(runner.team.members["A"].agent, store=store).thread("t")
    assert [text_of(message.content) for message in await thread.messages()] == ["a", "one", "c", "three", "d", "four"]
    await runner.runs.delete("a")
    await runner.runs.delete("d")
    await runner.run("e", thread="t")
    assert request_texts(model) == ["c", "three", "e"]
    await store.close()


async def test_a_run_whose_predecessor_was_deleted_is_resumed_and_replayed_with_the_rest_of_the_thread() -> None:
    store = RecordingStore()
    steps = {"A": ["one", "two", call("ask", question="?"), "three"]}
    runner, model = make_runner(steps, store)
    await runner.run("a", thread="t")
    await runner.run("b", thread="t", run_id="b")
    await runner.run("c", thread="t", run_id="c")
    await runner.runs.delete("b")
    assert (await runner.resume("c", "yes")).output == "three"
    assert request_texts(model) == ["a", "one", "c", "", "yes"]
    assert (await runner.runs.replay("c")).output == "three"
    first = (await runner.runs.requests("c"))["1/m1"]
    assert [text_of(message.content) for message in first.messages] == ["a", "one", "c"]


async def test_another_run_with_the_id_of_a_deleted_one_is_not_read_in_its_place() -> None:
    store = RecordingStore()
    runner, model = make_runner({"A": [f"answer {number}" for number in range(6)]}, store)
    for word in ("a", "b", "c"):
        await runner.run(word, thread="t", run_id=word)
    await runner.runs.delete("b")
    await runner.run("secret", thread="of another user", run_id="b")
    cold = Runner(runner.team.members["A"].agent, store=store)
    assert [text_of(one.content) for one in await cold.thread("t").messages()] == ["a", "answer 0", "c", "answer 2"]
    await runner.runs.delete("b")
    await runner.run("again", thread="t", run_id="b")
    assert request_texts(model) == ["a", "answer 0", "c", "answer 2", "again"]
    assert len(await cold.thread("t").messages()) == 6


async def test_trim_does_not_delete_unfinished_runs() -> None:
    store = RecordingStore()
    runner, _ = make_runner({"A": [call("ask", question="?"), "done"]}, store)
    waiting = await runner.run("hi", thread="t")
    with pytest.raises(ThreadBusyError):
        await runner.thread("t").trim(0)
    with pytest.raises(SetupError, match="trim"):
        await runner.thread("t").trim(-1)
    assert (await runner.resume(waiting.run_id, "yes")).output == "done"
    assert await runner.thread("t").trim(0) == 1


async def test_a_thread_whose_run_is_running_is_not_deleted() -> None:
    runner, _ = make_runner({"A": ["done"]}, RecordingStore())
    await runner.submit("hi", thread="t", run_id="r")
    with pytest.raises(ThreadBusyError, match="r"):
        await runner.thread("t").delete()
    await recover(runner)
    assert await runner.thread("t").delete() == 1


async def test_a_run_of_a_thread_is_resumed_replayed_and_forked_with_its_history() -> None:
    store = RecordingStore()
    steps = {"A": ["first", call("ask", question="?"), "second", "forked"]}
    runner, model = make_runner(steps, store)
    await runner.run("hi", thread="t")
    waiting = await runner.run("hello", thread="t", run_id="r2")
    other = Runner(runner.team.members["A"].agent, model=model, store=store)
    result = await other.resume(waiting.run_id, "yes")
    assert request_texts(model)[:3] == ["hi", "first", "hello"]
    assert text_of(result.messages[0].content) == "hello"
    assert (await other.runs.replay("r2")).output == "second"
    fork = await runner.runs.fork("r2", edit={"1/m1.0/ask1!": "no"})
    assert (await runner.resume(fork)).output == "forked"
    assert request_texts(model) == ["hi", "first", "hello", "", "no"]
    assert [record.run_id for record in await runner.thread("t").runs()][-1] == "r2"


async def test_values_for_the_thread_are_passed_on_to_its_next_run(tmp_path: Path) -> None:
    @agent("Counter", description="Counts.")
    async def counter(ctx: AgentContext) -> None:
        count = ctx.values.get("thread:count", 0) + 1
        ctx.values.set("thread:count", count)
        ctx.values.set("other", count)
        if count == 3:
            ctx.values.delete("thread:gone")
        await ctx.say(f"{count} {sorted(ctx.values)}")

    async def turn(**args: Any) -> str:
        async with Runner(counter, store=tmp_path / "runs.db") as runner:
            return (await runner.run("go", **args)).output

    assert await turn(thread="t", values={"thread:gone": 1}) == "1 ['other', 'thread:count', 'thread:gone']"
    assert await turn(thread="t") == "2 ['other', 'thread:count', 'thread:gone']"
    async with Runner(counter, store=tmp_path / "runs.db") as runner:
        await runner.thread("t").trim(1)
    assert await turn(thread="t") == "3 ['other', 'thread:count']"
    assert await turn(thread="t") == "4 ['other', 'thread:count']"
    assert await turn(thread="another") == "1 ['other', 'thread:count']"
    assert await turn() == "1 ['other', 'thread:count']"


async def test_the_next_run_of_a_thread_inherits_its_origins_without_reading_the_record_before() -> None:
    store = FaultyStore(MemoryStore())
    runner = Runner(Agent("A", model=ScriptedModel(["one", "two", "three"])), store=store)
    await runner.run("go", thread="t", owner="ada", run_id="first")
    await runner.run("go", thread="t", owner="bob", run_id="second")
    store.calls.clear()
    await runner.run("go", thread="t", owner="bob", run_id="third")
    assert "record" not in store.calls
    assert (await runner.runs.get("second")).origins == ("owner:ada",)
    assert (await runner.runs.get("third")).origins == ("owner:ada",)
