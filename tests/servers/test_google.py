"""Google's server, asked by Google's own client and by requests that no client of its would send."""

import gc
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.genai import Client, errors, types
from httpx2 import AsyncClient
from tests.servers import GoogleServer
from tests.servers.clients import posted

from baton.errors import ContentFilterError, OverloadedError, RateLimitError
from baton.messages import AssistantMessage, Reasoning, Usage
from baton.models import ModelResponse
from baton.testing import ScriptedStream, ScriptStep, call, say

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
def collected() -> Iterator[None]:
    """Collect the SDK's clients while no event loop is running: closed or not, they would start a task in it."""
    yield
    gc.collect()


@asynccontextmanager
async def played(*steps: ScriptStep) -> AsyncGenerator[tuple[Any, GoogleServer]]:
    async with GoogleServer(steps) as server, AsyncClient() as http:
        # Where aiohttp is installed, the SDK would use it in a way that aiohttp warns of.
        options = types.HttpOptions(base_url=server.base_url, httpx_async_client=http)
        client = Client(api_key=server.api_key, http_options=options)
        try:
            yield client.aio.models, server
        finally:
            client.close()
            await client.aio.aclose()


async def test_an_answer_in_one_piece() -> None:
    thoughtful = AssistantMessage("One moment.", (call("wave", times=2),), (Reasoning("Hm."),))
    step = ModelResponse(thoughtful, Usage(70, 20, cached_tokens=30, reasoning_tokens=5))
    async with played(step) as (models, _):
        said = await models.generate_content(model=MODEL, contents="Hello")
    thought, words, called = said.candidates[0].content.parts
    assert (thought.thought, thought.text, words.text) == (True, "Hm.", "One moment.")
    assert (called.function_call.name, called.function_call.args) == ("wave", {"times": 2})
    assert called.thought_signature
    used = said.usage_metadata
    assert (used.prompt_token_count, used.candidates_token_count, used.thoughts_token_count) == (70, 15, 5)
    assert used.cached_content_token_count == 30


async def test_an_answer_in_pieces() -> None:
    step = ScriptedStream(Reasoning("Hm."), "One ", "moment.", call("wave", why="a" * 40), call("bow"))
    async with played(step) as (models, _):
        stream = await models.generate_content_stream(model=MODEL, contents="Hello")
        pieces = [piece async for piece in stream]
    parts = [part for piece in pieces for part in (piece.candidates[0].content or types.Content()).parts or ()]
    assert "".join([part.text for part in parts if part.text and not part.thought]) == "One moment."
    calls = [part.function_call for part in parts if part.function_call]
    assert [(each.name, each.args) for each in calls] == [("wave", {"why": "a" * 40}), ("bow", {})]
    assert [bool(part.thought_signature) for part in parts if part.function_call] == [True, False]
    assert [piece.candidates[0].finish_reason for piece in pieces][-1] == types.FinishReason.STOP


async def test_errors_have_the_form_of_the_official_client() -> None:
    async with played(RateLimitError("slow down", retry_after=3), ScriptedStream("So ", OverloadedError("busy"))) as (
        models,
        _,
    ):
        with pytest.raises(errors.ClientError) as limited:
            await models.generate_content(model=MODEL, contents="Hello")
        with pytest.raises(errors.ServerError) as overloaded:
            async for _ in await models.generate_content_stream(model=MODEL, contents="Hello"):
                pass
    assert (limited.value.code, limited.value.status) == (429, "RESOURCE_EXHAUSTED")
    said: Any = limited.value
    assert said.details["error"]["details"][0]["retryDelay"] == "3s"
    assert (overloaded.value.code, overloaded.value.message) == (503, "busy")


async def test_what_the_filter_stops() -> None:
    async with played(ContentFilterError("no"), ScriptedStream("So ", ContentFilterError("no"))) as (models, _):
        blocked = await models.generate_content(model=MODEL, contents="Hello")
        stream = await models.generate_content_stream(model=MODEL, contents="Hello")
        pieces = [piece async for piece in stream]
    assert blocked.prompt_feedback.block_reason == types.BlockedReason.SAFETY
    assert pieces[-1].candidates[0].finish_reason == types.FinishReason.SAFETY


async def test_it_understands_what_the_client_says() -> None:
    config = types.GenerateContentConfig(
        system_instruction="Be kind.",
        temperature=0.5,
        tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="wave", description="Wave.")])],
    )
    part = types.Part.from_bytes(data=b"png", mime_type="image/png")
    async with played(say("Done.")) as (models, server):
        await models.generate_content(model=MODEL, contents=["Look:", part], config=config)
    asked = server.understood[0]
    assert (asked.instructions, asked.settings.temperature) == ("Be kind.", 0.5)
    assert [(tool.name, tool.description) for tool in asked.tools] == [("wave", "Wave.")]
    assert [type(part).__name__ for part in asked.messages[0].content] == ["Text", "Image"]


async def test_signatures_are_known_again() -> None:
    async with played(call("wave"), "Done.") as (models, _):
        said = await models.generate_content(model=MODEL, contents="Hello")
        content = said.candidates[0].content
        (part,) = content.parts
        response = types.FunctionResponse(id=part.function_call.id, name="wave", response={"result": "waved"})
        answered = types.Content(role="user", parts=[types.Part(function_response=response)])
        first = types.Content(role="user", parts=[types.Part(text="Hello")])
        done = await models.generate_content(model=MODEL, contents=[first, content, answered])
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


@pytest.mark.parametrize("why", BAD_CONTENTS)
async def test_conversations_that_it_refuses(why: str) -> None:
    async with GoogleServer(["Never said."]) as server:
        status, said = await posted(server, PATH, {"contents": BAD_CONTENTS[why]}, **KEY)
    assert (status, said["error"]["code"], said["error"]["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert why in said["error"]["message"]


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


@pytest.mark.parametrize("why", BAD_OPTIONS)
async def test_options_that_it_refuses(why: str) -> None:
    async with GoogleServer(["Never said."]) as server:
        status, said = await posted(server, PATH, {"contents": [USER], **BAD_OPTIONS[why]}, **KEY)
    assert status == 400
    assert why in said["error"]["message"]


@pytest.mark.parametrize(
    ("why", "options"),
    [
        ("Function calling with a response mime type", {"responseMimeType": "application/json"}),
        ("Thinking level is not supported", {"thinkingConfig": {"thinking_level": "LOW"}}),
    ],
)
async def test_what_an_older_model_refuses(why: str, options: dict[str, Any]) -> None:
    body = {"contents": [USER], "tools": [WAVE], "generationConfig": options}
    async with GoogleServer(["Never said."]) as server:
        status, said = await posted(server, "/v1/models/gemini-2.5-flash:generateContent", body, **KEY)
    assert (status, why in said["error"]["message"]) == (400, True)


async def test_who_may_ask() -> None:
    async with GoogleServer({"gemini-small": []}) as server:
        body = {"contents": [USER]}
        assert (await posted(server, PATH, body, **{"x-goog-api-key": "wrong"}))[0] == 400
        assert (await posted(server, PATH, body))[0] == 403
        status, said = await posted(server, PATH, body, **KEY)
    assert (status, said["error"]["status"]) == (404, "NOT_FOUND")
    assert f"models/{MODEL} is not found for API version v1" in said["error"]["message"]
