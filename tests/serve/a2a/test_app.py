"""A team as an A2A service, used with the official client over a real socket."""

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
from tests.runs.recording_store import HeldStore
from tests.serve.a2a.clients import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    WORKING,
    TaskView,
    client_at,
    message_request,
    read_stream,
    send,
    served,
    task_view,
    text_in,
)
from tests.sockets import http_client

from batonkit import Agent, RunContext, Runner, agent, tool
from batonkit.a2a import RemoteAgent
from batonkit.agents import AgentContext, with_guardrails
from batonkit.errors import RemoteError, TaskFailedError
from batonkit.messages import Data, File, Text
from batonkit.serve.a2a import a2a_app, broadcast
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedStream, call

BINDINGS = ["JSONRPC", "HTTP+JSON"]


@tool
async def book(ctx: RunContext, city: str) -> str:
    """Book a flight."""
    return f"booked {city} at {await ctx.interrupt({'question': 'When?', 'times': [7, 9]})}"


def _travel() -> Runner:
    model = ScriptedModel([call("book", city="Rome"), "You fly."], cycle=True)
    return Runner(Agent("Travel", description="Books flights.", tools=[book]), model=model, store="memory:")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_tasks_are_created_read_and_listed_in_their_context(binding: str) -> None:
    runner = Runner(Agent("Echo", description="Echoes."), model=ScriptedModel(["one", "two"]), store="memory:")
    async with served(a2a_app(runner)) as url, client_at(url, binding=binding, streams=False) as client:
        first = await send(client, "hello")
        assert (first.status.state, text_in(first)) == (COMPLETED, "one")
        assert [part.text for part in first.history[0].parts] == ["hello"]

        second = await send(client, "again", context=first.context_id)
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
async def test_a_stream_starts_with_the_task_and_ends_with_its_final_status(
    binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "_FLUSH_SECONDS", 3600.0)  # Only the size of the text counts.
    model = ScriptedModel([" ".join(["word"] * 200)], stream=True)
    app = a2a_app(Runner(Agent("A"), model=model, store="memory:"))
    async with served(app) as url, client_at(url, binding=binding) as client:
        answers = await read_stream(client.send_message(message_request("go")))
        view = task_view(answers)
        task = await client.get_task(GetTaskRequest(id=view.task.id))
    assert answers[0].HasField("task")
    assert view.states[-1] == COMPLETED
    assert text_in(view.task) == text_in(task) == " ".join(["word"] * 200)
    assert view.chunks == 3
    artifacts = [each.artifact_update for each in answers if each.HasField("artifact_update")]
    assert [each.last_chunk for each in artifacts] == [False] * (len(artifacts) - 1) + [True]
    assert [each.append for each in artifacts] == [False] + [True] * (len(artifacts) - 1)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_interrupt_is_answered_by_a_follow_up_message(binding: str) -> None:
    async with served(a2a_app(_travel())) as url, client_at(url, binding=binding, streams=False) as client:
        waiting_task = await send(client, "to Rome")
        assert waiting_task.status.state == INPUT_REQUIRED
        text, data = waiting_task.status.message.parts
        assert text.text == "When?"
        question = data.data.struct_value["interruptId"]

        completed = await send(client, task=waiting_task.id, data={"interruptId": question, "answer": "09:40"})
        assert (completed.status.state, completed.context_id) == (COMPLETED, waiting_task.context_id)
        assert text_in(completed) == "You fly."

        again = await send(client, "to Rome", context=waiting_task.context_id)
        completed = await send(client, "07:10", task=again.id)
        assert (completed.status.state, completed.context_id) == (COMPLETED, waiting_task.context_id)
        with pytest.raises(UnsupportedOperationError):
            await send(client, "more", task=completed.id)


async def test_a_follow_up_works_after_a_restart(tmp_path: Path) -> None:
    def again() -> Runner:
        model = ScriptedModel({"Travel": [call("book", city="Rome")]})
        if (tmp_path / "runs.db").exists():
            model = ScriptedModel(["You fly."])
        return Runner(Agent("Travel", tools=[book]), model=model, store=tmp_path / "runs.db")

    async with served(a2a_app(again())) as url, client_at(url, streams=False) as client:
        waiting_task = await send(client, "to Rome")
    async with served(a2a_app(again())) as url, client_at(url) as client:
        view = task_view(await read_stream(client.send_message(message_request("09:40", task=waiting_task.id))))
    assert (view.task.id, view.states[-1]) == (waiting_task.id, COMPLETED)
    assert text_in(view.task) == "You fly."


