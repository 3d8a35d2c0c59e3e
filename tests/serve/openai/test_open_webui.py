"""Requests as Open WebUI sends them.

The shapes follow its source at github.com/open-webui/open-webui: `backend/open_webui/routers/openai.py` (headers, body,
the list of models), `backend/open_webui/routers/tasks.py` (titles and follow-up questions) and
`backend/open_webui/utils/headers.py` (headers of a connection, such as `{{CHAT_ID}}` and `{{TASK}}`).
"""

import json
from typing import Any

import aiohttp
import pytest

from batonkit import Agent, Runner
from batonkit.messages import Image, Text
from batonkit.serve import openai_app, serve_in_background
from batonkit.testing import ScriptedModel, call

CHAT = {"X-OpenWebUI-Chat-Id": "5b1f6a0e", "X-OpenWebUI-User-Id": "u1", "X-OpenWebUI-User-Role": "user"}
TITLE = "### Task:\nWrite a short title for the chat.\n### Chat History:\nUSER: Weather?"


def turn(*messages: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a turn of a chat."""
    options = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0.7, "max_tokens": 512}
    return {"model": "Desk", "messages": [{"role": "system", "content": "Be brief."}, *messages], **options}


def task(prompt: str) -> dict[str, Any]:
    """Return the body of a request for a title, tags or follow-up questions."""
    message = {"role": "user", "content": prompt}
    return {"model": "Desk", "messages": [message], "stream": False, "max_completion_tokens": 1000}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


async def send(url: str, body: dict[str, Any], **headers: str) -> Any:
    """Send a body; return the text of a stream, or the body of the response."""
    given = {"Content-Type": "application/json", "Authorization": "Bearer key", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", data=json.dumps(body), headers=given) as answer,
    ):
        assert answer.status == 200
        if not body["stream"]:
            return await answer.json()
        lines = (await answer.text()).splitlines()
    frames = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    return "".join([choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]])


def weather_desk() -> tuple[Any, ScriptedModel]:
    script = {"Desk": [call("transfer_to_weather"), '{"title": "Weather"}'], "Weather": ["Sunny.", "Cold."]}
    model = ScriptedModel(script)
    weather = Agent("Weather", description="Knows the weather.", model=model)
    return openai_app(Runner(Agent("Desk", model=model, handoffs=[weather]), store="memory:"), auth="key"), model


async def test_the_models_are_listed_with_the_key_of_the_connection() -> None:
    app, _ = weather_desk()
    async with (
        serve_in_background(app) as url,
        aiohttp.ClientSession(headers={"Authorization": "Bearer key"}) as session,
        session.get(f"{url}/v1/models") as answer,
    ):
        models = (await answer.json())["data"]
    assert [(model["id"], model["object"]) for model in models] == [("Desk", "model")]


@pytest.mark.parametrize(
    "task_header", [{}, {"X-OpenWebUI-Task": "title_generation"}], ids=["by its prompt", "by a header"]
)
async def test_a_chat_is_a_thread_and_its_title_is_not_part_of_it(task_header: dict[str, str]) -> None:
    app, model = weather_desk()
    async with serve_in_background(app) as url:
        assert await send(url, turn(user("Weather?")), **CHAT) == "Sunny."
        prompt = "A title, please." if task_header else TITLE
        title = await send(url, task(prompt), **CHAT, **task_header)
        assert title["choices"][0]["message"]["content"] == '{"title": "Weather"}'
        second = turn(user("Weather?"), assistant("Sunny."), user("Tomorrow?"))
        assert await send(url, second, **CHAT, **dict.fromkeys(task_header, "")) == "Cold."
    assert model.requests[-1].agent == "Weather"
    assert "title" not in str(model.requests[-1].messages)
    assert "Be brief." not in str(model.requests)


async def test_without_forwarded_headers_the_messages_are_the_history() -> None:
    app, model = weather_desk()
    async with serve_in_background(app) as url:
        await send(url, turn(user("Weather?"), assistant("Where?"), user("In Rome.")))
    assert [message.content for message in model.requests[0].messages] == ["Weather?", "Where?", "In Rome."]


async def test_images_of_a_chat_reach_the_model() -> None:
    app, model = weather_desk()
    image = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGVsbG8="}}
    async with serve_in_background(app) as url:
        await send(url, turn(user([{"type": "text", "text": "What is it?"}, image])), **CHAT)
    (message,) = model.requests[0].messages
    assert message.content == (Text("What is it?"), Image(None, b"hello", "image/jpeg"))
