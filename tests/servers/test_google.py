"""The Google server with the official client and with invalid requests."""

import gc
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.genai import Client, errors, types
from httpx2 import AsyncClient
from tests.servers import GoogleServer
from tests.servers.clients import post

from batonkit.errors import ContentFilterError, OverloadedError, RateLimitError
from batonkit.messages import AssistantMessage, Reasoning, Usage
from batonkit.models import ModelResponse
from batonkit.testing import ScriptedStream, ScriptStep, call, say

MODEL = "gemini-3.8-flash"
PATH = f"/v1/models/{MODEL}:generateContent"
KEY = {"x-goog-api-key": "test-key"}
USER: Any = {"role": "user", "parts": [{"text": "Hello"}]}
SIGNED = {"thoughtSignature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="}
CALL: Any = {"functionCall": {"name": "wave", "args": {}}, **SIGNED}
RESPONSE: Any = {"functionResponse": {"name": "wave", "response": {"result": "waved"}}}
CALLED = {"role": "model", "parts": [CALL]}
WAVE: Any = {"functionDeclarations": [{"name": "wave", "parametersJsonSchema": {"type": "object"}}]}


@pytest.fixture(autouse=True, scope="module")
def collect_clients() -> Iterator[None]:
    """Collect the SDK's clients while no event loop is running: closed or not, they would start a task in it."""
    yield
    gc.collect()


@asynccontextmanager
async def scripted(*steps: ScriptStep) -> AsyncGenerator[tuple[Any, GoogleServer]]:
    async with GoogleServer(steps) as server, AsyncClient() as http:
        # With aiohttp installed, the SDK would use it in a way that causes warnings.
        options = types.HttpOptions(base_url=server.base_url, httpx_async_client=http)
        client = Client(api_key=server.api_key, http_options=options)
        try:
            yield client.aio.models, server
        finally:
            client.close()
            await client.aio.aclose()


async def test_an_unstreamed_response() -> None:
    thoughtful = AssistantMessage("One moment.", (call("wave", times=2),), (Reasoning("Hm."),))
    step = ModelResponse(thoughtful, Usage(70, 20, cached_tokens=30, reasoning_tokens=5))
    async with scripted(step) as (models, _):
        result = await models.generate_content(model=MODEL, contents="Hello")
    reasoning_part, text_part, call_part = result.candidates[0].content.parts
    assert (reasoning_part.thought, reasoning_part.text, text_part.text) == (True, "Hm.", "One moment.")
    assert (call_part.function_call.name, call_part.function_call.args) == ("wave", {"times": 2})
    assert call_part.thought_signature
    usage = result.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (70, 15, 5)
    assert usage.cached_content_token_count == 30


async def test_a_streamed_response() -> None:
    step = ScriptedStream(Reasoning("Hm."), "One ", "moment.", call("wave", why="a" * 40), call("bow"))
    async with scripted(step) as (models, _):
        stream = await models.generate_content_stream(model=MODEL, contents="Hello")
        chunks = [chunk async for chunk in stream]
    parts = [part for chunk in chunks for part in (chunk.candidates[0].content or types.Content()).parts or ()]
    assert "".join([part.text for part in parts if part.text and not part.thought]) == "One moment."
    calls = [part.function_call for part in parts if part.function_call]
    assert [(each.name, each.args) for each in calls] == [("wave", {"why": "a" * 40}), ("bow", {})]
    assert [bool(part.thought_signature) for part in parts if part.function_call] == [True, False]
    assert [chunk.candidates[0].finish_reason for chunk in chunks][-1] == types.FinishReason.STOP


async def test_errors_are_mapped_by_the_official_client() -> None:
    async with scripted(RateLimitError("slow down", retry_after=3), ScriptedStream("So ", OverloadedError("busy"))) as (
        models,
        _,
    ):
        with pytest.raises(errors.ClientError) as limited:
            await models.generate_content(model=MODEL, contents="Hello")
        with pytest.raises(errors.ServerError) as overloaded:
            async for _ in await models.generate_content_stream(model=MODEL, contents="Hello"):
                pass
    assert (limited.value.code, limited.value.status) == (429, "RESOURCE_EXHAUSTED")
    result: Any = limited.value
    assert result.details["error"]["details"][0]["retryDelay"] == "3s"
    assert (overloaded.value.code, overloaded.value.message) == (503, "busy")


async def test_content_filters_have_googles_format() -> None:
    async with scripted(ContentFilterError("no"), ScriptedStream("So ", ContentFilterError("no"))) as (models, _):
        blocked = await models.generate_content(model=MODEL, contents="Hello")
        stream = await models.generate_content_stream(model=MODEL, contents="Hello")
        chunks = [chunk async for chunk in stream]
    assert blocked.prompt_feedback.block_reason == types.BlockedReason.SAFETY
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.SAFETY


async def test_requests_are_converted_to_batons_types() -> None:
    config = types.GenerateContentConfig(
        system_instruction="Be kind.",
        temperature=0.5,
        tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="wave", description="Wave.")])],
    )
    part = types.Part.from_bytes(data=b"png", mime_type="image/png")
    async with scripted(say("Done.")) as (models, server):
        await models.generate_content(model=MODEL, contents=["Look:", part], config=config)
    request = server.understood[0]
    assert (request.instructions, request.settings.temperature) == ("Be kind.", 0.5)
    assert [(tool.name, tool.description) for tool in request.tools] == [("wave", "Wave.")]
    assert [type(part).__name__ for part in request.messages[0].content] == ["Text", "Image"]


