"""A team as a service, with the official client on the other side of a real socket."""

import asyncio
from pathlib import Path

import pytest
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    StreamResponse,
    SubscribeToTaskRequest,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.serving.a2a.stage import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    WORKING,
    Assembled,
    assembled,
    client_at,
    said,
    sent,
    served,
    streamed,
    text_in,
)

from baton import Agent, RunContext, Runner, agent, tool
from baton.agents import AgentContext, with_guardrails
from baton.messages import Data, File, Text
from baton.serving.a2a import a2a_app
from baton.testing import ScriptedModel, ScriptedStream, call

BINDINGS = ["JSONRPC", "HTTP+JSON"]


@tool
async def book(ctx: RunContext, city: str) -> str:
    """Book a flight."""
    return f"booked {city} at {await ctx.interrupt({'question': 'When?', 'times': [7, 9]})}"


def _travel() -> Runner:
    model = ScriptedModel([call("book", city="Rome"), "You fly."], cycle=True)
    return Runner(Agent("Travel", description="Books flights.", tools=[book]), model=model, store="memory:")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_is_begun_read_listed_and_goes_on_in_its_context(binding: str) -> None:
    runner = Runner(Agent("Echo", description="Echoes."), model=ScriptedModel(["one", "two"]), store="memory:")
    async with served(a2a_app(runner)) as url, client_at(url, binding=binding, streams=False) as client:
        first = await sent(client, "hello")
        assert (first.status.state, text_in(first)) == (COMPLETED, "one")
        assert [part.text for part in first.history[0].parts] == ["hello"]

        second = await sent(client, "again", context=first.context_id)
        assert second.context_id == first.context_id
        assert second.id != first.id
        assert len(await runner.thread(first.context_id).messages()) == 4

        assert await client.get_task(GetTaskRequest(id=first.id)) == first
        page = await client.list_tasks(ListTasksRequest(context_id=first.context_id, page_size=1))
        assert [task.id for task in page.tasks] == [second.id]
        assert (page.total_size, len(page.tasks[0].artifacts)) == (2, 0)
        rest = await client.list_tasks(
            ListTasksRequest(
                context_id=first.context_id, page_size=1, page_token=page.next_page_token, include_artifacts=True
            )
        )
        assert (list(rest.tasks), rest.next_page_token) == ([first], "")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_begins_with_the_task_and_ends_with_its_end(binding: str) -> None:
    model = ScriptedModel([" ".join(["word"] * 200)], stream=True)
    app = a2a_app(Runner(Agent("A"), model=model, store="memory:"))
    async with served(app) as url, client_at(url, binding=binding) as client:
        answers = await streamed(client.send_message(said("go")))
        view = assembled(answers)
        task = await client.get_task(GetTaskRequest(id=view.task.id))
    assert answers[0].HasField("task")
    assert view.states[-1] == COMPLETED
    assert text_in(view.task) == text_in(task) == " ".join(["word"] * 200)
    assert 1 <= view.chunks < 20
    artifacts = [each.artifact_update for each in answers if each.HasField("artifact_update")]
    assert [each.last_chunk for each in artifacts] == [False] * (len(artifacts) - 1) + [True]
    assert [each.append for each in artifacts] == [False] + [True] * (len(artifacts) - 1)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_question_pauses_the_task_and_a_follow_up_answers_it(binding: str) -> None:
    async with served(a2a_app(_travel())) as url, client_at(url, binding=binding, streams=False) as client:
        asked = await sent(client, "to Rome")
        assert asked.status.state == INPUT_REQUIRED
        text, data = asked.status.message.parts
        assert text.text == "When?"
        question = data.data.struct_value["interruptId"]

        done = await sent(client, task=asked.id, data={"interruptId": question, "answer": "09:40"})
        assert (done.status.state, done.context_id) == (COMPLETED, asked.context_id)
        assert text_in(done) == "You fly."

        again = await sent(client, "to Rome", context=asked.context_id)
        done = await sent(client, "07:10", task=again.id)
        assert (done.status.state, done.context_id) == (COMPLETED, asked.context_id)
        with pytest.raises(UnsupportedOperationError):
            await sent(client, "more", task=done.id)


async def test_a_follow_up_goes_on_after_a_restart(tmp_path: Path) -> None:
    def again() -> Runner:
        model = ScriptedModel({"Travel": [call("book", city="Rome")]})
        if (tmp_path / "runs.db").exists():
            model = ScriptedModel(["You fly."])
        return Runner(Agent("Travel", tools=[book]), model=model, store=tmp_path / "runs.db")

    async with served(a2a_app(again())) as url, client_at(url, streams=False) as client:
        asked = await sent(client, "to Rome")
    async with served(a2a_app(again())) as url, client_at(url) as client:
        view = assembled(await streamed(client.send_message(said("09:40", task=asked.id))))
    assert (view.task.id, view.states[-1]) == (asked.id, COMPLETED)
    assert text_in(view.task) == "You fly."


async def test_subscribers_hear_the_same_whether_the_task_waits_or_works() -> None:
    async with served(a2a_app(_travel())) as url, client_at(url) as client:
        asked = assembled(await streamed(client.send_message(said("to Rome")))).task
        assert asked.status.state == INPUT_REQUIRED
        subscribed = asyncio.Semaphore(0)

        async def heard() -> list[StreamResponse]:
            answers: list[StreamResponse] = []
            async for answer in client.subscribe(SubscribeToTaskRequest(id=asked.id)):
                answers.append(answer)
                subscribed.release()
            return answers

        listening = [asyncio.create_task(heard()) for _ in range(2)]
        for _ in listening:
            await subscribed.acquire()
        await streamed(client.send_message(said("07:10", task=asked.id)))
        one, other = await asyncio.gather(*listening)
        assert one == other
        assert assembled(one).states[0] == INPUT_REQUIRED
        assert assembled(one).states[-1] == COMPLETED
        with pytest.raises(UnsupportedOperationError):
            await streamed(client.subscribe(SubscribeToTaskRequest(id=asked.id)))