async def test_all_subscribers_get_the_same_updates() -> None:
    async with served(a2a_app(_travel())) as url, client_at(url) as client:
        waiting_task = task_view(await read_stream(client.send_message(message_request("to Rome")))).task
        assert waiting_task.status.state == INPUT_REQUIRED
        subscribed = asyncio.Semaphore(0)

        async def read_updates() -> list[StreamResponse]:
            answers: list[StreamResponse] = []
            async for answer in client.subscribe(SubscribeToTaskRequest(id=waiting_task.id)):
                answers.append(answer)
                subscribed.release()
            return answers

        subscriptions = [asyncio.create_task(read_updates()) for _ in range(2)]
        for _ in subscriptions:
            await subscribed.acquire()
        await read_stream(client.send_message(message_request("07:10", task=waiting_task.id)))
        one, other = await asyncio.gather(*subscriptions)
        assert one == other
        assert task_view(one).states[0] == INPUT_REQUIRED
        assert task_view(one).states[-1] == COMPLETED
        with pytest.raises(UnsupportedOperationError):
            await read_stream(client.subscribe(SubscribeToTaskRequest(id=waiting_task.id)))


async def test_a_disconnected_client_can_resubscribe_without_loss() -> None:
    gates = [asyncio.Event() for _ in range(2)]
    model = ScriptedModel([ScriptedStream("one ", "two ", gates[0], "three ", gates[1], "four")])
    async with served(a2a_app(Runner(Agent("A"), model=model, store="memory:"))) as url:
        async with client_at(url) as client:
            view = TaskView()
            async for answer in client.send_message(message_request("go")):
                view.apply(answer)
                # Text is sent in chunks of whatever has come within a time.
                if view.chunks and text_in(view.task) == "one two ":
                    break
            assert text_in(view.task) == "one two "
        gates[0].set()
        async with client_at(url) as client:
            again = client.subscribe(SubscribeToTaskRequest(id=view.task.id))
            view = task_view([await anext(again)])
            assert view.states == [WORKING]
            assert text_in(view.task).startswith("one two ")
            gates[1].set()
            async for answer in again:
                view.apply(answer)
    assert text_in(view.task) == "one two three four"
    assert view.states[-1] == COMPLETED


async def test_a_silent_agent_can_be_cancelled_but_an_ended_task_cannot() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    async with served(a2a_app(silent)) as url, client_at(url, streams=False) as client:
        task = await send(client, "go", return_immediately=True)
        cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert cancelled.status.state == CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="unknown"))


async def test_a_task_is_cancelled_before_its_service_knows_that_it_needs_input() -> None:
    store = HeldStore("suspended")
    model = ScriptedModel([call("book", city="Rome"), "You fly."])
    runner = Runner(Agent("Travel", description="Books flights.", tools=[book]), model=model, store=store)
    async with served(a2a_app(runner)) as url, client_at(url, streams=False) as client:
        task = await send(client, "go", return_immediately=True)
        await store.stored.wait()
        cancelling = asyncio.create_task(client.cancel_task(CancelTaskRequest(id=task.id)))
        store.go.set()
        assert (await cancelling).status.state == CANCELED
        with pytest.raises(UnsupportedOperationError):
            await send(client, "at 7", task=task.id)


async def test_an_answer_to_a_task_whose_cancellation_was_requested_says_that_it_was_cancelled() -> None:
    store = MemoryStore()
    model = ScriptedModel([call("book", city="Rome"), "You fly."])
    runner = Runner(Agent("Travel", description="Books flights.", tools=[book]), model=model, store=store)
    async with served(a2a_app(runner)) as url, client_at(url, streams=False) as client:
        task = await send(client, "go")
        await store.request_cancel(task.id, "now")
        with pytest.raises(UnsupportedOperationError, match="was cancelled"):
            await send(client, "at 7", task=task.id)
        assert (await client.get_task(GetTaskRequest(id=task.id))).status.state == CANCELED


