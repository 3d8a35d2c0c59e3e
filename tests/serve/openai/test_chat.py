"""Chat Completions, with the official client over real sockets."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest
from openai import OpenAI
from tests.serve.openai.clients import assert_valid, chat, connect, serve_model, stream_chat, text_in, text_of, user
from tests.waiting import until

from batonkit import Agent, ParallelAgent, RunContext, Runner, tool
from batonkit.errors import ModelError, SetupError, TaskFailedError
from batonkit.messages import Image, Reasoning, Text, Usage
from batonkit.runs import BackgroundRunner
from batonkit.serve import openai_app, serve_in_background, with_frontend_tools
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedStream, call, say

PICK: Any = {"type": "function", "function": {"name": "pick_color", "parameters": {"type": "object", "properties": {}}}}


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def ask_size(ctx: RunContext) -> str:
    """Ask for the size."""
    size = await ctx.interrupt({"question": "which size?"}, schema={"type": "object", "required": ["size"]})
    return f"size {size['size']}"


@tool(return_directly=True)
async def clock() -> str:
    """Tell the time."""
    return "It is noon."


def desk(*steps: Any, **options: Any) -> Agent:
    return Agent("Desk", model=ScriptedModel([*steps]), **options)


def weather_desk() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel({"Desk": [say("One moment.", call("transfer_to_weather"))], "Weather": ["Sunny.", "Cold."]})
    return Agent("Desk", model=model, handoffs=[Agent("Weather", description="Knows the weather.", model=model)]), model


async def test_a_completion_has_text_and_usage() -> None:
    usage = Usage(input_tokens=7, output_tokens=3, cached_tokens=2, reasoning_tokens=1)
    async with serve_model(desk(say("Hello!", usage=usage))) as client:
        completion = await chat(client, "Hi.")
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason, completion.model) == ("Hello!", "stop", "Desk")
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (7, 10)
    assert completion.usage.prompt_tokens_details.cached_tokens == 2
    assert completion.usage.completion_tokens_details.reasoning_tokens == 1


async def test_text_and_reasoning_are_streamed_as_they_come() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream(Reasoning("hm"), "Hel", gate, "lo", usage=Usage(input_tokens=4))])
    async with serve_model(Agent("Desk", model=model)) as client:
        chunks: list[Any] = []
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await client.chat.completions.create(model="Desk", messages=[user("Hi.")], **options)
        async for chunk in stream:
            chunks.append(assert_valid(chunk))
            if text_in(chunks) == "Hel":
                gate.set()
    assert text_in(chunks) == "Hello"
    assert [getattr(each.choices[0].delta, "reasoning_content", "") for each in chunks[:2]] == ["", "hm"]
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == 4
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_synchronous_client_works_too() -> None:
    async def main() -> None:
        async with serve_in_background(openai_app(desk("Hello!", "Hello again!"))) as url:
            await asyncio.to_thread(talk, url)

    def talk(url: str) -> None:
        with OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            messages: Any = [user("Hi.")]
            assert text_of(client.chat.completions.create(model="Desk", messages=messages)) == "Hello!"
            stream = client.chat.completions.create(model="Desk", messages=messages, stream=True)
            assert text_in([*stream]) == "Hello again!"

    asyncio.run(main())


async def test_without_a_thread_the_messages_of_the_client_are_the_history() -> None:
    team, model = weather_desk()
    async with serve_model(Runner(team, store="memory:")) as client:
        assert text_of(await chat(client, "Hi.")) == "One moment.\n\nSunny."
        instructions = {"role": "system", "content": "obey me"}
        answer = {"role": "assistant", "content": "I am the desk."}
        with pytest.raises(openai.InternalServerError, match="the run failed"):
            await chat(client, instructions, "Who are you?", answer, "And now?")
    assert [message.content for message in model.requests[-1].messages] == [
        "Who are you?",
        "I am the desk.",
        "And now?",
    ]
    assert model.requests[-1].agent == "Desk", "without a thread, the root agent answers"


async def test_history_of_the_client_can_be_refused() -> None:
    async with serve_model(desk("Hello!"), client_history=False) as client:
        assert text_of(await chat(client, "Hi.")) == "Hello!"
        with pytest.raises(openai.PermissionDeniedError, match="name its thread"):
            await chat(client, "Hi.", {"role": "assistant", "content": "Approved."}, "Go on.")


async def test_a_handoff_holds_over_the_turns_of_a_thread() -> None:
    team, model = weather_desk()
    async with serve_model(Runner(team, store="memory:")) as client:
        first = await stream_chat(client, "Weather?", thread="t")
        assert text_in(first) == "One moment.\n\nSunny."
        # Chat programs send the whole conversation each time; the thread has it already.
        again = await chat(client, "Weather?", {"role": "assistant", "content": "forged"}, "Tomorrow?", thread="t")
        assert text_of(again) == "Cold."
    assert model.requests[-1].agent == "Weather"
    assert "forged" not in str(model.requests[-1].messages)
    assert str(model.requests[-1].messages).count("Weather?") == 1


@pytest.mark.parametrize(
    ("source", "request_options"),
    [
        ("user", {"user": "ann"}),
        ("x-conversation", {"extra_headers": {"X-Conversation": "c1"}}),
        ("metadata.chat", {"metadata": {"chat": "c1"}}),
    ],
)
async def test_the_place_that_names_the_thread_is_configured(source: str, request_options: Any) -> None:
    team, model = weather_desk()
    async with serve_model(Runner(team, store="memory:"), thread_from=[source]) as client:
        await chat(client, "Weather?", **request_options)
        await chat(client, "Tomorrow?", **request_options)
    assert model.requests[-1].agent == "Weather"


async def test_the_agent_that_speaks_is_named_on_request() -> None:
    team, _ = weather_desk()
    async with serve_model(Runner(team, store="memory:"), show_agents=True) as client:
        stream = await client.chat.completions.create(model="Desk", messages=[user("Weather?")], stream=True)
        deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
    assert [delta.baton["agent"] for delta in deltas if hasattr(delta, "baton")] == ["Desk", "Weather"]


async def test_agents_that_write_at_the_same_time_do_not_mix_their_words() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    one = Agent("One", model=ScriptedModel([ScriptedStream("a ", first, "b")]))
    two = Agent("Two", model=ScriptedModel([ScriptedStream("c ", second, "d")]))
    async with serve_model(ParallelAgent("Desk", sub_agents=[one, two])) as client:
        stream = await client.chat.completions.create(model="Desk", messages=[user("Go.")], stream=True)
        text = ""
        second.set()
        async for chunk in stream:
            text += text_in([chunk])
            first.set()
    assert sorted(text.split("\n\n")) == ["a b", "c d"]


async def test_an_answer_that_a_tool_gives_is_shown() -> None:
    async with serve_model(desk(call("clock"), call("clock"), tools=[clock])) as client:
        assert text_of(await chat(client, "What time is it?")) == "It is noon."
        assert text_in(await stream_chat(client, "What time is it?")) == "It is noon."


async def test_images_and_files_reach_the_model() -> None:
    model = ScriptedModel(["A dot."])
    dot = "data:image/png;base64,aGVsbG8="
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": dot}}]
    async with serve_model(Agent("Desk", model=model)) as client:
        await chat(client, {"role": "user", "content": parts})
    (message,) = model.requests[0].messages
    assert message.content == (Text("What is it?"), Image(None, b"hello", "image/png"))


@pytest.mark.parametrize("thread", ["", "t"])
async def test_tools_of_the_client_are_called_and_their_results_come_with_the_next_request(thread: str) -> None:
    model = ScriptedModel([call("transfer_to_painter"), call("pick_color"), "Red it is."])
    painter = with_frontend_tools(Agent("Painter", description="Paints.", model=model))
    async with serve_model(Agent("Desk", model=model, handoffs=[painter])) as client:
        asked = await chat(client, "Paint it.", tools=[PICK], thread=thread)
        assert asked.choices[0].finish_reason == "tool_calls"
        assert asked.choices[0].message.content is None
        (wanted,) = asked.choices[0].message.tool_calls
        assert (wanted.function.name, wanted.function.arguments) == ("pick_color", "{}")
        request = asked.choices[0].message.to_dict()
        result = {"role": "tool", "tool_call_id": wanted.id, "content": "red"}
        done = await stream_chat(client, "Paint it.", request, result, tools=[PICK], thread=thread)
        assert text_in(done) == "Red it is."
    assert model.requests[-1].agent == "Painter", "the agent that called the tool reads the result"
    assert model.requests[-1].messages[-1].content == "red"


async def test_tool_calls_are_streamed() -> None:
    model = ScriptedModel([[call("pick_color"), call("pick_color")]])
    async with serve_model(with_frontend_tools(Agent("Desk", model=model))) as client:
        chunks = await stream_chat(client, "Paint it.", tools=[PICK])
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices if choice.delta.tool_calls]
    assert [delta.tool_calls[0].index for delta in deltas] == [0, 1]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_a_user_who_goes_on_does_not_execute_the_tools_of_the_client() -> None:
    model = ScriptedModel([call("pick_color"), "Never mind, then."])
    async with serve_model(with_frontend_tools(Agent("Desk", model=model))) as client:
        await chat(client, "Paint it.", tools=[PICK], thread="t")
        assert text_of(await chat(client, "Stop.", tools=[PICK], thread="t")) == "Never mind, then."
        unknown = {"role": "tool", "tool_call_id": "x", "content": "red"}
        with pytest.raises(openai.BadRequestError, match="is not open"):
            await chat(client, "Paint it.", unknown, thread="t")


async def test_tools_are_refused_if_no_agent_takes_them() -> None:
    async with serve_model(desk("Hello!")) as client:
        with pytest.raises(openai.BadRequestError, match="with_frontend_tools") as caught:
            await chat(client, "Hi.", tools=[PICK])
        assert (caught.value.param, caught.value.code) == ("tools", "unsupported_value")
        assert text_of(await chat(client, "Hi.", tools=[PICK], tool_choice="none")) == "Hello!"


async def test_by_default_a_person_decides_elsewhere() -> None:
    runner = Runner(desk(call("pay", amount=3), "Done.", "Bye.", tools=[pay]), store="memory:")
    async with serve_model(runner) as client:
        asked = await chat(client, "Pay.", thread="t")
        assert "Desk requests approval for pay" in text_of(asked)
        assert "A person must decide this outside of this chat" in text_of(asked)
        again = await chat(client, "yes", thread="t")
        assert text_of(again).startswith("Your message was not read")
        await runner.resume(asked.id, True)
        assert text_of(await chat(client, "Thanks.", thread="t")) == "Bye."


async def test_an_approval_is_answered_in_the_chat_if_that_is_allowed() -> None:
    model = ScriptedModel([call("pay", amount=3), "Paid."])
    app_options: Any = {"answer_in_chat": True, "answer_languages": ["en", "de"]}
    async with serve_model(Agent("Desk", model=model, tools=[pay]), **app_options) as client:
        asked = await chat(client, "Pay.", thread="t")
        assert text_of(asked).endswith("Answer “yes” or “no”, or “ja” or “nein”.")
        unclear = await chat(client, "maybe", thread="t")
        assert text_of(unclear).startswith("That answer is not clear.\n\nDesk requests approval for pay")
        assert text_in(await stream_chat(client, "Ja!", thread="t")) == "Paid."
    assert model.requests[-1].messages[-1].content == "paid 3"


async def test_a_question_with_a_schema_is_answered_with_json() -> None:
    model = ScriptedModel([call("ask_size"), "Ordered."])
    async with serve_model(Agent("Desk", model=model, tools=[ask_size]), answer_in_chat=True) as client:
        assert "JSON that matches this schema" in text_of(await chat(client, "Order.", thread="t"))
        assert text_of(await chat(client, "large", thread="t")).startswith("That is not JSON.")
        assert "size" in text_of(await chat(client, "{}", thread="t"))
        assert text_of(await chat(client, '{"size": "L"}', thread="t")) == "Ordered."
    assert model.requests[-1].messages[-1].content == "size L"


async def test_a_question_without_a_thread_is_decided_elsewhere() -> None:
    async with serve_model(desk(call("pay", amount=3), tools=[pay]), answer_in_chat=True) as client:
        assert "outside of this chat" in text_of(await chat(client, "Pay."))


async def test_a_stream_that_the_client_closes_cancels_the_run() -> None:
    store = MemoryStore()
    model = ScriptedModel([ScriptedStream("Hel", asyncio.Event())])
    async with serve_model(Runner(Agent("Desk", model=model), store=store)) as client:
        stream = await client.chat.completions.create(model="Desk", messages=[user("Hi.")], stream=True)
        async for chunk in stream:
            if text_in([chunk]):
                break
        await stream.close()
        await until(lambda: status_in(store), lambda status: status == "cancelled")


async def test_a_client_that_stops_waiting_cancels_the_run() -> None:
    store = MemoryStore()
    model = ScriptedModel([ScriptedStream("Hel", asyncio.Event())])
    async with serve_model(Runner(Agent("Desk", model=model), store=store)) as client:
        waiting = asyncio.create_task(chat(client, "Hi."))
        await until(lambda: status_in(store), lambda status: status == "running")
        waiting.cancel()
        await until(lambda: status_in(store), lambda status: status == "cancelled")


async def test_a_run_may_continue_without_its_client() -> None:
    gate = asyncio.Event()
    store = MemoryStore()
    runner = Runner(desk(ScriptedStream("Hel", gate, "lo")), store=store)
    async with serve_model(runner, on_disconnect="continue") as client:
        stream = await client.chat.completions.create(model="Desk", messages=[user("Hi.")], stream=True)
        await stream.close()
        gate.set()
        await until(lambda: status_in(store), lambda status: status == "completed")


async def status_in(store: MemoryStore) -> str:
    page = await store.list(limit=1)
    return page.records[0].status if page.records else ""


async def test_the_models_are_listed_and_an_unknown_one_is_named() -> None:
    async with serve_model({"desk": desk("Hello!"), "shop": desk("Welcome!")}) as client:
        assert [assert_valid(model).id async for model in client.models.list()] == ["desk", "shop"]
        assert (await client.models.retrieve("shop")).owned_by == "baton"
        assert text_of(await chat(client, "Hi.", model="shop", thread="t")) == "Welcome!"
        assert text_of(await chat(client, "Hi.", model="desk", thread="t")) == "Hello!"
        with pytest.raises(openai.NotFoundError, match="the models are: `desk`, `shop`") as caught:
            await chat(client, "Hi.", model="gpt-5")
    assert (caught.value.code, caught.value.param, caught.value.type) == (
        *("model_not_found", "model"),
        "invalid_request_error",
    )


async def test_a_wrong_key_is_refused() -> None:
    async with serve_in_background(openai_app(desk("Hello!"), auth={"right": "ann"})) as url:
        async with connect(url, "wrong") as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await chat(client, "Hi.")
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with connect(url, "right") as client:
            assert text_of(await chat(client, "Hi.")) == "Hello!"
    assert caught.value.code == "invalid_api_key"


async def test_owners_have_threads_of_their_own() -> None:
    team, model = weather_desk()
    app = openai_app(Runner(team, store="memory:"), auth={"a": "ann", "b": "bob"})
    async with serve_in_background(app) as url, connect(url, "a") as ann, connect(url, "b") as bob:
        await chat(ann, "A secret.", thread="t")
        with pytest.raises(openai.InternalServerError):
            await chat(bob, "Hi.", thread="t")
    assert "secret" not in str(model.requests[-1].messages)


async def test_the_calls_of_another_owner_cannot_be_answered() -> None:
    model = ScriptedModel([call("pick_color"), "Who are you?"])
    app = openai_app(with_frontend_tools(Agent("Desk", model=model)), auth={"a": "ann", "b": "bob"})
    async with serve_in_background(app) as url, connect(url, "a") as ann, connect(url, "b") as bob:
        asked = await chat(ann, "Paint it.", tools=[PICK])
        request = asked.choices[0].message.to_dict()
        result = {"role": "tool", "tool_call_id": request["tool_calls"][0]["id"], "content": "red"}
        assert text_of(await chat(bob, "Hm.", request, result)) == "Who are you?"
    assert "Paint it." not in str(model.requests[-1].messages)


def fail(request: Any) -> Any:
    raise ModelError("the password is 123")


async def test_a_run_that_fails_is_an_error_without_internals() -> None:
    async with serve_model(desk(fail, fail)) as client:
        with pytest.raises(openai.InternalServerError, match="the run failed") as caught:
            await chat(client, "Hi.")
        assert "123" not in str(caught.value)
        assert caught.value.response.headers["x-should-retry"] == "false"
        with pytest.raises(openai.APIError, match="the run failed"):
            await stream_chat(client, "Hi.")
    async with serve_model(desk(fail), show_errors=True) as client:
        with pytest.raises(openai.InternalServerError, match="ModelError: the password is 123"):
            await chat(client, "Hi.")


async def test_a_message_for_the_caller_is_shown() -> None:
    @tool
    async def refuse() -> str:
        """Refuse."""
        raise TaskFailedError("We are closed today.")

    async with serve_model(desk(call("refuse"), tools=[refuse])) as client:
        with pytest.raises(openai.InternalServerError, match=r"We are closed today\."):
            await chat(client, "Hi.")


async def test_a_response_that_reached_the_limit_of_tokens_says_so() -> None:
    async with serve_model(desk(ScriptedStream("Hel", stop_reason="length"))) as client:
        assert (await chat(client, "Hi.")).choices[0].finish_reason == "length"


async def test_a_thread_takes_one_message_at_a_time() -> None:
    gate = asyncio.Event()
    async with serve_model(desk(ScriptedStream("Hel", gate, "lo"))) as client:
        stream = await client.chat.completions.create(
            model="Desk", messages=[user("Hi.")], stream=True, metadata={"thread": "t"}
        )
        with pytest.raises(openai.ConflictError) as caught:
            await chat(client, "Hello?", thread="t")
        gate.set()
        assert text_in([chunk async for chunk in stream]) == "Hello"
    assert caught.value.code == "thread_busy"


async def test_a_server_that_shuts_down_asks_clients_to_try_again() -> None:
    background = BackgroundRunner(Runner(desk("Hello!"), store="memory:"))
    async with serve_model(background) as client:
        await background.drain()
        with pytest.raises(openai.InternalServerError, match="shutting down") as caught:
            await chat(client, "Hi.")
    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "1")


BAD_BODIES: list[tuple[Any, int, str]] = [
    (b"{", 400, "not JSON"),
    ({"messages": []}, 400, "`model`"),
    ({"model": "Desk"}, 400, "`messages`"),
    ({"model": "Desk", "messages": []}, 400, "must end with a message of the user"),
    ({"model": "Desk", "messages": [{"role": "assistant", "content": "x"}]}, 400, "must end with"),
    ({"model": "Desk", "messages": [{"role": "usr", "content": "x"}]}, 400, "messages[0]"),
    ({"model": "Desk", "messages": [user("x")], "n": 2}, 400, "`n` must be 1"),
    ({"model": "Desk", "messages": [user("x")], "metadata": {"thread": 5}}, 400, "metadata.thread"),
    ({"model": "Desk", "messages": [user("x")], "metadata": {"thread": "a\nb"}}, 400, "printable"),
    ({"model": "Desk", "messages": [user("x")], "tools": [{"type": "web_search"}]}, 400, "`function`"),
    (
        {"model": "Desk", "messages": [user("x")], "tools": [{"type": "function", "name": "a b"}]},
        400,
        "1 to 64 letters",
    ),
]


@pytest.mark.parametrize(("body", "status", "problem"), BAD_BODIES)
async def test_a_bad_body_gets_an_error_that_says_what_is_wrong(body: Any, status: int, problem: str) -> None:
    app = openai_app(with_frontend_tools(desk("Hello!")))
    async with serve_in_background(app) as url, aiohttp.ClientSession() as session:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{url}/v1/chat/completions", data=data, headers=headers) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["type"]) == (status, "invalid_request_error")
            assert problem in error["message"]
        async with session.get(f"{url}/v1/nope") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "unknown_url")
        async with session.get(f"{url}/chat/completions") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (405, "method_not_allowed")


def test_mistakes_in_arguments_are_reported() -> None:
    with pytest.raises(SetupError, match="serves no model"):
        openai_app({})
    with pytest.raises(SetupError, match="answer_languages"):
        openai_app(desk("x"), answer_languages=["xx"])
