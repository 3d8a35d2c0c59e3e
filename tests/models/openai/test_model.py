"""Runs over a strict local server, with both APIs, streamed and not."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.models.openai.raw_server import RawServer, delta, json_reply, read_chunks, read_response, stream
from tests.servers import OpenAIServer

from batonkit import Agent, Runner, SetupError, tool
from batonkit.messages import (
    AssistantMessage,
    Image,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    answer_of,
)
from batonkit.models import ModelRequest, ModelResponse, OutputSchema, TextChunk, collect_response
from batonkit.models.openai import OpenAIModel
from batonkit.models.openai.responses import ResponsesDialect, is_reasoning_model
from batonkit.testing import ScriptedStream, call, say

APIS = pytest.mark.parametrize("api", ["chat", "responses"])
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"sum": {"type": "integer"}}}


class Sum(BaseModel):
    """The output type of an agent."""

    sum: int
    note: str | None = None


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _model(server: OpenAIServer, api: Any, **options: Any) -> OpenAIModel:
    return OpenAIModel("gpt-5", api=api, base_url=server.base_url, api_key=server.api_key, **options)


@APIS
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_run_with_parallel_calls_and_a_typed_answer(api: Any, is_streamed: bool) -> None:
    steps = [
        say("Let me see.", call("add", a=1, b=2), call("add", a=3, b=4), usage=Usage(10, 5, 4, 2)),
        say('{"sum": 10, "note": null}', usage=Usage(20, 6)),
    ]
    async with OpenAIServer(steps) as server:
        runner = Runner(
            Agent("Adder", instructions="Add.", tools=[add], output_type=Sum), model=_model(server, api), prices=False
        )
        if is_streamed:
            async with runner.stream("1+2+3+4?") as run:
                kinds = {type(event).__name__ async for event in run}
            assert {"TextDelta", "ToolCallDelta"} <= kinds
            result = run.result
        else:
            result = await runner.run("1+2+3+4?")
        assert server.rejected == []
        assert [received.body.get("stream", False) for received in server.requests] == [is_streamed] * 2
    assert result.output == Sum(sum=10)
    total = result.usage.total
    assert total == Usage(30, 11, 4, 2, model_calls=2, cost=total.cost)
    assert list(result.usage.by_model) == ["openai:gpt-5" if api == "chat" else "openai-responses:gpt-5"]


@APIS
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_id_of_the_response_is_kept(api: Any, is_streamed: bool) -> None:
    async with OpenAIServer([ScriptedStream("Hel", "lo."), "Bye."]) as server:
        model, request = _model(server, api), ModelRequest((UserMessage("Hi"),), stream=is_streamed)
        ids = [(await collect_response(model.respond(request))).id for _ in range(2)]
    prefix = "chatcmpl-" if api == "chat" else "resp_"
    assert [each.startswith(prefix) for each in ids] == [True, True]
    assert ids[0] != ids[1]


@APIS
async def test_concurrent_runs_are_independent(api: Any) -> None:
    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return call("add", a=1, b=2) if isinstance(last, UserMessage) else f"It is {last.content}."

    async with OpenAIServer([reply], cycle=True) as server:
        runner = Runner(Agent("Adder", tools=[add]), model=_model(server, api))
        results = await asyncio.gather(*[runner.run("1+2?") for _ in range(40)])
    assert {result.output for result in results} == {"It is 3."}


def test_models_work_in_consecutive_event_loops() -> None:
    async def run() -> str:
        async with OpenAIServer(["Hi."]) as server:
            return (await Runner(Agent("Clerk"), model=_model(server, "chat")).run("Hello")).output

    assert [asyncio.run(run()) for _ in range(2)] == ["Hi.", "Hi."]


async def test_reasoning_is_sent_back_only_to_its_provider() -> None:
    signature: dict[str, Any] = {"id": "rs_1", "summary": [], "encrypted_content": "secret", "calls_before": 1}
    own_reasoning, foreign_reasoning = (
        Reasoning("", "openai", signature),
        Reasoning("Hm", "anthropic", {"signature": "x"}),
    )
    first_reasoning = Reasoning("", "openai", {**signature, "id": "rs_0", "calls_before": 0})
    calls = ToolCall("c1", "add"), ToolCall("c2", "add")
    conversation = [
        UserMessage("Hi"),
        AssistantMessage("Well.", calls, (first_reasoning, own_reasoning, foreign_reasoning)),
        ToolMessage("c1", "add", "1"),
        ToolMessage("c2", "add", (Text("2"), Image(url="https://x"))),
    ]
    items = ResponsesDialect("m", "openai:m").body(ModelRequest(conversation))["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        *("user", "reasoning", "assistant", "function_call", "reasoning", "function_call"),
        *("function_call_output", "function_call_output"),
    ]
    assert items[1] == {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "secret"}
    assert items[-1]["output"] == [
        {"type": "input_text", "text": "2"},
        {"type": "input_image", "image_url": "https://x", "detail": "auto"},
    ]
    other_provider = ResponsesDialect("m", "azure:m", "azure").body(ModelRequest(conversation))["input"]
    assert "reasoning" not in [item.get("type") for item in other_provider]


async def test_a_run_sends_reasoning_back() -> None:
    reasoning_item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"}
    call_item = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1,"b":2}'}
    message_item = {"type": "message", "content": [{"type": "output_text", "text": "3"}]}
    first_reasoning, last = (
        json_reply({"output": [reasoning_item, call_item]}),
        json_reply({"status": "completed", "output": [message_item]}),
    )
    async with RawServer(first_reasoning, last) as server:
        result = await Runner(Agent("Adder", tools=[add]), model=server.model("o3", api="responses")).run("1+2?")
    assert result.output == "3"
    assert server.requests[0].body["include"] == ["reasoning.encrypted_content"]
    assert server.requests[1].body["input"][1:3] == [reasoning_item, call_item]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpt-5", True), ("o3-mini", True), ("gpt-5.1-codex", True), ("gpt-4o", False), ("gpt-5-chat-latest", False)],
)
def test_reasoning_models_are_recognised_by_name(name: str, expected: bool) -> None:
    assert is_reasoning_model(name) is expected


@APIS
async def test_a_typed_answer_can_be_a_tool_call(api: Any) -> None:
    steps = [call("add", a=1, b=2), call("final_answer", sum=3, note="done")]
    async with OpenAIServer(steps) as server:
        model = _model(server, api, structured="tool")
        runner = Runner(Agent("Adder", tools=[add], output_type=Sum), model=model)
        async with runner.stream("1+2?") as run:
            events = [type(event).__name__ async for event in run]
        assert [received.body["tool_choice"] for received in server.requests] == ["required"] * 2
        assert server.rejected == []
    assert run.result.output == Sum(sum=3, note="done")
    assert events.count("ToolReturned") == 1


async def test_the_answer_tool_has_a_unique_name() -> None:
    request = ModelRequest(
        [UserMessage("Hi")], tools=(ToolSpec("final_answer"),), output_schema=OutputSchema("Sum", SCHEMA)
    )
    fragment = {"index": 0, "id": "c1", "function": {"name": "final_answer_", "arguments": '{"sum":1}'}}
    async with RawServer(stream(delta(tool_calls=[fragment]), delta("tool_calls"), "[DONE]")) as server:
        chunks = await read_chunks(server.model(structured="tool"), request)
    assert chunks == [TextChunk('{"sum":1}', 1), ModelResponse(stop_reason="stop")]
    alone = ModelRequest([UserMessage("Hi")], output_schema=OutputSchema("Sum", SCHEMA))
    async with RawServer(stream(delta("stop", content="1"), "[DONE]")) as server:
        await read_chunks(server.model(structured="tool"), alone)
        assert server.requests[0].body["tool_choice"] == {"type": "function", "function": {"name": "final_answer"}}


async def test_json_mode_with_the_responses_api() -> None:
    request = ModelRequest([UserMessage("Hi")], output_schema=OutputSchema("Sum", SCHEMA))
    body = ResponsesDialect("m", "openai:m", structured="json_object").body(request)
    assert body["text"] == {"format": {"type": "json_object"}}
    assert '"sum"' in body["instructions"]


async def test_a_type_without_a_strict_schema_is_not_sent_as_strict() -> None:
    async with OpenAIServer(['{"a": 1}']) as server:
        result = await Runner(Agent("Counter", output_type=dict[str, int]), model=_model(server, "chat")).run("Count.")
        assert server.rejected == []
        assert server.requests[0].body["response_format"]["json_schema"]["strict"] is False
    assert result.output == {"a": 1}


async def test_reasoning_is_streamed() -> None:
    steps = [ScriptedStream(Reasoning("Hm."), "Yes.")]
    async with (
        OpenAIServer(steps, reasoning_field="reasoning_content") as server,
        Runner(Agent("Thinker"), model=_model(server, "chat")).stream("Well?") as run,
    ):
        kinds = [type(event).__name__ async for event in run]
    assert kinds.index("ReasoningDelta") < kinds.index("TextDelta")


async def test_the_default_model_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OpenAIServer(["Hi."], models=["tiny"]) as server:
        monkeypatch.setenv("VLLM_BASE_URL", server.base_url)
        monkeypatch.setenv("VLLM_API_KEY", server.api_key)
        monkeypatch.setenv("BATON_MODEL", "vllm:tiny")
        result = await Runner(Agent("Clerk")).run("Hello")
    assert result.output == "Hi."
    assert list(result.usage.by_model) == ["vllm:tiny"]


def test_invalid_options_are_refused() -> None:
    wrong: Any = "soap"
    with pytest.raises(SetupError, match=r"OpenAIModel\(api=…\) is 'soap'; it can be: `chat`, `responses`"):
        OpenAIModel("m", api=wrong)
    with pytest.raises(SetupError, match=r"OpenAIModel\(structured=…\) is 'soap'"):
        OpenAIModel("m", structured=wrong)
    with pytest.raises(SetupError, match="needs the name of a model"):
        OpenAIModel("")
    with pytest.raises(SetupError, match="uses the URL, key, headers and TLS settings of the client"):
        OpenAIModel("m", client=wrong, api_key="x")


async def test_text_before_the_call_of_the_output_tool_is_not_part_of_the_answer() -> None:
    fragment = {"index": 0, "id": "c1", "function": {"name": "final_answer", "arguments": '{"sum":1,"note":"done"}'}}
    events = [delta(content="I add."), delta(tool_calls=[fragment]), delta("tool_calls"), "[DONE]"]
    request = ModelRequest([UserMessage("Hi")], output_schema=OutputSchema("Sum", SCHEMA))
    async with RawServer(stream(*events)) as server:
        message = (await read_response(server.model(structured="tool"), request)).message
    assert message is not None
    assert answer_of(message.content) == '{"sum":1,"note":"done"}'
