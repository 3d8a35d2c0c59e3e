"""Responses, with the official client over real sockets."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from tests.serve.openai.clients import assert_valid, chat, connect, respond, serve_model, stream_response
from tests.waiting import until

from batonkit import Agent, Runner, tool
from batonkit.errors import ModelError
from batonkit.messages import File, Reasoning, Text, Usage
from batonkit.models import RetryModel
from batonkit.serve import openai_app, serve_in_background, with_frontend_tools
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedStream, call, say

PICK: Any = {"type": "function", "name": "pick_color", "parameters": {"type": "object", "properties": {}}}


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def desk(*steps: Any, **options: Any) -> Agent:
    return Agent("Desk", model=ScriptedModel([*steps]), **options)


def weather_desk() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel({"Desk": [call("transfer_to_weather")], "Weather": ["Sunny.", "Cold."]})
    return Agent("Desk", model=model, handoffs=[Agent("Weather", description="Knows the weather.", model=model)]), model


async def test_a_response_has_text_usage_and_metadata() -> None:
    usage = Usage(input_tokens=7, output_tokens=3, cached_tokens=2, reasoning_tokens=1)
    async with serve_model(desk(say("Hello!", usage=usage))) as client:
        response = await respond(client, "Hi.", metadata={"customer": "7"})
        assert (response.output_text, response.status, response.model) == ("Hello!", "completed", "Desk")
        assert (response.usage.input_tokens, response.usage.total_tokens) == (7, 10)
        assert response.metadata == {"customer": "7"}
        assert assert_valid(await client.responses.retrieve(response.id)) == response


class _CountingStore(MemoryStore):
    """A store that counts how often a log is read."""

    reads = 0

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        self.reads += 1
        return await super().load(run_id, start=start)


async def test_a_response_is_retrieved_with_one_read_of_its_log() -> None:
    store = _CountingStore()
    async with serve_model(Runner(desk("Hello!"), store=store)) as client:
        response = await respond(client, "Hi.")
        store.reads = 0
        assert await client.responses.retrieve(response.id) == response
        assert store.reads == 1


@pytest.mark.parametrize(
    ("function", "problem"),
    [({}, "missing required field `name`"), ({"name": "pick", "description": 5}, "Expected `str | null`, got `int`")],
)
async def test_a_function_of_the_client_must_be_valid(function: dict[str, Any], problem: str) -> None:
    async with serve_model(with_frontend_tools(desk("Hello!"))) as client:
        with pytest.raises(openai.BadRequestError, match=re.escape(problem)) as error:
            await respond(client, "Hi.", tools=[{"type": "function", **function}])
        assert error.value.param == "tools[0]"


async def test_the_events_of_a_stream_build_the_response() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream(Reasoning("hm"), "Hel", gate, "lo")])
    async with serve_model(Agent("Desk", model=model)) as client:
        events = await stream_response(client, "Hi.", on_text=gate.set)
        stored = await client.responses.retrieve(events[0].response.id)
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output == stored.output
    assert final.output_text == "Hello"


async def test_the_stream_helper_of_the_client_collects_the_response() -> None:
    async with serve_model(desk("Hello!")) as client, client.responses.stream(model="Desk", input="Hi.") as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Hello!"


async def test_a_conversation_continues_after_its_last_response() -> None:
    team, model = weather_desk()
    async with serve_model(Runner(team, store="memory:")) as client:
        first = await respond(client, "Weather?")
        second = await respond(client, "Tomorrow?", previous_response_id=first.id)
        assert (second.output_text, second.previous_response_id) == ("Cold.", first.id)
        with pytest.raises(openai.BadRequestError, match="last response"):
            await respond(client, "And?", previous_response_id=first.id)
    assert model.requests[-1].agent == "Weather", "the active agent stays active"


async def test_a_conversation_has_the_name_that_the_client_gives_it() -> None:
    team, model = weather_desk()
    async with serve_model(Runner(team, store="memory:")) as client:
        first = await respond(client, "Weather?", conversation="c1")
        assert (first.conversation.id, first.previous_response_id) == ("c1", None)
        # Both APIs continue the same thread.
        await chat(client, "Tomorrow?", thread="c1")
        assert model.requests[-1].agent == "Weather"
        with pytest.raises(openai.BadRequestError, match="not both"):
            await respond(client, "And?", conversation="c1", previous_response_id=first.id)


async def test_items_of_the_client_are_the_history_of_a_new_conversation() -> None:
    model = ScriptedModel(["Fine."])
    file = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}
    items: Any = [
        {"role": "developer", "content": "obey me"},
        {"role": "user", "content": "Hi."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Read it."}, file]},
    ]
    async with serve_model(Agent("Desk", model=model)) as client:
        await respond(client, items, instructions="obey me")
    contents = [message.content for message in model.requests[0].messages]
    assert contents == ["Hi.", "Hello!", (Text("Read it."), File(None, b"hello", "text/plain", "a.txt"))]


async def test_tools_of_the_client_are_called_and_their_results_come_with_the_next_request() -> None:
    model = ScriptedModel([call("pick_color"), "Red it is."])
    async with serve_model(with_frontend_tools(Agent("Desk", model=model))) as client:
        asked = await respond(client, "Paint it.", tools=[PICK])
        (item,) = asked.output
        assert (item.type, item.name, item.arguments) == ("function_call", "pick_color", "{}")
        assert [tool.name for tool in asked.tools] == ["pick_color"]
        result = {"type": "function_call_output", "call_id": item.call_id, "output": "red"}
        events = await stream_response(client, [result], previous_response_id=asked.id)
        assert events[-1].response.output_text == "Red it is."
        assert asked.id != events[-1].response.id
        assert (await client.responses.retrieve(asked.id)).output == asked.output
        assert (await client.responses.retrieve(events[-1].response.id)).output_text == "Red it is."
    assert model.requests[-1].messages[-1].content == "red"


async def test_calls_are_streamed() -> None:
    model = ScriptedModel([say("A moment.", call("pick_color"))])
    async with serve_model(with_frontend_tools(Agent("Desk", model=model))) as client:
        events = await stream_response(client, "Paint it.", tools=[PICK])
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [(event.output_index, event.item.type) for event in added] == [(0, "message"), (1, "function_call")]
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert done.arguments == "{}"
    assert [item.type for item in events[-1].response.output] == ["message", "function_call"]


async def test_an_approval_is_answered_in_the_conversation() -> None:
    async with serve_model(desk(call("pay", amount=3), "Paid.", tools=[pay]), answer_in_chat=True) as client:
        asked = await respond(client, "Pay.")
        assert asked.output_text.endswith("Answer “yes” or “no”.")
        unclear = await respond(client, "hm", previous_response_id=asked.id)
        assert unclear.output_text.startswith("That answer is not clear.")
        assert (await respond(client, "yes", previous_response_id=unclear.id)).output_text == "Paid."


async def test_a_response_in_the_background_is_polled_and_cancelled() -> None:
    gate = asyncio.Event()
    async with serve_model(desk(ScriptedStream("Hel", gate, "lo"), ScriptedStream(asyncio.Event()))) as client:
        started = await respond(client, "Hi.", background=True)
        assert (started.status, started.output) == ("in_progress", [])
        with pytest.raises(openai.ConflictError, match="cancel it first"):
            await client.responses.delete(started.id)
        gate.set()
        done = await until(
            lambda: client.responses.retrieve(started.id), lambda response: response.status == "completed"
        )
        assert done.output_text == "Hello"
        other = await respond(client, "Hi.", background=True)
        assert assert_valid(await client.responses.cancel(other.id)).status == "cancelled"
        await client.responses.delete(other.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(other.id)


async def test_text_that_a_model_starts_again_is_not_part_of_the_response() -> None:
    gate = asyncio.Event()
    script = ScriptedModel([ScriptedStream("Hex", gate, ModelError("cut off", retryable=True)), "Hello!"])
    model = RetryModel(script, initial_delay=0, after_output=True)
    async with serve_model(Agent("Desk", model=model)) as client:
        events = await stream_response(client, "Hi.", on_text=gate.set)
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    assert len(added) == 2
    assert [item.id for item in events[-1].response.output] == added[1:]
    assert events[-1].response.output_text == "Hello!"


async def test_a_run_that_fails_is_a_failed_response() -> None:
    async with serve_model(desk(ModelError("the password is 123"), ModelError("again"))) as client:
        events = await stream_response(client, "Hi.")
        assert events[-1].type == "response.failed"
        assert events[-1].response.error.message == "the run failed; the server has the details"
        with pytest.raises(openai.InternalServerError, match="the run failed"):
            await respond(client, "Hi.")


async def test_another_owner_finds_neither_responses_nor_conversations() -> None:
    team, model = weather_desk()
    app = openai_app(Runner(team, store="memory:"), auth={"a": "ann", "b": "bob"})
    async with serve_in_background(app) as url, connect(url, "a") as ann, connect(url, "b") as bob:
        secret = await respond(ann, "A secret.", conversation="c")
        for attempt in (
            lambda: bob.responses.retrieve(secret.id),
            lambda: bob.responses.delete(secret.id),
            lambda: bob.responses.cancel(secret.id),
            lambda: respond(bob, "Hi.", previous_response_id=secret.id),
            lambda: bob.responses.retrieve(f"ann:{secret.id}"),
        ):
            with pytest.raises(openai.NotFoundError, match="there is no response"):
                await attempt()
        with pytest.raises(openai.InternalServerError):
            await respond(bob, "Hi.", conversation="c")
        assert model.requests[-1].agent == "Desk", "a new conversation begins"
        assert "secret" not in str(model.requests[-1].messages)
        assert (await ann.responses.retrieve(secret.id)).output_text == "Sunny."


async def test_the_agent_that_speaks_is_named_on_request() -> None:
    team, _ = weather_desk()
    async with serve_model(Runner(team, store="memory:"), show_agents=True) as client:
        response = await client.responses.create(model="Desk", input="Weather?")
    assert [item.baton for item in response.output] == [{"agent": "Weather"}]
