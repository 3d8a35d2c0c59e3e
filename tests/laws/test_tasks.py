"""The law of task handoffs: control goes where the stack says, and each result is read exactly once."""

import msgspec
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from tests.laws.cut_stores import CutStore
from tests.laws.executions import run_in_loop
from tests.laws.facts import compactions, identity
from tests.laws.providers import objections
from tests.laws.task_oracle import NAMES, Move, Oracle, Turn, conversations, make_team
from tests.laws.thread_notes import check_notes

from batonkit import Limits, Runner, RunResult
from batonkit.agents import Compaction, HistoryPolicy
from batonkit.log import AgentResponded, Event, HistoryCompacted, encode_event, keys
from batonkit.messages import text_of
from batonkit.models import ModelRequest
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel
from batonkit.testing.transcripts import comparable_events
from batonkit.workflows import SequentialAgent

TASK, FINISH, BACK = Move("task", 0), Move("finish", 0), Move("go", 0)
EVERY_TURN = Compaction(at_tokens=1, keep_last=1, summarizer=identity(seed=0))
LIMITS = Limits(transfers=None, idle_cycles=None, model_calls=None, open_tasks=None)


def make_runner(
    model: ScriptedModel,
    store: MemoryStore,
    history: HistoryPolicy | None = None,
    compaction: Compaction | None = None,
) -> Runner:
    return Runner(make_team(history), model=model, store=store, limits=LIMITS, compaction=compaction)


def check_requests(oracle: Oracle, requests: list[ModelRequest], *, skipped: int = 0, stop: int | None = None) -> None:
    """Check who was asked, with which tools, and that every result is read exactly once from its end on."""
    assert [request.agent for request in requests] == [each.agent for each in oracle.requests[skipped:stop]]
    for expected, request in zip(oracle.requests[skipped:stop], requests, strict=True):
        assert objections(request.messages) == []
        names = [spec.name for spec in request.tools]
        assert ("finish_task" in names, "cancel_task" in names) == (expected.has_task, expected.has_task)
        text = "\n".join(text_of(message.content) for message in request.messages)
        calls = "\n".join(call.arguments for m in request.messages for call in getattr(m, "tool_calls", ()))
        found = [(text + calls).count(f"result-{number}!") for number in range(len(oracle.results))]
        assert found == [int(number < len(expected.results)) for number in range(len(oracle.results))]


async def _talk(
    turns: tuple[Turn, ...], history: HistoryPolicy | None, compaction: Compaction | None = None
) -> tuple[Oracle, CutStore, list[RunResult]]:
    oracle, store = Oracle(), CutStore()
    model = ScriptedModel(oracle.script)
    results: list[RunResult] = []
    for number, turn in enumerate(turns):
        before = len(oracle.requests)
        script = {name: len(steps) for name, steps in oracle.script.items()}
        oracle.play(turn)
        model = ScriptedModel({name: steps[script[name] :] for name, steps in oracle.script.items()})
        runner = make_runner(model, store, history, compaction)
        result = await runner.run(
            f"turn {number}", thread="t", run_id=f"r{number}", start_at="root" if turn.starts_at_root else "active"
        )
        results.append(result)
        assert result.status == "completed"
        check_requests(oracle, model.requests, skipped=before)
        # The log alone has what each agent read.
        recorded = (await runner.runs.requests(f"r{number}")).values()
        assert [each.messages for each in recorded] == [tuple(request.messages) for request in model.requests]
        thread = runner.thread("t")
        assert await thread.active_agent() == oracle.active
        assert [task.agent for task in await thread.open_tasks()] == oracle.agents_of_tasks
        assert [task.agent for task in result.open_tasks] == oracle.agents_of_tasks
        await check_notes(store)
    return oracle, store, results


@given(turns=conversations, history=st.sampled_from(["rewritten", "verbatim"]))
def test_control_goes_where_the_stack_says(turns: tuple[Turn, ...], history: HistoryPolicy) -> None:
    note(repr(turns))
    run_in_loop(_talk(turns, history))


def _summary(events: tuple[Event, ...] | list[Event]) -> list[str]:
    # Only the events of agents: a run that was interrupted has more events about the run itself. A resumed run does
    # not remember that a summary failed, and may make the next one earlier.
    agents_events = [event for event in comparable_events(events) if not isinstance(event, HistoryCompacted)]
    return [msgspec.json.encode(_without_time(event)).decode() for event in agents_events]


def _without_time(event: Event) -> object:
    fields = msgspec.json.decode(encode_event(event))
    # After a restart a request does not refer to the one before, and may have another summary: see `check_requests`.
    return {name: value for name, value in fields.items() if name not in ("timestamp", "origin", "request")}


async def _crash_everywhere(turns: tuple[Turn, ...], pick: int, compaction: Compaction | None = None) -> None:
    oracle, uncrashed, results = await _talk(turns, None, compaction)
    number = pick % len(results)
    original = results[number]
    done = dict.fromkeys(NAMES, 0)
    for earlier in results[:number]:
        _count(earlier.events, done)
    for length in range(1, len(original.events)):
        prefix = original.events[:length]
        taken = dict(done)
        _count(prefix, taken)
        store = await uncrashed.cut(f"r{number}", length)
        model = ScriptedModel({name: steps[taken[name] :] for name, steps in oracle.script.items()})
        runner = make_runner(model, store, compaction=compaction)
        assert (await runner.runs.drive(f"r{number}")).status == "completed"
        assert _summary(await runner.runs.events(f"r{number}")) == _summary(original.events), f"after {length} events"
        # The conversation goes on as if nothing had happened.
        for place, turn in enumerate(turns[number + 1 :], start=number + 1):
            start = "root" if turn.starts_at_root else "active"
            result = await runner.run(f"turn {place}", thread="t", run_id=f"r{place}", start_at=start)
            assert _summary(result.events) == _summary(results[place].events)
        assert await runner.thread("t").active_agent() == oracle.active
        model.assert_done()
        check_requests(oracle, model.requests, skipped=sum(taken.values()))