async def test_a_client_that_is_cut_off_comes_back_and_misses_nothing() -> None:
    gates = [asyncio.Event() for _ in range(2)]
    model = ScriptedModel([ScriptedStream("one ", "two ", gates[0], "three ", gates[1], "four")])
    async with served(a2a_app(Runner(Agent("A"), model=model, store="memory:"))) as url:
        async with client_at(url) as client:
            view = Assembled()
            async for answer in client.send_message(said("go")):
                view.take(answer)
                if view.chunks:
                    break
            assert text_in(view.task) == "one two "
        gates[0].set()
        async with client_at(url) as client:
            again = client.subscribe(SubscribeToTaskRequest(id=view.task.id))
            view = assembled([await anext(again)])
            assert view.states == [WORKING]
            assert text_in(view.task).startswith("one two ")
            gates[1].set()
            async for answer in again:
                view.take(answer)
    assert text_in(view.task) == "one two three four"
    assert view.states[-1] == COMPLETED


async def test_a_silent_agent_is_cancelled_and_a_task_that_has_ended_is_not() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    async with served(a2a_app(silent)) as url, client_at(url, streams=False) as client:
        task = await sent(client, "go", at_once=True)
        stopped = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert stopped.status.state == CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="nobody"))


async def test_what_fails_says_nothing_of_why(caplog: pytest.LogCaptureFixture) -> None:
    @agent("Broken")
    async def broken(ctx: AgentContext) -> None:
        raise RuntimeError("password is hunter2")

    async with served(a2a_app(broken)) as url, client_at(url, streams=False) as client:
        task = await sent(client, "go")
    assert task.status.state == FAILED
    assert "hunter2" not in str(task)
    assert "hunter2" in caplog.text


async def test_files_and_data_go_both_ways() -> None:
    @agent("Mirror")
    async def mirror(ctx: AgentContext) -> None:
        (message,) = ctx.messages()
        assert message.content == (Text("see"), Data({"n": 1}))
        await ctx.say((Text("made"), File(data=b"a,b", media_type="text/csv", name="t.csv"), Data({"n": 2})))

    async with served(a2a_app(mirror)) as url, client_at(url, streams=False) as client:
        task = await sent(client, "see", data={"n": 1})
    text, file, data = task.artifacts[0].parts
    assert (text.text, file.raw, file.filename, file.media_type) == ("made", b"a,b", "t.csv", "text/csv")
    assert data.data.struct_value["n"] == 2


async def test_a_second_task_in_a_busy_context_runs_beside_the_first() -> None:
    async with served(a2a_app(_travel())) as url, client_at(url, streams=False) as client:
        first = await sent(client, "to Rome")
        second = await sent(client, "to Oslo", context=first.context_id)
        assert second.id != first.id
        assert second.context_id == first.context_id
        page = await client.list_tasks(ListTasksRequest(context_id=first.context_id))
        assert {task.id for task in page.tasks} == {first.id, second.id}


async def test_the_card_says_what_the_team_can_do_and_is_not_sent_twice() -> None:
    import httpx

    weather = Agent("Weather", description="Knows the weather.")
    router = Agent("Router", description="Routes.", sub_agents=[weather])
    app = a2a_app(Runner(router, model=ScriptedModel([]), store="memory:"), card={"version": "7"})
    async with served(app) as url, httpx.AsyncClient() as http:
        answer = await http.get(f"{url}/.well-known/agent-card.json")
        card = answer.json()
        assert (card["name"], card["description"], card["version"]) == ("Router", "Routes.", "7")
        assert [skill["name"] for skill in card["skills"]] == ["Router", "Weather"]
        assert card["supportedInterfaces"][0] == {
            "url": f"{url}/",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        assert answer.headers["last-modified"]
        again = await http.get(f"{url}/.well-known/agent-card.json", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


async def test_the_client_of_a_service_that_is_away_says_so() -> None:
    with pytest.raises(A2AClientError):
        async with client_at("http://127.0.0.1:9"):
            pass


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_agent_may_answer_with_a_message_and_sees_what_was_sent(binding: str) -> None:
    @agent("Terse")
    async def terse(ctx: AgentContext) -> None:
        ctx.values.set("a2a.reply", "message")
        await ctx.say(f"{ctx.values['a2a']['messageId']}: {ctx.values['a2a']['metadata']['n']}")

    async with served(a2a_app(terse)) as url, client_at(url, binding=binding, streams=False) as client:
        request = said("hi")
        request.message.message_id = "m-1"
        request.message.metadata["n"] = 7
        (answer,) = [each async for each in client.send_message(request)]
    assert answer.message.parts[0].text == "m-1: 7"


async def test_a_guardrail_that_says_no_rejects_the_task() -> None:
    def only_weather(ctx: RunContext, messages: object) -> bool:
        return False

    desk = with_guardrails(Agent("A", model=ScriptedModel(["hi"])), input_guardrails=[only_weather])
    async with served(a2a_app(desk)) as url, client_at(url, streams=False) as client:
        task = await sent(client, "hi")
    assert task.status.state == REJECTED


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_service_can_be_mounted_in_another_app(binding: str) -> None:
    a2a = a2a_app(Agent("A", model=ScriptedModel(["hi"])))
    outer = Starlette(routes=[Mount("/agents/a", a2a)])
    async with served(outer) as url, client_at(f"{url}/agents/a", binding=binding, streams=False) as client:
        assert text_in(await sent(client, "hello")) == "hi"
        await a2a.close()
