"""Settings that OpenAI would refuse are refused before they are sent."""

import pytest
from tests.realtime.openai.connections import make_model
from tests.servers import OpenAIRealtimeServer

from batonkit.errors import ModelRequestError, SetupError
from batonkit.messages import ToolSpec
from batonkit.realtime.openai import OpenAIRealtimeModel
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig

INVALID = [
    (SessionConfig("Desk", tools=(ToolSpec("not a name"),)), "`Desk` has a tool named 'not a name'"),
    (SessionConfig("Desk", tools=(ToolSpec("x" * 65),)), "from 1 to 64"),
    (SessionConfig("Desk", tools=(ToolSpec("f"), ToolSpec("f"))), "two tools named `f`"),
    (SessionConfig("Desk", tools=(ToolSpec("f", parameters={"type": "string"}),)), 'only schemas of type "object"'),
    (SessionConfig("Desk", tools=tuple(ToolSpec(f"f{n}") for n in range(129))), "at most 128"),
    (SessionConfig("Desk", tools=(ToolSpec("f"),), tool_choice="g"), "it can be: `auto`, `none`, `required`, `f`"),
    (SessionConfig("Desk", "x" * 65_537), "at most 65,536"),
    (SessionConfig("Desk", voice="unknown"), "the voice of `Desk` is 'unknown'; .* `alloy`"),
    (SessionConfig("Desk", settings=RealtimeSettings(voice="unknown")), "the voice of the conversation"),
    (SessionConfig("Desk", settings=RealtimeSettings(speed=2.0)), r"from 0\.25 to 1\.5"),
    (SessionConfig("Desk", settings=RealtimeSettings(max_output_tokens=0)), "from 1 to 4096"),
]


@pytest.mark.parametrize(("settings", "match"), INVALID, ids=lambda value: str(value)[-40:])
async def test_invalid_settings_are_named_and_the_provider_agrees(settings: SessionConfig, match: str) -> None:
    async with OpenAIRealtimeServer([]) as server:
        model = make_model(server)
        with pytest.raises(SetupError, match=match):
            model.check(settings)
        with pytest.raises(ModelRequestError):
            await model.connect(settings)


def test_custom_and_new_voices_are_accepted() -> None:
    OpenAIRealtimeModel().check(SessionConfig("Desk", voice="voice_1234"))
    OpenAIRealtimeModel(voices=("newest",)).check(SessionConfig("Desk", voice="newest"))