def model_calls(result: RunResult, length: int) -> int:
    """Return the number of model calls after the first events of a run."""
    return sum(map(_is_model_call, result.events[length:]))


def _is_model_call(event: Event) -> bool:
    # The result of an exit is said without a model.
    return isinstance(event, AgentResponded) and keys.is_response(event.key)


def _count(events: tuple[Event, ...], done: dict[str, int]) -> None:
    for event in filter(_is_model_call, events):
        done[event.agent] += 1


@given(turns=conversations, pick=st.integers(0, 4))
def test_a_crash_after_any_event_changes_nothing(turns: tuple[Turn, ...], pick: int) -> None:
    note(repr(turns))
    run_in_loop(_crash_everywhere(turns, pick))


async def _fork_everywhere(turns: tuple[Turn, ...], pick: int, compaction: Compaction | None = None) -> None:
    oracle, store, results = await _talk(turns, None, compaction)
    number = pick % len(results)
    original = results[number]
    done = dict.fromkeys(NAMES, 0)
    for earlier in results[:number]:
        _count(earlier.events, done)
    for length in range(1, len(original.events)):
        taken = dict(done)
        _count(original.events[:length], taken)
        model = ScriptedModel({name: steps[taken[name] :] for name, steps in oracle.script.items()})
        runner = make_runner(model, store, compaction=compaction)
        fork = await runner.runs.fork(f"r{number}", at=length)
        result = await runner.resume(fork)
        assert _summary(result.events) == _summary(original.events), f"at {length}"
        assert [task.agent for task in result.open_tasks] == [task.agent for task in original.open_tasks]
        skipped = sum(taken.values())
        check_requests(oracle, model.requests, skipped=skipped, stop=skipped + model_calls(original, length))
        replayed = await runner.runs.replay(fork)
        assert replayed.messages == result.messages


@given(turns=conversations, pick=st.integers(0, 4))
def test_a_fork_keeps_the_stack(turns: tuple[Turn, ...], pick: int) -> None:
    note(repr(turns))
    run_in_loop(_fork_everywhere(turns, pick))


# The requests of a conversation whose histories are compacted at random points satisfy the same law.
@settings(max_examples=settings().max_examples * 2)
@given(turns=conversations, history=st.sampled_from(["rewritten", "verbatim"]), compaction=compactions)
# The summary covers the call of the task that ends: its result was lost.
@example(turns=(Turn((TASK,)), Turn((FINISH,))), history="rewritten", compaction=EVERY_TURN)
# The call of a declined task lost the reference to its event: the summary and its messages were read.
@example(turns=(Turn((TASK, BACK)), Turn(())), history="rewritten", compaction=EVERY_TURN)
def test_control_and_results_are_the_same_with_compaction(
    turns: tuple[Turn, ...], history: HistoryPolicy, compaction: Compaction
) -> None:
    note(f"{turns!r}\n{compaction!r}")
    run_in_loop(_talk(turns, history, compaction))


@given(turns=conversations, pick=st.integers(0, 4), compaction=compactions)
def test_a_crash_after_any_event_changes_nothing_with_compaction(
    turns: tuple[Turn, ...], pick: int, compaction: Compaction
) -> None:
    note(f"{turns!r}\n{compaction!r}")
    run_in_loop(_crash_everywhere(turns, pick, compaction))


@given(turns=conversations, pick=st.integers(0, 4), compaction=compactions)
def test_a_fork_keeps_the_stack_with_compaction(turns: tuple[Turn, ...], pick: int, compaction: Compaction) -> None:
    note(f"{turns!r}\n{compaction!r}")
    run_in_loop(_fork_everywhere(turns, pick, compaction))


async def _talk_inside(turns: tuple[Turn, ...]) -> None:
    oracle, replies = Oracle(), 0
    for number, turn in enumerate(turns):
        oracle.play(Turn(turn.moves))
        replies = number
        if not oracle.tasks:
            break
    model = ScriptedModel(oracle.script)
    flow = SequentialAgent("Flow", sub_agents=[make_team()])
    runner = Runner(flow, model=model, store=MemoryStore(), limits=LIMITS)
    result = await runner.run("turn 0", run_id="r")
    for number in range(1, replies + 1):
        (interrupt,) = result.interrupts
        assert interrupt.payload["kind"] == "question"
        assert interrupt.payload["text"].startswith("words")
        result = await runner.resume("r", f"turn {number}")
    check_requests(oracle, model.requests)
    assert result.status == ("suspended" if oracle.tasks else "completed")
    assert result.open_tasks == ()


@given(turns=conversations)
def test_a_task_inside_a_workflow_asks_the_user(turns: tuple[Turn, ...]) -> None:
    note(repr(turns))
    run_in_loop(_talk_inside(turns))