@pytest.mark.parametrize("show_errors", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_failed_task_exposes_the_error_only_with_show_errors(
    streams: bool, show_errors: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @agent("Broken")
    async def broken(ctx: AgentContext) -> None:
        raise RuntimeError("password is hunter2")

    async with served(a2a_app(broken, show_errors=show_errors)) as url, client_at(url, streams=streams) as client:
        *_, last = [each async for each in client.send_message(message_request("go"))]
    status = last.status_update.status if streams else last.task.status
    assert status.state == FAILED
    assert ("hunter2" in str(last)) is show_errors
    assert "hunter2" in caplog.text


async def test_files_and_data_are_passed_in_both_directions() -> None:
    @agent("Mirror")
    async def mirror(ctx: AgentContext) -> None:
        (message,) = ctx.messages()
        assert message.content == (Text("see"), Data({"n": 1}))
        await ctx.say((Text("made"), File(data=b"a,b", media_type="text/csv", name="t.csv"), Data({"n": 2})))

    async with served(a2a_app(mirror)) as url, client_at(url, streams=False) as client:
        task = await send(client, "see", data={"n": 1})
    text, file, data = task.artifacts[0].parts
    assert (text.text, file.raw, file.filename, file.media_type) == ("made", b"a,b", "t.csv", "text/csv")
    assert data.data.struct_value["n"] == 2


async def test_a_second_task_can_run_in_a_busy_context() -> None:
    async with served(a2a_app(_travel())) as url, client_at(url, streams=False) as client:
        first = await send(client, "to Rome")
        second = await send(client, "to Oslo", context=first.context_id)
        assert second.id != first.id
        assert second.context_id == first.context_id
        page = await client.list_tasks(ListTasksRequest(context_id=first.context_id))
        assert {task.id for task in page.tasks} == {first.id, second.id}


async def test_the_card_describes_the_team_and_supports_etags() -> None:

    weather = Agent("Weather", description="Knows the weather.")
    router = Agent("Router", description="Routes.", sub_agents=[weather])
    app = a2a_app(Runner(router, model=ScriptedModel([]), store="memory:"), card={"version": "7"})
    async with served(app) as url, http_client() as http:
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


async def test_an_unreachable_service_raises_a_client_error() -> None:
    with pytest.raises(A2AClientError):
        async with client_at("http://127.0.0.1:9"):
            pass


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_agent_can_answer_with_a_message_and_read_the_request(binding: str) -> None:
    @agent("Terse")
    async def message_agent(ctx: AgentContext) -> None:
        ctx.values.set("a2a.reply", "message")
        await ctx.say(f"{ctx.values['a2a']['messageId']}: {ctx.values['a2a']['metadata']['n']}")

    async with served(a2a_app(message_agent)) as url, client_at(url, binding=binding, streams=False) as client:
        request = message_request("hi")
        request.message.message_id = "m-1"
        request.message.metadata["n"] = 7
        (answer,) = [each async for each in client.send_message(request)]
    assert answer.message.parts[0].text == "m-1: 7"


async def test_a_failed_guardrail_rejects_the_task() -> None:
    def only_weather(ctx: RunContext, messages: object) -> bool:
        return False

    guarded = with_guardrails(Agent("A", model=ScriptedModel(["hi"])), input_guardrails=[only_weather])
    async with served(a2a_app(guarded)) as url, client_at(url, streams=False) as client:
        task = await send(client, "hi")
    assert task.status.state == REJECTED


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_service_can_be_mounted_in_another_app(binding: str) -> None:
    a2a = a2a_app(Agent("A", model=ScriptedModel(["hi"])))
    outer = Starlette(routes=[Mount("/agents/a", a2a)])
    async with served(outer) as url, client_at(f"{url}/agents/a", binding=binding, streams=False) as client:
        assert text_in(await send(client, "hello")) == "hi"
        await a2a.close()


async def test_an_agent_can_fail_a_task_with_words_for_the_caller() -> None:
    @agent("Flights", description="Books flights.")
    async def flights(ctx: AgentContext) -> None:
        raise TaskFailedError("there are no flights today")

    async with served(a2a_app(flights)) as url, client_at(url, streams=False) as client:
        task = await send(client, "go")
        assert task.status.state == FAILED
        assert [part.text for part in task.status.message.parts] == ["there are no flights today"]
        remote = RemoteAgent(url, name="Flights")
        with pytest.raises(RemoteError, match="the task is failed: there are no flights today"):
            await Runner(remote).run("go")
        await remote.close()
