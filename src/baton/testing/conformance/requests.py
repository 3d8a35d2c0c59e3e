"""Checks of what a model tells its provider."""

from typing import Any

import pytest

from ...messages import AssistantMessage, Image, SystemMessage, Text, ToolCall, ToolMessage, UserMessage, text_of
from ...models import ModelSettings
from .answers import BOW, WAVE
from .bench import HELLO, ModelBench, P, answer_of, request
from .histories import HISTORIES, MEDIA
from .reading import essence, says_the_same

SETTINGS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "max_tokens": 123,
    "stop": ("END", "STOP"),
    "seed": 7,
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
}


class RequestChecks(ModelBench[P]):
    """Histories, instructions, tools and settings: nothing is lost, and the provider takes all of it."""

    @pytest.mark.parametrize("name", HISTORIES)
    async def test_a_history_is_told_as_it_is(self, name: str) -> None:
        await self._check_history(name)

    @pytest.mark.parametrize("name", MEDIA)
    async def test_media_are_told_as_they_are(self, name: str) -> None:
        self.needs(name)
        await self._check_history(name)

    async def _check_history(self, name: str) -> None:
        history = (HISTORIES | MEDIA)[name]
        async with self.played("Understood.") as (model, provider):
            _, message = await answer_of(model, request(history, tools=(WAVE, BOW)))
        assert text_of(message.content) == "Understood."
        understood = provider.understood[-1].messages
        assert says_the_same(understood, history), f"told: {essence(history)}\nunderstood: {essence(understood)}"

    async def test_no_history_at_all_is_taken(self) -> None:
        async with self.played("Understood.") as (model, _):
            _, message = await answer_of(model, request(()))
        assert text_of(message.content) == "Understood."

    async def test_a_picture_in_a_result_is_taken(self) -> None:
        self.needs("images")
        (told,) = MEDIA["images"]
        (picture,) = [part for part in told.content if isinstance(part, Image)]
        called = AssistantMessage(tool_calls=(ToolCall("call_1", "wave", '{"times":1}'),))
        history = (*HELLO, called, ToolMessage("call_1", "wave", (Text("see this"), picture)))
        async with self.played("Understood.") as (model, provider):
            _, message = await answer_of(model, request(history, tools=(WAVE,)))
        assert text_of(message.content) == "Understood."
        assert "see this" in str([text_of(each.content) for each in provider.understood[-1].messages])

    async def test_instructions_are_told(self) -> None:
        async with self.played("Understood.") as (model, provider):
            await answer_of(model, request(instructions="Always rhyme."))
        asked = provider.understood[-1]
        told = [text_of(each.content) for each in asked.messages if isinstance(each, SystemMessage | UserMessage)]
        assert "Always rhyme." in "\n".join([asked.instructions, *told])

    async def test_no_instructions_are_no_trouble(self) -> None:
        async with self.played("Understood.") as (model, provider):
            await answer_of(model, request(instructions=""))
        assert provider.understood[-1].instructions == ""

    async def test_tools_are_told(self) -> None:
        async with self.played("Understood.") as (model, provider):
            await answer_of(model, request(tools=(WAVE, BOW)))
        tools = provider.understood[-1].tools
        assert [(tool.name, tool.description) for tool in tools] == [("wave", "Wave a hand."), ("bow", "Bow.")]
        properties = tools[0].parameters["properties"]
        assert properties["times"]["type"].lower() == "integer"
        assert tools[0].parameters["required"] == ["times"]

    @pytest.mark.parametrize("name", SETTINGS)
    async def test_a_setting_is_told(self, name: str) -> None:
        self.needs(name)
        settings = ModelSettings(**{name: SETTINGS[name]})
        async with self.played("Understood.") as (model, provider):
            await answer_of(model, request(settings=settings, tools=(WAVE,)))
        assert getattr(provider.understood[-1].settings, name) == SETTINGS[name]

    @pytest.mark.parametrize("choice", ["auto", "required", "none", "wave"])
    async def test_the_choice_of_a_tool_is_told(self, choice: str) -> None:
        self.needs("tool_choice")
        async with self.played("Understood.") as (model, provider):
            await answer_of(model, request(settings=ModelSettings(tool_choice=choice), tools=(WAVE, BOW)))
        asked = provider.understood[-1]
        # Where there is no word for it, "none" is said by offering no tools, and "auto" by saying nothing.
        assert asked.settings.tool_choice in {"auto": ("auto", None), "none": ("none", None)}.get(choice, (choice,))
        assert choice != "none" or asked.settings.tool_choice == "none" or not asked.tools

    @pytest.mark.parametrize("name", ["tool_choice", "parallel_tool_calls"])
    async def test_settings_about_tools_are_no_trouble_without_tools(self, name: str) -> None:
        settings = (
            ModelSettings(tool_choice="auto") if name == "tool_choice" else ModelSettings(parallel_tool_calls=True)
        )
        async with self.played("Understood.") as (model, _):
            _, message = await answer_of(model, request(settings=settings))
        assert text_of(message.content) == "Understood."
