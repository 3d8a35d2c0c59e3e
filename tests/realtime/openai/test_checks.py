"""Settings that OpenAI would refuse are found before they are sent, and no others are."""

import pytest
from tests.realtime.openai.bench import model_of

from baton.errors import RequestError, SetupError
from baton.messages import ToolSpec
from baton.realtime.openai import OpenAIRealtimeModel
from baton.realtime.settings import Manners, SessionSettings
from baton.testing.servers import OpenAIRealtimeServer

WRONG = [
    (SessionSettings("Desk", tools=(ToolSpec("not a name"),)), "`Desk` has a tool named 'not a name'"),
    (SessionSettings("Desk", tools=(ToolSpec("x" * 65),)), "from 1 to 64"),
    (SessionSettings("Desk", tools=(ToolSpec("f"), ToolSpec("f"))), "two tools of the name `f`"),
    (SessionSettings("Desk", tools=(ToolSpec("f", parameters={"type": "string"}),)), 'only schemas of type "object"'),
    (SessionSettings("Desk", tools=tuple(ToolSpec(f"f{n}") for n in range(129))), "at most 128"),
    (SessionSettings("Desk", tools=(ToolSpec("f"),), tool_choice="g"), "it can be: `auto`, `none`, `required`, `f`"),
    (SessionSettings("Desk", "x" * 65_537), "at most 65,536"),
    (SessionSettings("Desk", voice="nobody"), "the voice of `Desk` is 'nobody'; .* `alloy`"),
    (SessionSettings("Desk", manners=Manners(voice="nobody")), "the voice of the conversation"),
    (SessionSettings("Desk", manners=Manners(speed=2.0)), r"from 0\.25 to 1\.5"),
    (SessionSettings("Desk", manners=Manners(max_output_tokens=0)), "from 1 to 4096"),
]


@pytest.mark.parametrize(("settings", "match"), WRONG, ids=lambda value: str(value)[-40:])
async def test_what_is_wrong_is_named_and_the_provider_agrees(settings: SessionSettings, match: str) -> None:
    async with OpenAIRealtimeServer([]) as server:
        model = model_of(server)
        with pytest.raises(SetupError, match=match):
            model.check(settings)
        with pytest.raises(RequestError):
            await model.connect(settings)


def test_a_voice_of_your_own_and_voices_that_are_new() -> None:
    OpenAIRealtimeModel().check(SessionSettings("Desk", voice="voice_1234"))
    OpenAIRealtimeModel(voices=("newest",)).check(SessionSettings("Desk", voice="newest"))
