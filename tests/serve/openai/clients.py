"""The official `openai` client for a served app, and a strict check of what it receives."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from batonkit.serve import openai_app, serve_in_background

_EVENT: Any = TypeAdapter(ResponseStreamEvent)


def connect(url: str, key: str = "key", **options: Any) -> Any:
    """Return a client that never retries."""
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, **options)


@asynccontextmanager
async def serve_model(target: Any, **options: Any) -> AsyncGenerator[Any]:
    """Serve a target as a model; yields a client."""
    async with serve_in_background(openai_app(target, **options)) as url, connect(url) as client:
        yield client


def user(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


async def chat(client: Any, *messages: Any, thread: str = "", model: str = "Desk", **options: Any) -> Any:
    """Send messages, texts of the user or dicts, and return the checked completion."""
    if thread:
        options["metadata"] = {"thread": thread}
    given = [user(message) if isinstance(message, str) else message for message in messages]
    return assert_valid(await client.chat.completions.create(model=model, messages=given, **options))


async def stream_chat(client: Any, *messages: Any, thread: str = "", model: str = "Desk", **options: Any) -> list[Any]:
    """Send messages and return the checked chunks."""
    if thread:
        options["metadata"] = {"thread": thread}
    given = [user(message) if isinstance(message, str) else message for message in messages]
    stream = await client.chat.completions.create(model=model, messages=given, stream=True, **options)
    return [assert_valid(chunk) async for chunk in stream]


async def respond(client: Any, input: Any, *, model: str = "Desk", **options: Any) -> Any:
    """Send an input and return the checked response."""
    return assert_valid(await client.responses.create(model=model, input=input, **options))


async def stream_response(
    client: Any, input: Any, *, model: str = "Desk", on_text: Callable[[], None] = lambda: None, **options: Any
) -> list[Any]:
    """Send an input and return the checked events."""
    events: list[Any] = []
    async for event in await client.responses.create(model=model, input=input, stream=True, **options):
        _assert_known(_EVENT.validate_python(event.to_dict(mode="json")))
        assert event.sequence_number == len(events)
        events.append(event)
        if event.type == "response.output_text.delta":
            on_text()
    return events


def text_in(chunks: list[Any]) -> str:
    """Return the text of the chunks of a completion."""
    return "".join([choice.delta.content or "" for chunk in chunks for choice in chunk.choices])


def text_of(completion: Any) -> str:
    """Return the text of a completion."""
    return completion.choices[0].message.content


def assert_valid(model: Any) -> Any:
    """Assert that an object of the client has all fields that its class requires, and no others; return it."""
    _assert_known(model.model_validate(model.to_dict(mode="json")))
    return model


EXTENSIONS = {"reasoning_content"}
"""Fields that many servers and clients of Chat Completions share."""


def _assert_known(value: Any) -> None:
    if isinstance(value, BaseModel):
        unknown = {*(value.model_extra or ())} - EXTENSIONS
        assert not unknown, f"{type(value).__name__} has unknown fields: {unknown}"
        for name in type(value).model_fields:
            _assert_known(getattr(value, name))
    elif isinstance(value, list | tuple):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            _assert_known(each)