async def test_signatures_that_are_sent_back_are_accepted() -> None:
    async with scripted(call("wave"), "Done.") as (models, _):
        result = await models.generate_content(model=MODEL, contents="Hello")
        content = result.candidates[0].content
        (part,) = content.parts
        response = types.FunctionResponse(id=part.function_call.id, name="wave", response={"result": "waved"})
        function_turn = types.Content(role="user", parts=[types.Part(function_response=response)])
        first = types.Content(role="user", parts=[types.Part(text="Hello")])
        done = await models.generate_content(model=MODEL, contents=[first, content, function_turn])
    assert done.text == "Done."


BAD_CONTENTS: dict[str, list[Any]] = {
    "contents is not specified": [],
    "Please use a valid role": [{"role": "assistant", "parts": [{"text": "Hi"}]}],
    "alternate": [USER, USER],
    "must not be empty": [{"role": "user", "parts": []}],
    "required oneof field 'data'": [{"role": "user", "parts": [{"thought": True}]}],
    "must have a text parameter": [{"role": "user", "parts": [{"text": ""}]}],
    "end with a user role": [USER, {"role": "model", "parts": [{"text": "Hi"}]}],
    "comes immediately after a user turn": [CALLED, {"role": "user", "parts": [RESPONSE]}],
    "comes immediately after a function call turn": [{"role": "user", "parts": [RESPONSE]}],
    "number of function response parts": [
        USER,
        {"role": "model", "parts": [CALL, CALL]},
        {"role": "user", "parts": [RESPONSE]},
    ],
    "does not match the function call": [
        USER,
        CALLED,
        {"role": "user", "parts": [{"functionResponse": {"name": "bow", "response": {}}}]},
    ],
    "missing a `thought_signature`": [
        USER,
        {"role": "model", "parts": [{"functionCall": {"name": "wave"}}]},
        {"role": "user", "parts": [RESPONSE]},
    ],
    "Thought signature is not valid": [
        USER,
        {"role": "model", "parts": [{"text": "Hi", "thoughtSignature": "Zm9yZ2Vk"}]},
        USER,
    ],
    "Unknown name \"colour\" at 'contents[0].parts[0]'": [{"parts": [{"text": "Hi", "colour": "red"}]}],
}


@pytest.mark.parametrize("message", BAD_CONTENTS)
async def test_invalid_conversations_are_refused(message: str) -> None:
    async with GoogleServer(["Never said."]) as server:
        status, result = await post(server, PATH, {"contents": BAD_CONTENTS[message]}, **KEY)
    assert (status, result["error"]["code"], result["error"]["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert message in result["error"]["message"]


def _declared(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": "wave", **fields}]}]}


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    'Unknown name "colour"': {"colour": "red"},
    "Must start with a letter": _declared(name="3d"),
    "schema should be of type object": _declared(parametersJsonSchema={"type": "string"}),
    'Unknown name "pattern"': _declared(
        parametersJsonSchema={"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}}
    ),
    "beside $ref": _declared(
        parametersJsonSchema={"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "description": "x"}}}
    ),
    "Duplicate function declaration": {"tools": [WAVE, WAVE]},
    "without function_declarations": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
    "only be set when the mode is ANY": {
        "tools": [WAVE],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["wave"]}},
    },
    "is not among the function declarations": {
        "tools": [WAVE],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["bow"]}},
    },
    "requires response_mime_type": {"generationConfig": {"responseJsonSchema": {"type": "object"}}},
    "temperature must be in the range": {"generationConfig": {"temperature": 3}},
    "only one of thinking budget": {
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}
    },
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
async def test_invalid_options_are_refused(message: str) -> None:
    async with GoogleServer(["Never said."]) as server:
        status, result = await post(server, PATH, {"contents": [USER], **BAD_OPTIONS[message]}, **KEY)
    assert status == 400
    assert message in result["error"]["message"]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("Function calling with a response mime type", {"responseMimeType": "application/json"}),
        ("Thinking level is not supported", {"thinkingConfig": {"thinking_level": "LOW"}}),
    ],
)
async def test_options_that_older_models_refuse(message: str, options: dict[str, Any]) -> None:
    body = {"contents": [USER], "tools": [WAVE], "generationConfig": options}
    async with GoogleServer(["Never said."]) as server:
        status, result = await post(server, "/v1/models/gemini-2.5-flash:generateContent", body, **KEY)
    assert (status, message in result["error"]["message"]) == (400, True)


async def test_keys_and_models_are_checked() -> None:
    async with GoogleServer({"gemini-small": []}) as server:
        body = {"contents": [USER]}
        assert (await post(server, PATH, body, **{"x-goog-api-key": "wrong"}))[0] == 400
        assert (await post(server, PATH, body))[0] == 403
        status, result = await post(server, PATH, body, **KEY)
    assert (status, result["error"]["status"]) == (404, "NOT_FOUND")
    assert f"models/{MODEL} is not found for API version v1" in result["error"]["message"]
